//! Xesam PMH: a target on D-Bus from which crawlers harvest records (a draft of the Xesam project, 2009).
//! `docs/xesam.md` lists its rules with the tests that cover them.
//!
//! A crawler calls `ListRecords` of the target ([`target`]). The response says whether it gets the changes after its
//! time, or must remove everything and gets the registry ([`install`]). Then its session ([`session`]) sends records with
//! `UpdateRecords`, one call after the other, and new ones as soon as they are in the journal, until the crawler or the
//! target ends it.
//!
//! * [`records`] are the facts of the registry about the subjects of a change; [`categories`] and [`timestamps`] are parts of
//!   them, and [`request`] selects those that a crawler wants;
//! * [`pages`] of records are read once for all crawlers near the same position;
//! * [`runner`] is the task that owns the connection, and [`crawlers`] is the handle for others.

// A build without D-Bus has these types, and nothing fills them.
#![cfg_attr(not(feature = "dbus"), allow(dead_code))]

mod batch;
mod cache;
mod categories;
mod crawler;
mod crawlers;
mod install;
pub mod metrics;
mod pages;
mod records;
mod request;
#[cfg_attr(not(feature = "dbus"), path = "runner_absent.rs")]
mod runner;
#[cfg(feature = "dbus")]
mod session;
#[cfg(feature = "dbus")]
mod target;
mod timestamps;

pub use crawler::{CrawlerInfo, CrawlerKey, CrawlerState};
pub use crawlers::{Crawlers, UnknownCrawler};
pub use records::Selection;
pub use runner::TargetRunner;

use crate::{dbus, journal::Journal};

/// Interface of the target.
pub const TARGET_INTERFACE: &str = "org.freedesktop.xesam.pmh.Target";

/// Interface of a crawler.
pub const CRAWLER_INTERFACE: &str = "org.freedesktop.xesam.pmh.Crawler";

/// Settings of the target.
#[derive(Clone, Debug)]
pub struct TargetSettings {
    /// The bus.
    pub bus: dbus::Bus,
    /// Name on the bus.
    pub name: dbus::Name,
    /// Path of the target.
    pub path: dbus::Path,
    /// Maximum number of crawlers.
    pub crawlers: usize,
    /// Maximum number of records in a batch.
    pub batch_records: usize,
    /// Approximate maximum size of a batch, in bytes. A single record may exceed it.
    pub batch_bytes: usize,
    /// The subjects that crawlers get.
    pub selection: Selection,
}

/// Creates the target of a journal, and its task.
#[must_use]
pub fn open(journal: Journal, settings: TargetSettings) -> (Crawlers, TargetRunner) {
    metrics::register();
    let (crawlers, launches) = Crawlers::new(journal, settings);
    (crawlers.clone(), TargetRunner { crawlers, launches })
}
