//! Metrics of the views, recorded with the `metrics` crate.

use ::metrics::{Counter, Gauge, counter, gauge};

use crate::format::FORMATS;

/// Name of the gauge of readers that are waiting for changes, by kind.
pub const OPEN_STREAMS: &str = "tidings_open_streams";

/// Name of the counter of changes sent on streams, by format.
pub const STREAMED: &str = "tidings_streamed_changes_total";

/// Shows the series of all formats and kinds of readers, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    for format in FORMATS {
        streamed_changes(format.name).increment(0);
    }
    for kind in ["stream", "poll"] {
        open_readers(kind).increment(0.0);
    }
}

/// Returns the gauge of the readers of a kind: `stream` or `poll`.
pub(super) fn open_readers(kind: &'static str) -> Gauge {
    gauge!(OPEN_STREAMS, "kind" => kind)
}

/// Returns the counter of the changes sent on streams in a format.
pub(super) fn streamed_changes(format: &'static str) -> Counter {
    counter!(STREAMED, "format" => format)
}
