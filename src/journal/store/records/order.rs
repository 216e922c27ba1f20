//! The table `order_times`: order times at some numbers, and the times of receipt that all others follow from.

use super::{Records, Statement, StoreError, read_all, read_one, statements, values};
use crate::{
    journal::order::OrderTime,
    model::{Seq, Timestamp},
};

statements! {
    NOTED = "SELECT seq, order_time FROM order_times WHERE seq <= $1 ORDER BY seq DESC LIMIT 1";
    RECEIVED = "SELECT seq, received FROM changes WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3";
    NOTE = "INSERT INTO order_times (seq, order_time) VALUES ($1, $2) ON CONFLICT (seq) DO NOTHING";
    /// The newest one up to `$1` stays, because restores skip numbers.
    FORGET = "DELETE FROM order_times WHERE seq < (SELECT max(seq) FROM order_times WHERE seq <= $1)";
}

/// Order times of changes.
pub trait OrderStore: Records {
    /// Returns the noted order time with the greatest number up to `seq`, and that number.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn noted_order_time(&self, seq: Seq) -> Result<Option<(Seq, OrderTime)>, StoreError> {
        read_one(self, Statement::new(NOTED, values![seq]), |row| Ok((row.seq(0)?, OrderTime(row.int(1)?))))
    }

    /// Returns the times of receipt of up to `limit` changes after `after` and up to `last`, with their numbers.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn times_of_receipt(&self, after: Seq, last: Seq, limit: usize) -> Result<Vec<(Seq, Timestamp)>, StoreError> {
        read_all(self, &[Statement::new(RECEIVED, values![after, last, limit])], |row| Ok((row.seq(0)?, row.time(1)?)))
    }
}

impl<S: Records + ?Sized> OrderStore for S {}

/// Returns the statement that notes an order time.
pub(super) fn note(seq: Seq, time: OrderTime) -> Statement<'static> {
    Statement::new(NOTE, values![seq, time.0])
}

/// Returns the statement that removes the order times noted before the newest one up to a number.
pub(super) fn forget(oldest: Seq) -> Statement<'static> {
    Statement::new(FORGET, values![oldest])
}
