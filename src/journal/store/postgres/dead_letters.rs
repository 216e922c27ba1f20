//! Reading of the table `dead_letters`.

use bytes::Bytes;
use tokio_postgres::Row;

use super::{connection::Session, row};
use crate::{
    journal::{
        store::{StoreError, rows},
        subscriptions::{DeadLetter, DeadLetterId, NewDeadLetter},
    },
    model::SubscriptionName,
};

const BEFORE: &str = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters
    WHERE subscription = $1 AND id < $2 ORDER BY id DESC LIMIT $3";

const REPLAYS: &str = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters
    WHERE subscription = $1 AND id > $2 AND replay ORDER BY id LIMIT $3";

const GET: &str = "SELECT id, seq, refused, reason, attempts, replay, json FROM dead_letters
    WHERE subscription = $1 AND id = $2";

/// Reads a page of dead letters of a subscription, newest first.
pub(super) async fn before(
    session: &Session,
    subscription: &SubscriptionName,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let bound = before.map_or(i64::MAX, |id| rows::number(id.0));
    page(session, BEFORE, subscription, bound, limit).await
}

/// Reads a page of dead letters of a subscription that wait for another attempt, oldest first.
pub(super) async fn replays(
    session: &Session,
    subscription: &SubscriptionName,
    after: Option<DeadLetterId>,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let bound = after.map_or(0, |id| rows::number(id.0));
    page(session, REPLAYS, subscription, bound, limit).await
}

async fn page(
    session: &Session,
    sql: &'static str,
    subscription: &SubscriptionName,
    bound: i64,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let letters = session.query(sql, &[&subscription.as_str(), &bound, &rows::number(limit as u64)]).await?;
    letters.iter().map(read).collect()
}

/// Reads one dead letter of a subscription.
pub(super) async fn get(
    session: &Session,
    subscription: &SubscriptionName,
    id: DeadLetterId,
) -> Result<Option<DeadLetter>, StoreError> {
    let letter = session.query_opt(GET, &[&subscription.as_str(), &rows::number(id.0)]).await?;
    letter.as_ref().map(read).transpose()
}

fn read(letter: &Row) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        id: DeadLetterId(row::unsigned(letter, 0)?),
        refused: row::time(letter, 2)?,
        attempts: row::unsigned(letter, 4)?,
        replay: row::get(letter, 5)?,
        letter: NewDeadLetter {
            seq: row::seq(letter, 1)?,
            reason: row::get::<&str>(letter, 3)?.into(),
            json: Bytes::from(row::get::<String>(letter, 6)?),
        },
    })
}
