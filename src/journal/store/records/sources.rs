//! The table `sources`: the times of the events of each source.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Records, Statement, StoreError, WriteBatch, read_all, statements,
    value::{Cells, values},
};
use crate::{
    journal::sources::SourceRecord,
    model::{SourceName, Timestamp},
};

/// Length of a week, in milliseconds.
const WEEK_MILLIS: i64 = 7 * 24 * 60 * 60 * 1000;

statements! {
    ALL = "SELECT source, first_event, last_event, longest_pause, earlier_pause FROM sources ORDER BY source";
    /// Notes an event at the time `$2`, in the week `$3`. Nodes write in the order of their clocks or nearly so; a time
    /// before the last one ends no pause.
    NOTE_EVENT = "INSERT INTO sources VALUES ($1, $2, $2, $3, 0, 0) ON CONFLICT (source) DO UPDATE SET
            last_event = CASE WHEN sources.last_event > excluded.last_event THEN sources.last_event
                ELSE excluded.last_event END,
            week = CASE WHEN sources.week > excluded.week THEN sources.week ELSE excluded.week END,
            longest_pause = CASE
                WHEN sources.week >= excluded.week
                    AND sources.longest_pause >= excluded.last_event - sources.last_event THEN sources.longest_pause
                ELSE excluded.last_event - sources.last_event END,
            earlier_pause = CASE
                WHEN sources.week >= excluded.week THEN sources.earlier_pause
                WHEN sources.week + 1 = excluded.week THEN sources.longest_pause
                ELSE 0 END";
}

/// Times of the events of sources.
pub trait SourceStore: Records {
    /// Returns the times of the events of all sources that have made a change, by name.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn sources(&self) -> Result<Vec<SourceRecord>, StoreError> {
        read_all(self, &[Statement::new(ALL, [])], read)
    }
}

impl<S: Records + ?Sized> SourceStore for S {}

fn read(row: Cells<'_>) -> Result<SourceRecord, StoreError> {
    let (longest, earlier) = (row.unsigned(3)?, row.unsigned(4)?);
    Ok(SourceRecord {
        source: row.source(0)?,
        first_event: row.time(1)?,
        last_event: row.time(2)?,
        longest_pause: Duration::from_millis(longest.max(earlier)),
    })
}

/// Returns the statements that note the events of the changes of a batch, one for each source.
pub(super) fn note_events(batch: &WriteBatch) -> impl Iterator<Item = Statement<'_>> {
    // In order of the names, so that two nodes lock the rows in the same order.
    let sources: BTreeSet<&SourceName> =
        batch.changes.iter().map(|change| &change.change.modification.origin.source).collect();
    let (received, week) = (batch.received, week_of(batch.received));
    sources.into_iter().map(move |source| Statement::new(NOTE_EVENT, values![source, received, week]))
}

/// Returns the number of the week of a time.
fn week_of(time: Timestamp) -> i64 {
    time.millis().div_euclid(WEEK_MILLIS)
}
