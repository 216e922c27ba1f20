//! Tidings, a content change notification gateway.
pub mod app;
pub mod config;
pub mod format;
pub mod model;
pub mod web;
