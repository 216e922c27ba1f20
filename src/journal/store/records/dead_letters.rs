//! The table `dead_letters`: changes that a receiver refused for good.

use bytes::Bytes;

use super::{
    Records, Statement, StoreError, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::{
        store::rows,
        subscriptions::{DeadLetter, DeadLetterId, DeadLetterNote, NewDeadLetter},
    },
    model::{Seq, SubscriptionName, Text, Timestamp},
};

statements! {
    BEFORE = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters
        WHERE subscription = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    REPLAYS = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters
        WHERE subscription = $1 AND id > $2 AND replay = $3 ORDER BY id LIMIT $4";
    ONE = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters WHERE subscription = $1 AND id = $2";
    OF_CHANGE = "SELECT subscription, id, refused, reason FROM dead_letters WHERE seq = $1 AND attempts > 0 ORDER BY id";
    ADD = "INSERT INTO dead_letters (subscription, seq, refused, reason, attempts, replay, json)
        VALUES ($1, $2, $3, $4, 1, $5, $6)";
    REPEAT = "INSERT INTO dead_letters (subscription, seq, refused, reason, attempts, replay, json)
        VALUES ($1, $2, $3, $4, 0, $5, $6)";
    REPLAY = "UPDATE dead_letters SET replay = $3 WHERE subscription = $1 AND id = coalesce($2, id)";
    REFUSE = "UPDATE dead_letters SET replay = $5, attempts = attempts + 1, reason = $3, refused = $4
        WHERE subscription = $1 AND id = $2";
    DROP = "DELETE FROM dead_letters WHERE subscription = $1 AND id = coalesce($2, id)";
}

/// Dead letters. [`write_subscriptions`](super::SubscriptionStore::write_subscriptions) modifies them.
pub trait DeadLetterStore: Records {
    /// Returns up to `limit` dead letters of a subscription before `before` (from the newest if `None`), newest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn dead_letters(
        &self,
        subscription: &SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let bound = before.map_or(u64::MAX, |id| id.0);
        read_all(self, &[Statement::new(BEFORE, values![subscription, bound, limit])], read)
    }

    /// Returns one dead letter of a subscription.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn dead_letter(&self, subscription: &SubscriptionName, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError> {
        read_one(self, Statement::new(ONE, values![subscription, id.0]), read)
    }

    /// Returns the outlines of the dead letters of a change, without those that were not refused. It reads the table.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn dead_letters_of(&self, seq: Seq) -> Result<Vec<DeadLetterNote>, StoreError> {
        read_all(self, &[Statement::new(OF_CHANGE, values![seq])], |row| {
            Ok(DeadLetterNote {
                subscription: SubscriptionName::parse(row.text(0)?).map_err(rows::damaged)?,
                id: DeadLetterId(row.unsigned(1)?),
                refused: row.time(2)?,
                reason: row.text(3)?.into(),
            })
        })
    }

    /// Returns up to `limit` dead letters of a subscription after `after` that wait for another attempt, oldest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn replays(
        &self,
        subscription: &SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let bound = after.map_or(0, |id| id.0);
        read_all(self, &[Statement::new(REPLAYS, values![subscription, bound, true, limit])], read)
    }
}

impl<S: Records + ?Sized> DeadLetterStore for S {}

fn read(row: Cells<'_>) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        id: DeadLetterId(row.unsigned(0)?),
        refused: row.time(2)?,
        attempts: row.unsigned(4)?,
        replay: row.flag(5)?,
        letter: NewDeadLetter {
            seq: row.seq(1)?,
            reason: row.text(3)?.into(),
            json: Bytes::from(row.text(6)?.to_owned()),
        },
    })
}

/// Returns the statement that adds a dead letter.
pub(super) fn add<'v>(name: &'v SubscriptionName, letter: &'v NewDeadLetter) -> Result<Statement<'v>, StoreError> {
    let json = std::str::from_utf8(&letter.json).map_err(rows::damaged)?;
    Ok(Statement::new(ADD, values![name, letter.seq, Timestamp::now(), &letter.reason, false, json]))
}

/// Returns the statement that adds a change to send again.
pub(super) fn repeat<'v>(name: &'v SubscriptionName, letter: &'v NewDeadLetter) -> Result<Statement<'v>, StoreError> {
    let json = std::str::from_utf8(&letter.json).map_err(rows::damaged)?;
    Ok(Statement::new(REPEAT, values![name, letter.seq, Timestamp::now(), &letter.reason, true, json]))
}

/// Returns the statement that requests another attempt of one dead letter, or of all.
pub(super) fn replay(name: &SubscriptionName, id: Option<DeadLetterId>) -> Statement<'_> {
    Statement::new(REPLAY, values![name, id.map(|id| id.0), true])
}

/// Returns the statement that notes another refusal.
pub(super) fn refuse<'v>(name: &'v SubscriptionName, id: DeadLetterId, reason: &'v Text) -> Statement<'v> {
    Statement::new(REFUSE, values![name, id.0, reason, Timestamp::now(), false])
}

/// Returns the statement that removes one dead letter, or all.
pub(super) fn drop(name: &SubscriptionName, id: Option<DeadLetterId>) -> Statement<'_> {
    Statement::new(DROP, values![name, id.map(|id| id.0)])
}
