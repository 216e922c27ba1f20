//! Transactions: purges, which the journal may have divided into several changes
//! ([`ChangeBounds`](crate::journal::ChangeBounds)).
//!
//! The parts follow each other in one batch. All have the facts of the purge, each deletes some of the items, and the
//! last one purges the object. The transaction is named by the number of the last part, so it depends only on the changes
//! from its own on, and stays when retention removes its beginning.

use sha2::{Digest, Sha256};

use crate::{
    journal::{Journal, JournalError, store::StoreError},
    model::{Change, ChangeType, Seq},
    view::{MAX_EXAMINED_BYTES, PIECE_BYTES, block_on, journal_problem},
    web::Problem,
};

/// Number of changes that are read at once. Most of them are large.
const READ_PARTS: usize = 4;

/// Maximum number of changes after a page in which the end of a transaction is searched.
const MAX_PARTS: usize = 1000;

/// What a change has of a divided purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PurgePart {
    seq: Seq,
    /// Digest of the facts that all parts share.
    purge: [u8; 16],
    /// Whether this is the last part, which purges the object.
    is_last: bool,
}

impl PurgePart {
    /// Returns what a change can be of a divided purge; `None` if it does anything else than to delete items.
    pub(super) fn of(change: &Change) -> Option<Self> {
        let modification = &change.modification;
        let deletes = modification.items.iter().all(|item| item.change.change_type() == Some(ChangeType::Delete));
        if !deletes {
            return None;
        }
        let event = modification.origin.event_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let times = [change.received, modification.time].map(|time| time.millis().to_be_bytes());
        let mut digest = Sha256::new().chain_update(times[0]).chain_update(times[1]);
        for text in [modification.object.as_str(), modification.origin.source.as_str(), &event] {
            digest = digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text);
        }
        let mut purge = [0; 16];
        purge.copy_from_slice(&digest.finalize()[..16]);
        Some(Self { seq: change.seq, purge, is_last: change.settlement.purge })
    }

    /// Returns whether this part purges the object.
    pub(super) fn is_last(self) -> bool {
        self.is_last
    }

    /// Returns whether this is the change with a number.
    pub(super) fn is_at(self, seq: Seq) -> bool {
        self.seq == seq
    }

    /// Returns whether another part is the one after this.
    fn precedes(self, other: Self) -> bool {
        !self.is_last && self.purge == other.purge && self.seq.next() == other.seq
    }
}

/// Returns the last part of the transaction of each change of a page, if it belongs to one. `end` is the last part of the
/// transaction that continues after the page.
pub(super) fn transactions(parts: &[Option<PurgePart>], end: Option<Seq>) -> Vec<Option<Seq>> {
    let mut ends = vec![None; parts.len()];
    let mut following: Option<(PurgePart, Seq)> = None;
    for (at, part) in parts.iter().enumerate().rev() {
        let of_following = |part: PurgePart| following.filter(|(next, _)| part.precedes(*next)).map(|(_, end)| end);
        following = part.and_then(|part| {
            let end = if part.is_last {
                Some(part.seq)
            } else {
                of_following(part).or(end.filter(|_| at + 1 == parts.len()))
            };
            end.map(|end| (part, end))
        });
        ends[at] = following.map(|(_, end)| end);
    }
    ends
}

/// Returns the number of the last part of the purge that a part belongs to, which is on a later page; `None` if it belongs to
/// none, has too many parts, or one of them is damaged: a damaged change costs no page but its own.
///
/// # Errors
/// Fails if the journal cannot be read.
pub(super) fn end_after(journal: &Journal, mut part: PurgePart) -> Result<Option<Seq>, Problem> {
    let (mut examined, mut bytes) = (0, 0);
    while examined < MAX_PARTS && bytes < MAX_EXAMINED_BYTES {
        let read = match block_on(journal.after_within(part.seq, READ_PARTS, PIECE_BYTES)) {
            Err(JournalError::Store(StoreError::DamagedChange { .. })) => return Ok(None),
            read => read.map_err(journal_problem)?,
        };
        if read.is_empty() {
            return Ok(None);
        }
        for change in read {
            let change = change.without_caches();
            let next = change.change().ok().and_then(PurgePart::of);
            let Some(next) = next.filter(|next| part.precedes(*next)) else { return Ok(None) };
            if next.is_last {
                return Ok(Some(next.seq));
            }
            part = next;
            examined += 1;
            bytes += change.json().len();
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{PurgePart, Seq, transactions};

    /// Part of a purge with a name; the last one if the name is in upper case, and no part if it is a dot.
    fn part(seq: u64, name: char) -> Option<PurgePart> {
        let purge = [name.to_ascii_lowercase() as u8; 16];
        (name != '.').then_some(PurgePart { seq: Seq(seq), purge, is_last: name.is_ascii_uppercase() })
    }

    #[test]
    fn parts_of_a_purge_are_named_by_the_last_one() {
        for (page, end, expected) in [
            ("", None, vec![]),
            ("aA", None, vec![12, 12]),
            (".aaA.", None, vec![0, 14, 14, 14, 0]),
            // Purges with one part, deletions that are no purge, and other purges beside them.
            ("A.aab", None, vec![11, 0, 0, 0, 0]),
            ("AAbAaB", None, vec![11, 12, 0, 14, 0, 16]),
            ("aAbB", None, vec![12, 12, 14, 14]),
            // Across the ends of a page.
            ("A.", None, vec![11, 0]),
            (".aa", Some(20), vec![0, 20, 20]),
            ("a", Some(20), vec![20]),
        ] {
            let parts: Vec<_> = page.chars().zip(11..).map(|(name, seq)| part(seq, name)).collect();
            let ends = transactions(&parts, end.map(Seq));
            let ends: Vec<_> = ends.into_iter().map(|end| end.map_or(0, |end| end.0)).collect();
            assert_eq!(ends, expected, "{page}");
        }
    }
}
