//! Tidings, a content change notification gateway.
pub mod format;
pub mod model;
pub mod web;
