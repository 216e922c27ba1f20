//! Tidings, a content change notification gateway.
pub mod model;
