//! Metrics of audits.

use metrics::gauge;

use super::{AuditReport, DifferenceKind};
use crate::model::SourceName;

/// Metric name: number of differing items that the last complete audit has found, by kind.
pub const DIFFERENCES: &str = "tidings_audit_differences";

/// Metric name: time of the last complete audit, in seconds since 1970.
pub const LAST_COMPLETE: &str = "tidings_audit_last_complete_timestamp_seconds";

/// Shows the result of a complete audit.
pub(super) fn complete(source: &SourceName, report: &AuditReport) {
    let is_corrected = report.repair && report.reason.is_none();
    for kind in DifferenceKind::ALL {
        let number = match kind {
            _ if is_corrected => 0,
            DifferenceKind::Missing => report.missing,
            DifferenceKind::Different => report.different,
            DifferenceKind::Extra => report.extra,
        };
        #[expect(clippy::cast_precision_loss, reason = "numbers of items are far below 2^52")]
        gauge!(DIFFERENCES, "source" => source.to_string(), "kind" => kind.name()).set(number as f64);
    }
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^52")]
    gauge!(LAST_COMPLETE, "source" => source.to_string()).set(report.updated.millis() as f64 / 1000.0);
}
