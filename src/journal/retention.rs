//! How long changes are kept: by age and by count, in the background.
//!
//! A change goes when it is older than the age, or when as many newer ones have come as the count
//! says, whichever is first: either bounds the journal by itself. The registry, the numbering, the
//! quarantine and the newest change stay.
//!
//! The application runs [`Retention::run`] beside the gateway. It removes a few changes at a time by
//! the journal's writer, in between the batches of those who append, and pauses for as long as each
//! time took, so that the writer has at least half of its time for appends.

use std::time::{Duration, Instant};

use super::{Journal, JournalError};
use crate::model::{Seq, Timestamp};

/// How many changes go in one transaction.
const AT_ONCE: usize = 200;

/// How long to wait at least before looking again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long to wait at most, since changes grow old by themselves.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// What is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The age at which a change goes, in days of the gateway's own clock; `None` for never.
    pub days: Option<u32>,
    /// How many changes are kept at the most; `None` for all.
    pub changes: Option<u64>,
}

impl Retention {
    /// Removes what need not be kept, for ever. Dropping it stops it.
    ///
    /// A journal that cannot be written at present is tried again; the log says why.
    pub async fn run(self, journal: Journal) {
        if self == Self::default() {
            return;
        }
        let mut head = journal.watch();
        loop {
            match self.enforce(&journal, Timestamp::now()).await {
                Ok(0) => {}
                Ok(removed) => tracing::debug!(removed, first = %journal.first(), "old changes were removed"),
                Err(error) => tracing::warn!(%error, "old changes could not be removed; trying again"),
            }
            tokio::time::sleep(PAUSE).await;
            // Whether the head moves or not, time does.
            let _ = tokio::time::timeout(LONGEST_PAUSE, head.changed()).await;
        }
    }

    /// Removes everything that need not be kept as of `now`; says how many changes went.
    ///
    /// # Errors
    /// When the journal cannot be read or written.
    pub async fn enforce(&self, journal: &Journal, now: Timestamp) -> Result<usize, JournalError> {
        let before = self.kept_from(journal, now).await?;
        let mut removed = 0;
        while before > journal.first() {
            let began = Instant::now();
            match journal.prune(before, AT_ONCE).await? {
                0 => break,
                changes => removed += changes,
            }
            tokio::time::sleep(began.elapsed()).await;
        }
        Ok(removed)
    }

    /// The first number that is to be kept.
    async fn kept_from(&self, journal: &Journal, now: Timestamp) -> Result<Seq, JournalError> {
        let by_count = match self.changes {
            Some(changes) => journal.first_of_newest(changes).await?.unwrap_or_default(),
            None => Seq::ZERO,
        };
        let Some(days) = self.days else { return Ok(by_count) };
        let oldest = now.millis().saturating_sub(i64::from(days) * MILLIS_PER_DAY);
        let Some(oldest) = Timestamp::from_millis(oldest) else { return Ok(by_count) };
        let by_age = journal.first_since(oldest).await?.unwrap_or(journal.head());
        Ok(by_count.max(by_age))
    }
}
