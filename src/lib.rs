//! Tidings.
pub mod format;
pub mod intake;
pub mod journal;
pub mod model;
pub mod source;
pub mod web;
