//! Sealed segments, as the journal notes them: spans of changes that were written to immutable files.

use super::{Journal, JournalError, command::Command, order::OrderTime, store::SegmentStore};
use crate::model::Seq;

/// Number of numbers in a span. Spans begin after its multiples, so the span of a change follows from its number.
pub const SPAN: u64 = 10_000;

/// A sealed segment: the changes of a closed span in a file that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// First number of the span.
    pub first: Seq,
    /// Number of the last change: less than the end of the span if a restore has skipped numbers.
    pub last: Seq,
    /// JSON: what is in the file, and how it is called.
    pub manifest: String,
}

/// Notes about spans of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanWrite {
    /// Notes the order time of the newest change whose number is at most `seq`, and forgets older ones.
    OrderTime {
        /// The number.
        seq: Seq,
        /// The order time.
        time: OrderTime,
        /// Number before which noted order times are removed.
        oldest: Seq,
    },
    /// Notes a sealed segment, or replaces what is noted about it.
    Segment(SegmentRecord),
    /// Removes what is noted about the segments that end before a number.
    RemoveSegments {
        /// The number.
        before: Seq,
    },
}

/// Returns the last number of the span that has this number.
#[must_use]
pub fn end_of_span(seq: Seq) -> Seq {
    Seq((seq.0.saturating_sub(1) / SPAN * SPAN).saturating_add(SPAN))
}

impl Journal {
    /// Returns up to `limit` sealed segments with a change after `after`, in the order of their numbers.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn segments_after(&self, after: Seq, limit: usize) -> Result<Vec<SegmentRecord>, JournalError> {
        self.read(move |store| store.segments_after(after, limit)).await
    }

    /// Returns the number of the last change of the newest sealed segment; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn newest_sealed(&self) -> Result<Option<Seq>, JournalError> {
        self.read(SegmentStore::newest_sealed).await
    }

    /// Notes or removes segments.
    ///
    /// # Errors
    /// Fails if the store fails, or this node has lost its duty.
    pub async fn write_span(&self, write: SpanWrite) -> Result<(), JournalError> {
        self.send(|reply| Command::WriteSpan(write, self.term, reply)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_from_the_numbers() {
        let ends = [1, 9_999, 10_000, 10_001, 20_000, u64::MAX].map(|seq| end_of_span(Seq(seq)).0);
        assert_eq!(ends, [10_000, 10_000, 10_000, 20_000, 20_000, u64::MAX]);
    }
}
