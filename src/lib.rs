//! Tidings, a content change notification gateway.
//!
//! The modules in the order of an event's path. What each may import stands in
//! `docs/architecture.md` and is held by a test.

#[macro_use]
mod named;

// What everybody speaks of.
pub mod model;

// In: how messages reach the gateway, what they are read as, what their repository is asked, and the only door to
// the journal.
pub mod format;
pub mod intake;
pub mod lookup;
pub mod source;

// The record.
pub mod journal;

// Out: what subscribers are told, what readers and administrators ask for.
pub mod admin;
pub mod delivery;
pub mod view;

// Around: what every HTTP surface has in common, connections to brokers, requests of our own, waits between
// attempts, every URL, their description, the configuration, suggestions for misspelt names, caches in memory,
// the wiring, and the supervision of threads and tasks.
pub mod amqp;
pub mod app;
pub mod broker;
mod cache;
pub mod config;
pub mod http_client;
pub mod openapi;
pub mod retry;
pub mod router;
pub mod stomp;
mod suggestion;
pub mod supervision;
pub mod web;
