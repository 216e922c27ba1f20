//! What the views count and measure, by the facade of the `metrics` crate.

use ::metrics::{Counter, Gauge, counter, gauge};

/// Readers that are being served and wait for changes, by kind.
pub const OPEN_STREAMS: &str = "tidings_open_streams";

/// Changes that were sent on streams, by format.
pub const STREAMED: &str = "tidings_streamed_changes_total";

/// How many readers of a kind there are: `stream` or `poll`.
pub(super) fn open(kind: &'static str) -> Gauge {
    gauge!(OPEN_STREAMS, "kind" => kind)
}

/// How many changes were sent on streams in a format.
pub(super) fn streamed(format: &'static str) -> Counter {
    counter!(STREAMED, "format" => format)
}
