//! Changes that come due: at a date that a source has announced, the visibility of an item changes, although the source sends
//! no event.
//!
//! The registry has the dates, and settling decides whether a date has come and is still announced, in the transaction
//! that also removes it. So a date makes one change at most, whoever submits it and however often, before and after a crash.
//! A worker on one node submits them in time.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    journal::{DraftOutcome, DuplicatePolicy, Journal, JournalError, Submission, due::DueItem, settle::SourcePolicy},
    model::{
        Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, NonEmpty, Reading, Text, Timestamp, Uri,
        User,
    },
};

/// Maximum number of items in a transaction.
const PAGE: usize = 500;

/// Pause after a failure, and between two looks at the dates because of new changes.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause between two looks at the dates, because a clock that is set forward wakes nobody.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Appends the changes that come due, until `stop` is cancelled.
pub async fn append_due_changes(journal: Journal, stop: CancellationToken) {
    let _ = stop.run_until_cancelled(run(&journal)).await;
}

async fn run(journal: &Journal) {
    let mut head = journal.watch();
    loop {
        head.mark_unchanged();
        let pause = append_due(journal).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot append the changes that have come due; retrying");
            SHORT_PAUSE
        });
        // A new change may have an earlier date.
        let new_dates = async {
            match head.changed().await {
                Ok(()) => sleep(SHORT_PAUSE).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = new_dates => {}
        }
    }
}

/// Appends the changes whose dates have come; returns the time until the next look.
async fn append_due(journal: &Journal) -> Result<Duration, JournalError> {
    loop {
        let now = journal.now().await?;
        let due = journal.due(now, PAGE).await?;
        if due.is_empty() {
            break;
        }
        let outcomes = journal.append_all(submissions(&due, now)).await?;
        let accepted = outcomes.iter().flatten().filter(|outcome| matches!(outcome, DraftOutcome::Accepted { .. }));
        match accepted.count() {
            // The clock was set back meanwhile, or the second date of all these items has come.
            0 => return Ok(SHORT_PAUSE),
            changes => tracing::info!(changes, "announced changes of visibility have come due"),
        }
    }
    let next = journal.next_due().await?;
    Ok(pause_until(next, journal.now().await?))
}

/// Returns the time until the next look at the dates.
fn pause_until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let left = next.map(|next| u64::try_from(next.millis().saturating_sub(now.millis())).unwrap_or(0));
    left.map_or(LONGEST_PAUSE, |left| Duration::from_millis(left).min(LONGEST_PAUSE))
}

/// Returns a submission for each object and date that has come at `now`. If both dates of an item have come, the second one
/// makes its change.
fn submissions(due: &[DueItem], now: Timestamp) -> Vec<Submission> {
    let same = |one: &DueItem, other: &DueItem| {
        (&one.object, one.dates.latest_come(now)) == (&other.object, other.dates.latest_come(now))
    };
    due.chunk_by(same).filter_map(|due| submission(due, now)).collect()
}

fn submission(due: &[DueItem], now: Timestamp) -> Option<Submission> {
    let DueItem { object, source, dates, .. } = due.first()?;
    let at = dates.latest_come(now)?;
    let items = due.iter().filter_map(|item| Uri::parse(&item.position.item).ok());
    let items = NonEmpty::try_from(items.map(|uri| DraftItem::new(uri, DraftChange::Due)).collect::<Vec<_>>()).ok()?;
    let draft = Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::unknown(),
        time: DraftTime::Due(at),
        object: object.clone(),
        parent: None,
        types: Vec::new(),
        description: Text::new("an announced date has come"),
        report: None,
        items: DraftItems::Listed(items),
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    };
    Some(Submission {
        policy: Arc::new(SourcePolicy { name: source.clone(), metadata_changes: false }),
        drafts: vec![(None, draft)],
        duplicate_policy: DuplicatePolicy::RememberChanges,
        completes: None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Duration, Timestamp, pause_until};

    #[test]
    fn worker_looks_at_the_next_date_and_every_ten_seconds() {
        let at = |millis| Timestamp::from_millis(millis).unwrap();
        for (next, expected) in [(None, 10_000), (Some(900), 0), (Some(1_700), 700), (Some(99_999_999), 10_000)] {
            assert_eq!(pause_until(next.map(at), at(1_000)), Duration::from_millis(expected), "{next:?}");
        }
    }
}
