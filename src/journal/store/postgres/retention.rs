//! Removal of the oldest changes, a few at a time. A removal does not lock the head, so no append waits for it.
//! Autovacuum frees the space for later changes.

use super::connection::Session;
use crate::{
    journal::store::{StoreError, rows},
    model::Seq,
};

/// Maximum number of seeds in one removal.
const MAX_REMOVED_SEEDS: i64 = 1024;

/// Statement that deletes at most $2 of the oldest changes before $1. The newest change stays.
const DELETE: &str = "DELETE FROM changes WHERE seq <= (SELECT max(seq) FROM (
        SELECT seq FROM changes WHERE seq < least($1::bigint, (SELECT head FROM journal_head)) ORDER BY seq LIMIT $2
    ) AS oldest)";

/// Statement that deletes seeds that are ordered before the oldest change. The numbers and the positions of seeds
/// increase together.
const DELETE_SEEDS: &str = "DELETE FROM seeds WHERE number <= (SELECT max(number) FROM (
        SELECT number, seq FROM seeds ORDER BY number LIMIT $1
    ) AS oldest WHERE seq + 1 < (SELECT min(seq) FROM changes))";

/// Removes at most `at_most` changes before `before`; returns their number.
pub(super) async fn prune(session: &Session, before: Seq, at_most: usize) -> Result<usize, StoreError> {
    let removed = session.execute(DELETE, &[&rows::number(before.0), &rows::number(at_most as u64)]).await?;
    session.execute(DELETE_SEEDS, &[&MAX_REMOVED_SEEDS]).await?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}
