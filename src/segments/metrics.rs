//! Metrics of the segments, recorded with the `metrics` crate.

use ::metrics::counter;

/// Name of the counter: segments that were sealed.
pub const SEALED: &str = "tidings_sealed_segments_total";

/// Name of the counter: segments that could not be sealed, read or removed.
pub const FAILURES: &str = "tidings_segment_failures_total";

/// Shows the counters, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    counter!(SEALED).increment(0);
    counter!(FAILURES).increment(0);
}

/// Counts a sealed segment.
pub(super) fn sealed() {
    counter!(SEALED).increment(1);
}

/// Counts a failure.
pub fn failed() {
    counter!(FAILURES).increment(1);
}
