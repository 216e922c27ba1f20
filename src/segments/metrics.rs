//! Metrics of the segments, recorded with the `metrics` crate.

use ::metrics::{counter, gauge};

use crate::model::Seq;

/// Name of the gauge: last number of the newest sealed segment.
pub const NEWEST: &str = "tidings_sealed_segments_newest";

/// Name of the counter: segments that were sealed.
pub const SEALED: &str = "tidings_sealed_segments_total";

/// Name of the counter: segments that could not be sealed, read or removed.
pub const FAILURES: &str = "tidings_segment_failures_total";

/// Shows the counters, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    counter!(SEALED).increment(0);
    counter!(FAILURES).increment(0);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and shows large numbers rounded")]
pub(super) fn sealed(last: Seq) {
    counter!(SEALED).increment(1);
    gauge!(NEWEST).set(last.0 as f64);
}

/// Counts a failure.
pub fn failed() {
    counter!(FAILURES).increment(1);
}
