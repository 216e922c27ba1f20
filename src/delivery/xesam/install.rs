//! Decision of a request: changes after the crawler's time, or everything.

use super::pages::{Pages, Position};
use crate::{
    journal::{Journal, JournalError},
    model::{Seq, Timestamp},
};

const MILLIS_PER_SECOND: i64 = 1000;

/// Records that a crawler gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The changes received at `not_before` or later, which are after this position.
    Changes {
        /// Position in the journal.
        from: Position,
        /// Beginning of the second that the crawler asked for.
        not_before: Timestamp,
    },
    /// The registry with all changes up to this head, and then the changes after it.
    Full {
        /// Head of the journal.
        head: Seq,
    },
}

impl Plan {
    /// Decides without counting or scanning anything. A crawler gets everything if it asks for everything, or if the
    /// journal may lack changes after its time: those that retention has removed, or a restore has lost.
    ///
    /// # Errors
    /// As [`Journal::after`].
    pub(super) async fn of(pages: &Pages, mtime: u64) -> Result<Self, JournalError> {
        let journal = pages.journal();
        let head = journal.head();
        let full = Self::Full { head };
        let millis = i64::try_from(mtime).ok().and_then(|seconds| seconds.checked_mul(MILLIS_PER_SECOND));
        let not_before = millis.and_then(Timestamp::from_millis);
        let Some(not_before) = not_before else {
            // No change will ever be that new.
            let end_of_time = Timestamp::from_datetime(chrono::DateTime::<chrono::Utc>::MAX_UTC);
            return Ok(Self::Changes { from: Position::at(head), not_before: end_of_time });
        };
        if mtime == 0 || lacks_changes(journal, not_before).await? {
            return Ok(full);
        }
        let from = pages.since(not_before).await?.map(|(from, _)| from);
        // Otherwise the next record that it gets is the first of its second.
        Ok(Self::Changes { from: from.unwrap_or(Position::at(head)), not_before })
    }
}

/// Returns whether the journal may lack changes that were received since the second that begins at `since`.
async fn lacks_changes(journal: &Journal, since: Timestamp) -> Result<bool, JournalError> {
    let first = journal.first();
    // If the oldest change is from before, no change after it has been removed.
    if first > Seq::ZERO.next() && received(journal, first).await?.is_none_or(|oldest| oldest >= since) {
        return Ok(true);
    }
    for (given, skipped) in journal.skipped_ranges().iter().filter(|(_, skipped)| *skipped >= first) {
        // The lost changes were received after the newest one that remains, and before the first one after the loss.
        let newest = received(journal, *given).await?;
        let next = received(journal, skipped.next()).await?;
        let second_ends_after_newest =
            newest.is_none_or(|newest| newest.millis() < since.millis().saturating_add(MILLIS_PER_SECOND));
        if second_ends_after_newest && next.is_none_or(|next| since <= next) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the time of receipt of the change with a number; `None` if the journal does not have it.
async fn received(journal: &Journal, seq: Seq) -> Result<Option<Timestamp>, JournalError> {
    let newest = journal.before_within(seq.next(), 1, 1).await?.pop().filter(|newest| newest.seq() == seq);
    Ok(newest.map(|newest| newest.change().map(|change| change.received)).transpose()?)
}
