//! Gauges of facts that the status shows: room on the disk, size of the journal, and the ends of certificates and tokens.

use metrics::gauge;

use super::{StatusParts, soundings::Soundings};
use crate::web::Tls;

/// Metric name: room on the disk of the data folder, in bytes.
pub const DISK_FREE: &str = "tidings_disk_free_bytes";

/// Metric name: size of the disk of the data folder, in bytes.
pub const DISK_SIZE: &str = "tidings_disk_size_bytes";

/// Metric name: size of the files of the journal, in bytes.
pub const JOURNAL_SIZE: &str = "tidings_journal_size_bytes";

/// Metric name: end of the certificate of the gateway, in seconds since 1970.
pub const CERTIFICATE_END: &str = "tidings_certificate_expiry_timestamp_seconds";

/// Metric name: ends of the tokens, in seconds since 1970.
pub const TOKEN_END: &str = "tidings_token_expiry_timestamp_seconds";

/// Metric name: time of the last change of a source, in seconds since 1970.
pub const LAST_EVENT: &str = "tidings_source_last_event_timestamp_seconds";

/// Sets the gauges. Unknown facts have no series.
pub(super) fn set(parts: &StatusParts, soundings: &Soundings) {
    if let Some(disk) = soundings.disk {
        gauge!(DISK_FREE).set(exact(disk.free));
        gauge!(DISK_SIZE).set(exact(disk.size));
    }
    if let Some(bytes) = soundings.journal_bytes {
        gauge!(JOURNAL_SIZE).set(exact(bytes));
    }
    if let Some(end) = parts.tls.as_ref().and_then(Tls::expires) {
        gauge!(CERTIFICATE_END).set(seconds(end.timestamp()));
    }
    for (name, end) in parts.access.expiries() {
        gauge!(TOKEN_END, "token" => name.to_owned()).set(seconds(end.timestamp()));
    }
    for record in parts.sources.records().values() {
        let time = seconds(record.last_event.millis()) / 1000.0;
        gauge!(LAST_EVENT, "source" => record.source.to_string()).set(time);
    }
}

/// Ends the series of what the next gateway of this process may not have. A series cannot be removed, but a value that is no
/// number compares with nothing.
pub(super) fn end(parts: &StatusParts) {
    if parts.tls.is_some() {
        gauge!(CERTIFICATE_END).set(f64::NAN);
    }
    for (name, _) in parts.access.expiries() {
        gauge!(TOKEN_END, "token" => name.to_owned()).set(f64::NAN);
    }
}

#[expect(clippy::cast_precision_loss, reason = "no disk has 2⁵³ bytes")]
fn exact(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_precision_loss, reason = "no certificate ends 2⁵³ seconds after 1970")]
fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
}
