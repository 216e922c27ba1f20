//! Tidings, a content change notification gateway.
//!
//! # Modules in the order of an event's path
//!
//! An event arrives and becomes a change:
//!
//! - [`source`] receives messages: over HTTP with [`source::http::receive`], and from brokers with
//!   [`source::consumer::SourceConsumer::read`].
//! - [`mod@format`] parses them with [`format::Dialect::read`]; [`format::FormatKind`] writes changes.
//! - [`lookup`] requests facts that a message lacks from its repository with [`lookup::Lookup::complete`], and crawls a
//!   repository with [`lookup::crawl::Crawler::next`].
//! - [`harvest`] pulls records from repositories that answer only when asked: [`harvest::Engine::run`].
//! - [`filesets`] archives the datasets that sources request: [`filesets::JobLoop::run`].
//! - [`intake`] is the only write path to the journal: [`intake::Intake::accept`].
//! - [`audit`] compares repositories with the registry: [`audit::AuditRunner::run`].
//! - [`journal`] settles drafts, stores changes in one total order and keeps the registry:
//!   [`journal::Journal::append`].
//!
//! A change reaches its readers:
//!
//! - [`delivery`] pushes changes to subscribers: [`delivery::Runner::run`].
//! - [`view`] serves readers, for example with [`view::feed::newest`] and [`view::stream::follow`].
//! - [`admin`] serves administrators, for example with [`admin::sources::list`].
//!
//! All of them use:
//!
//! - [`text`], the characters of texts, and how people see them: [`text::line`].
//! - [`model`], the values: a [`model::Draft`] goes in and a [`model::Change`] comes out.
//! - [`web`], the common part of all HTTP surfaces, with the server loop [`web::server::serve`].
//! - [`broker`], the common part of connections to brokers, with [`broker::open_socket`];
//!   [`amqp`], [`stomp`] and [`kafka`] speak the protocols: [`amqp::QueueSettings::open`],
//!   [`stomp::StompSettings::open`], [`kafka::ClusterSettings::connect`].
//! - [`dbus`], a connection to a message bus: [`dbus::Connection::open`].
//! - [`files`], the store of downloaded files: [`files::FileStore::create`].
//! - [`segments`], the journal as immutable files: [`segments::seal_spans`].
//! - [`transfer`], documents and files of other servers, within limits: [`transfer::HarvestBudget::work`].
//! - [`http_client`], the gateway's own requests: [`http_client::Client::post`].
//! - [`publish`], the copy of the faces as files: [`publish::PublicationRunner::run`].
//! - [`cluster`], the nodes that share a journal: [`cluster::Cluster::run_duty`] runs work on one of them.
//! - [`settings`], the specifications of settings: [`settings::Table::read_table`].
//! - [`template`], texts that an operator's template makes of facts: [`template::Template::render`].
//! - [`retry`], the waits between attempts: [`retry::Backoff::next_wait`].
//! - [`supervision`], the supervision of threads and tasks: [`supervision::Supervisor::run`].
//! - `cache`, a bounded cache; `suggestion`, the nearest name to a misspelt one; `named`, a macro for enums whose
//!   values have names; `outage`, the log of a trouble that lasts; `features`, the parts that a build can lack. These
//!   five are private.
//!
//! The program is put together by:
//!
//! - [`config`], the configuration: [`config::Config::load`].
//! - [`router`], every route with its access rule: [`router::routes`].
//! - [`openapi`], the description of the HTTP interface: [`openapi::document`].
//! - [`app`], the wiring: [`app::serve`].
//!
//! `docs/architecture.md` has the vocabulary, two walkthroughs and the permitted imports between the modules, which a test
//! checks.

#[macro_use]
mod named;
mod outage;

pub mod model;
pub mod text;

// In.
pub mod audit;
pub mod format;
pub mod harvest;
pub mod intake;
pub mod journal;
pub mod lookup;
pub mod source;

// Out.
pub mod admin;
pub mod delivery;
pub mod view;

// Shared.
pub mod amqp;
pub mod broker;
mod cache;
pub mod cluster;
pub mod dbus;
pub mod features;
pub mod files;
pub mod filesets;
pub mod http_client;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod message_rate;
pub mod publish;
pub mod retry;
pub mod segments;
pub mod settings;
pub mod stomp;
mod suggestion;
pub mod supervision;
pub mod template;
pub mod transfer;
pub mod web;

// Wiring.
pub mod app;
pub mod config;
pub mod openapi;
pub mod router;
