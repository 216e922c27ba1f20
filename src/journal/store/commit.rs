//! Outcomes of a commit.

use std::fmt;

use uuid::Uuid;

use super::StoreError;

/// Identifier of one commit, which the store writes in the same transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitId(Uuid);

impl CommitId {
    /// Creates a new identifier.
    pub(super) fn mint() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the identifier as a UUID.
    pub(super) const fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reasons why a commit did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written.
    #[error(transparent)]
    Failed(#[from] StoreError),
    /// The batch may be durable or not: the connection was lost before the answer, or a standby did not confirm the
    /// commit. [`Store::was_committed`](super::Store::was_committed) finds out.
    #[error("it is unknown whether the last batch was written: {1}")]
    Unknown(CommitId, StoreError),
}

/// For callers that do not find out the outcome.
impl From<CommitError> for StoreError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Failed(error) => error,
            unknown @ CommitError::Unknown(..) => Self::Unavailable(unknown.to_string()),
        }
    }
}
