//! A page of changes that ends before a damaged change, for every store.

use super::{StoreError, StoredChange};

/// Page of changes that grows by one change at a time.
#[derive(Default)]
pub(super) struct ChangePage {
    changes: Vec<StoredChange>,
    /// Size of the JSON of the changes, in bytes.
    pub(super) bytes: usize,
}

impl ChangePage {
    /// Returns whether the page has no change.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds a change that was read; returns `false` if the page ends before it, because it is damaged. Its reader gets
    /// the error with the next page.
    ///
    /// # Errors
    /// Fails if the first change of the page is damaged, or the read failed for another reason.
    pub(super) fn add(&mut self, read: Result<StoredChange, StoreError>) -> Result<bool, StoreError> {
        match read {
            Ok(change) => {
                self.bytes = self.bytes.saturating_add(change.json.len());
                self.changes.push(change);
                Ok(true)
            }
            Err(StoreError::DamagedChange { .. } | StoreError::Damaged(_)) if !self.is_empty() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the changes.
    pub(super) fn into_changes(self) -> Vec<StoredChange> {
        self.changes
    }
}
