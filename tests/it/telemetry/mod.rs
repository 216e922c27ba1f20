//! Metrics and logs.

mod log;
mod metrics;
