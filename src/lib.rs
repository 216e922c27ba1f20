//! Tidings, a content change notification gateway.
pub mod admin;
pub mod app;
pub mod config;
pub mod format;
pub mod intake;
pub mod journal;
pub mod model;
pub mod router;
pub mod source;
pub mod view;
pub mod web;
