//! Retention: removal of old changes by age and by count, in the background.
//!
//! A change is removed when it exceeds the maximum age or when there are more newer changes than the maximum count,
//! whichever happens first. The registry, the numbering, the quarantine and the newest change stay.
//!
//! The application runs [`Retention::run`] beside the gateway. It removes a few changes at a time through the journal's
//! writer, between the batches of appends, and pauses after each removal for as long as the removal took. The writer
//! therefore has at least half of its time for appends.

use std::time::{Duration, Instant};

use super::{Journal, JournalError};
use crate::model::{Seq, Timestamp};

/// Number of changes to remove in one transaction.
const CHANGES_PER_TRANSACTION: usize = 200;

/// Minimum pause between two checks.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause between two checks, because changes exceed the maximum age without any event.
const MAX_PAUSE: Duration = Duration::from_secs(60);

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Limits on the changes to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age of a change, in days by the gateway's clock; `None` for no limit.
    pub days: Option<u32>,
    /// Maximum number of changes; `None` for no limit.
    pub changes: Option<u64>,
    /// Whether changes stay until a sealed segment has them, although they exceed the limits.
    pub only_sealed: bool,
}

impl Retention {
    /// Removes changes beyond the limits until the future is dropped.
    ///
    /// After a failure the removal is retried; the log contains the reason.
    pub async fn run(self, journal: Journal) {
        if self.days.is_none() && self.changes.is_none() {
            return;
        }
        let mut head = journal.watch();
        loop {
            match self.enforce(&journal, Timestamp::now()).await {
                Ok(0) => {}
                Ok(removed) => tracing::debug!(removed, first = %journal.first(), "removed old changes"),
                Err(error) if error.is_outage() => tracing::debug!(%error, "cannot remove old changes; retrying"),
                Err(error) => tracing::warn!(%error, "cannot remove old changes; retrying"),
            }
            tokio::time::sleep(MIN_PAUSE).await;
            // Changes grow older even if the head does not move.
            let _ = tokio::time::timeout(MAX_PAUSE, head.changed()).await;
        }
    }

    /// Removes all changes beyond the limits as of `now`; returns the number of removed changes.
    ///
    /// # Errors
    /// Fails if the journal cannot be read or written.
    pub async fn enforce(&self, journal: &Journal, now: Timestamp) -> Result<usize, JournalError> {
        let before = self.oldest_to_keep(journal, now).await?;
        let mut removed = 0;
        while before > journal.first() {
            let began = Instant::now();
            let Some(last) = journal.note_removal(before, CHANGES_PER_TRANSACTION).await? else { break };
            match journal.prune(last.next(), CHANGES_PER_TRANSACTION).await? {
                0 => break,
                changes => removed += changes,
            }
            tokio::time::sleep(began.elapsed()).await;
        }
        Ok(removed)
    }

    /// Returns the number of the oldest change to keep.
    async fn oldest_to_keep(&self, journal: &Journal, now: Timestamp) -> Result<Seq, JournalError> {
        let by_count = match self.changes {
            Some(changes) => journal.first_of_newest(changes).await?.unwrap_or_default(),
            None => Seq::ZERO,
        };
        let oldest = self.days.map(|days| now.millis().saturating_sub(i64::from(days) * MILLIS_PER_DAY));
        let by_age = match oldest.and_then(Timestamp::from_millis) {
            Some(oldest) => journal.first_since(oldest).await?.unwrap_or(journal.head()),
            None => Seq::ZERO,
        };
        let before = by_count.max(by_age);
        if !self.only_sealed {
            return Ok(before);
        }
        let sealed = journal.newest_sealed().await?.unwrap_or_default();
        Ok(before.min(sealed.next()))
    }
}
