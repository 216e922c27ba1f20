//! Reads the journal as a list, for harvests whose records are changes of other sources.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Journal, JournalError, RecordedChange};
use crate::model::Seq;

/// Number of changes that are read at once.
const READ_CHANGES: usize = 256;

/// Wait between the first new change and the run, in which further changes arrive.
const GATHERING: Duration = Duration::from_millis(500);

/// Wait before the journal is read again after a failure.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Returns changes after a number, and moves the number to where the list continues if the journal does not have it any
/// more: before the changes that a failover has lost, or before the oldest change.
///
/// # Errors
/// Fails if the store fails.
pub async fn changes_after(
    journal: &Journal,
    after: &mut Seq,
) -> Result<(Vec<Arc<RecordedChange>>, Continuation), JournalError> {
    match journal.intact_after(*after, READ_CHANGES).await {
        Err(JournalError::Gone { .. }) => {
            let survived = journal.surviving(*after).await?;
            *after = if survived < *after { survived } else { Seq(journal.first().0.saturating_sub(1)) };
            Ok((journal.intact_after(*after, READ_CHANGES).await?, Continuation::Moved))
        }
        changes => Ok((changes?, Continuation::There)),
    }
}

/// Whether a list continues after the number that it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// After that number.
    There,
    /// After another number, because the journal does not have that one.
    Moved,
}

/// Waits until the journal has a relevant change after a number.
pub async fn wait_for_change(
    journal: &Journal,
    mut after: Seq,
    is_relevant: impl Fn(&RecordedChange) -> Result<bool, JournalError>,
) {
    let mut head = journal.watch();
    loop {
        head.mark_unchanged();
        match has_change(journal, &mut after, &is_relevant).await {
            Ok(true) => return sleep(GATHERING).await,
            Ok(false) => {
                if head.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
            // The run finds out where it continues.
            Err(JournalError::Gone { .. }) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot look for changes in the journal; retrying");
                sleep(READ_AGAIN).await;
            }
        }
    }
}

/// Looks for a relevant change, and moves `after` to the last other one before it.
async fn has_change(
    journal: &Journal,
    after: &mut Seq,
    is_relevant: &impl Fn(&RecordedChange) -> Result<bool, JournalError>,
) -> Result<bool, JournalError> {
    loop {
        let changes = journal.intact_after(*after, READ_CHANGES).await?;
        if changes.is_empty() {
            return Ok(false);
        }
        for change in changes {
            if is_relevant(&change)? {
                return Ok(true);
            }
            *after = change.seq();
        }
    }
}
