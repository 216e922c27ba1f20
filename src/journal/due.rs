//! Items whose visibility changes at an announced date.

use super::{
    Journal, JournalError,
    store::{DueStore, Store},
};
use crate::model::{SourceName, State, Timestamp, Uri, VisibilityDates};

/// An item with a date that has not become a change yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueItem {
    /// Position in the order of the dates.
    pub position: DuePosition,
    /// URI of the object.
    pub object: Uri,
    /// The dates; there is at least one.
    pub dates: VisibilityDates,
    /// State until then.
    pub state: Option<State>,
    /// Source of the object.
    pub source: SourceName,
    /// Time of the event that announced the dates.
    pub announced: Option<Timestamp>,
}

/// Position in the order of the dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePosition {
    /// The earlier date of the item.
    pub at: Timestamp,
    /// Number of the object in the store.
    pub object: u64,
    /// URI of the item.
    pub item: String,
}

/// Items of a source that have another date than the one that had come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedItems {
    /// The source.
    pub source: SourceName,
    /// Number of the items.
    pub items: u64,
    /// The first of them, by its URI.
    pub example: Uri,
}

impl DuePosition {
    /// The position before all dates that can be announced.
    pub const FIRST: Self = Self { at: Timestamp::EPOCH, object: 0, item: String::new() };
}

impl Journal {
    /// Returns up to `limit` items whose date has come at `now`, in the order of the dates.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<DueItem>, JournalError> {
        self.read(move |store| store.due(now, limit)).await
    }

    /// Returns up to `limit` items with dates after a position, in the order of the dates.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn due_after(&self, after: DuePosition, limit: usize) -> Result<Vec<DueItem>, JournalError> {
        self.read(move |store| store.due_after(&after, limit)).await
    }

    /// Returns the time by the clock that gives the times of receipt, and the dates come by.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn now(&self) -> Result<Timestamp, JournalError> {
        self.read(Store::now).await
    }

    /// Returns the earliest date.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, JournalError> {
        self.read(DueStore::next_due).await
    }

    /// Returns the items whose source has denied that their date had come, by source.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn denied_items(&self) -> Result<Vec<DeniedItems>, JournalError> {
        self.read(DueStore::denied).await
    }
}
