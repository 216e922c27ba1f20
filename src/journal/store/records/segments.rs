//! The table `segments`: spans of changes that are sealed in files.

use super::{RecordWrite, Records, Statement, StoreError, order, read_all, read_one, statements, values};
use crate::{
    journal::{
        nodes::Term,
        segments::{SegmentRecord, SpanWrite},
    },
    model::Seq,
};

statements! {
    /// A span that has a change after `$2` begins after `$1`, the multiple of its length before that.
    AFTER = "SELECT first, last, manifest FROM segments WHERE first > $1 AND last > $2 ORDER BY first LIMIT $3";
    NEWEST = "SELECT last FROM segments ORDER BY first DESC LIMIT 1";
    WRITE = "INSERT INTO segments (first, last, manifest) VALUES ($1, $2, $3)
        ON CONFLICT (first) DO UPDATE SET (last, manifest) = (excluded.last, excluded.manifest)";
    REMOVE = "DELETE FROM segments WHERE last < $1";
}

/// Sealed segments.
pub trait SegmentStore: Records {
    /// Returns up to `limit` segments with a change after `after`, in the order of their numbers.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn segments_after(&self, after: Seq, limit: usize) -> Result<Vec<SegmentRecord>, StoreError> {
        let begin = after.0 - after.0 % crate::journal::segments::SPAN;
        read_all(self, &[Statement::new(AFTER, values![begin, after, limit])], |row| {
            Ok(SegmentRecord { first: row.seq(0)?, last: row.seq(1)?, manifest: row.text(2)?.to_owned() })
        })
    }

    /// Returns the number of the last change of the newest segment.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn newest_sealed(&self) -> Result<Option<Seq>, StoreError> {
        read_one(self, Statement::new(NEWEST, []), |row| row.seq(0))
    }

    /// Writes about spans, under the term of a duty.
    ///
    /// # Errors
    /// Fails if the storage fails or the term has ended; then nothing was written.
    fn write_span(&self, write: &SpanWrite, term: Option<Term>) -> Result<(), StoreError> {
        let statements = match write {
            SpanWrite::OrderTime { seq, time, oldest } => vec![order::note(*seq, *time), order::forget(*oldest)],
            SpanWrite::Segment(SegmentRecord { first, last, manifest }) => {
                vec![Statement::new(WRITE, values![*first, *last, manifest])]
            }
            SpanWrite::RemoveSegments { before } => vec![Statement::new(REMOVE, values![*before])],
        };
        self.execute(&RecordWrite { statements, term, ..RecordWrite::default() }).map(drop)
    }
}

impl<S: Records + ?Sized> SegmentStore for S {}
