//! What the journal counts and measures, by the facade of the `metrics` crate: where nothing
//! listens, as on the command line, it costs next to nothing.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use super::{JournalError, quarantine::QuarantineSize, store::StoreError};
use crate::model::Seq;

/// The number of the newest change.
pub const HEAD: &str = "tidings_journal_head";

/// The time of an append from its order until it was on disk, in seconds.
pub const APPEND_SECONDS: &str = "tidings_append_duration_seconds";

/// The time of one transaction of the writer, in seconds.
pub const TRANSACTION_SECONDS: &str = "tidings_append_transaction_duration_seconds";

/// How many events went into one transaction.
pub const BATCH: &str = "tidings_append_batch_events";

/// Reads of changes by number, from memory (`hit`) or from disk (`miss`).
pub const TAIL_READS: &str = "tidings_tail_reads_total";

/// Calls that the journal could not carry out.
pub const FAILURES: &str = "tidings_journal_failures_total";

/// How many messages the quarantine holds.
pub const QUARANTINE_MESSAGES: &str = "tidings_quarantine_messages";

/// How many bytes of bodies the quarantine holds.
pub const QUARANTINE_BYTES: &str = "tidings_quarantine_bytes";

/// Messages that the quarantine dropped to make room.
pub const QUARANTINE_DROPPED: &str = "tidings_quarantine_dropped_total";

/// A gauge is a double: exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "no journal and no quarantine holds 2⁵³ of anything")]
fn exact(number: u64) -> f64 {
    number as f64
}

pub(super) fn head(head: Seq) {
    gauge!(HEAD).set(exact(head.0));
}

pub(super) fn appended(took: Duration) {
    histogram!(APPEND_SECONDS).record(took);
}

pub(super) fn batch(events: usize, took: Duration) {
    histogram!(BATCH).record(exact(events as u64));
    histogram!(TRANSACTION_SECONDS).record(took);
}

/// Counts a reader that found its changes in the tail, or did not.
pub fn tail_read(hit: bool) {
    counter!(TAIL_READS, "result" => if hit { "hit" } else { "miss" }).increment(1);
}

pub(super) fn quarantined(size: QuarantineSize) {
    gauge!(QUARANTINE_MESSAGES).set(exact(size.messages));
    gauge!(QUARANTINE_BYTES).set(exact(size.bytes));
}

pub(super) fn dropped(messages: u64) {
    if messages > 0 {
        tracing::warn!(messages, "the quarantine is full: its oldest messages were dropped");
    }
    counter!(QUARANTINE_DROPPED).increment(messages);
}

pub(super) fn failed(error: &JournalError) {
    let reason = match error {
        JournalError::Store(StoreError::Full) => "full",
        JournalError::Store(StoreError::ReadOnly(_)) => "read-only",
        JournalError::Store(StoreError::Io(_)) => "io",
        JournalError::Store(StoreError::Unavailable(_)) => "unavailable",
        JournalError::Store(StoreError::Damaged(_)) => "damaged",
        JournalError::Store(StoreError::Refused(_)) => "refused",
        JournalError::Busy(_) => "busy",
        JournalError::Closed => "closed",
        // The reader's place is gone, and the journal has not failed.
        JournalError::Gone { .. } => return,
    };
    counter!(FAILURES, "reason" => reason).increment(1);
}
