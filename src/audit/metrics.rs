//! Metrics of audits.

use metrics::gauge;

use super::{AuditResult, DifferenceKind};
use crate::model::SourceName;

/// Metric name: number of differing items that the last complete audit has found, by kind.
pub const DIFFERENCES: &str = "tidings_audit_differences";

/// Metric name: time of the last complete audit, in seconds since 1970.
pub const LAST_COMPLETE: &str = "tidings_audit_last_complete_timestamp_seconds";

/// Shows the result of a complete audit.
#[expect(clippy::cast_precision_loss, reason = "numbers of items and milliseconds since 1970 are far below 2^52")]
pub(super) fn complete(source: &SourceName, result: &AuditResult) {
    let source = source.to_string();
    for kind in DifferenceKind::ALL {
        let number = match kind {
            DifferenceKind::Missing => result.missing,
            DifferenceKind::Different => result.different,
            DifferenceKind::Extra => result.extra,
        };
        gauge!(DIFFERENCES, "source" => source.clone(), "kind" => kind.name()).set(number as f64);
    }
    gauge!(LAST_COMPLETE, "source" => source).set(result.at.millis() as f64 / 1000.0);
}
