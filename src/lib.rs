//! Tidings.
pub mod format;
pub mod intake;
pub mod journal;
pub mod model;
pub mod view;
pub mod web;
