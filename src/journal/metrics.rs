//! Metrics of the journal, recorded through the `metrics` crate. Without a recorder, as on the command line, they
//! cost next to nothing.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use super::{JournalError, quarantine::QuarantineSize, store::StoreError};
use crate::model::Seq;

/// Gauge: number of the newest change.
pub const HEAD: &str = "tidings_journal_head";

/// Histogram: time from the command to append until the changes were on disk, in seconds.
pub const APPEND_SECONDS: &str = "tidings_append_duration_seconds";

/// Histogram: duration of one transaction of the writer, in seconds.
pub const TRANSACTION_SECONDS: &str = "tidings_append_transaction_duration_seconds";

/// Histogram: number of events in one transaction.
pub const BATCH: &str = "tidings_append_batch_events";

/// Counter: reads of changes by number, from memory (`hit`) or from disk (`miss`).
pub const TAIL_READS: &str = "tidings_tail_reads_total";

/// Counter: calls that the journal could not execute.
pub const FAILURES: &str = "tidings_journal_failures_total";

/// Gauge: number of messages in the quarantine.
pub const QUARANTINE_MESSAGES: &str = "tidings_quarantine_messages";

/// Gauge: size of the message bodies in the quarantine, in bytes.
pub const QUARANTINE_BYTES: &str = "tidings_quarantine_bytes";

/// Counter: messages that the quarantine dropped to make room.
pub const QUARANTINE_DROPPED: &str = "tidings_quarantine_dropped_total";

/// Counter: events whose object or item keeps the spelling that an earlier version gave it.
pub const FORMER_SPELLINGS: &str = "tidings_former_spellings_total";

/// Converts a number to a gauge value, a double that is exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "no count of the journal or the quarantine reaches 2⁵³")]
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

/// Counts a read of changes, from the tail (`hit`) or from disk.
pub fn tail_read(hit: bool) {
    counter!(TAIL_READS, "result" => if hit { "hit" } else { "miss" }).increment(1);
}

pub(super) fn quarantined(size: QuarantineSize) {
    gauge!(QUARANTINE_MESSAGES).set(exact(size.messages));
    gauge!(QUARANTINE_BYTES).set(exact(size.bytes));
}

pub(super) fn dropped(messages: u64) {
    if messages > 0 {
        tracing::warn!(messages, "the quarantine is full; dropped its oldest messages");
    }
    counter!(QUARANTINE_DROPPED).increment(messages);
}

named_values! {
    /// Reason of a failed call.
    #[derive(Clone, Copy, Debug)]
    enum FailureReason {
        Full = "full",
        ReadOnly = "read-only",
        Io = "io",
        Displaced = "displaced",
        Unavailable = "unavailable",
        DutyLost = "duty-lost",
        Missing = "missing",
        Damaged = "damaged",
        Refused = "refused",
        Busy = "busy",
        Closed = "closed",
    }
}

/// Shows the series of all counters, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    for reason in FailureReason::ALL {
        counter!(FAILURES, "reason" => reason.name()).increment(0);
    }
    counter!(QUARANTINE_DROPPED).increment(0);
    counter!(FORMER_SPELLINGS).increment(0);
    for result in ["hit", "miss"] {
        counter!(TAIL_READS, "result" => result).increment(0);
    }
}

pub(super) fn failed(error: &JournalError) {
    let reason = match error {
        JournalError::Store(StoreError::Full) => FailureReason::Full,
        JournalError::Store(StoreError::ReadOnly(..)) => FailureReason::ReadOnly,
        JournalError::Store(StoreError::Io(_)) => FailureReason::Io,
        JournalError::Store(StoreError::Displaced(_)) => FailureReason::Displaced,
        JournalError::Store(StoreError::Unavailable(_)) => FailureReason::Unavailable,
        JournalError::Store(StoreError::DutyLost) => FailureReason::DutyLost,
        JournalError::Store(StoreError::Missing(_)) => FailureReason::Missing,
        JournalError::Store(
            StoreError::DamagedChange { .. } | StoreError::DamagedObject { .. } | StoreError::Damaged(_),
        ) => FailureReason::Damaged,
        JournalError::Store(StoreError::TooLarge(_) | StoreError::Refused(_)) => FailureReason::Refused,
        JournalError::Busy(_) => FailureReason::Busy,
        JournalError::Closed => FailureReason::Closed,
        // An outdated cursor is no failure of the journal.
        JournalError::Gone { .. } => return,
    };
    counter!(FAILURES, "reason" => reason.name()).increment(1);
}
