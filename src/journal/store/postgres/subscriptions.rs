//! The table `subscriptions`, and the modifications of subscriptions and their dead letters.

use tokio_postgres::Row;

use super::{connection::Session, row, value::Value};
use crate::{
    journal::{
        nodes::{DutyName, Term},
        store::{StoreError, rows},
        subscriptions::{MadeBy, NewDeadLetter, SubscriptionRecord, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName, Text, Timestamp},
};

/// Statement that moves cursors forward, and never back. A cursor above the head, or in a range that a failover has
/// skipped, is from another journal, and stays where it is.
pub(super) const ADVANCE: &str = "UPDATE subscriptions s SET cursor = n.cursor
    FROM (SELECT name, max(cursor) AS cursor FROM unnest($1::text[], $2::bigint[]) AS given(name, cursor)
        WHERE cursor <= (SELECT head FROM journal_head)
            AND NOT EXISTS (SELECT FROM restores WHERE head < cursor AND cursor <= floor)
        GROUP BY name) n
    WHERE s.name = n.name AND s.cursor < n.cursor";

/// Expression for the cursor of a parameter: the newest number that this journal has given up to there.
macro_rules! given_cursor {
    ($parameter:literal) => {
        concat!(
            "coalesce((SELECT head FROM restores WHERE head < ",
            $parameter,
            " AND ",
            $parameter,
            " <= floor), least(",
            $parameter,
            ", (SELECT head FROM journal_head)))"
        )
    };
}

const REWIND: &str = concat!("UPDATE subscriptions SET cursor = ", given_cursor!("$2::bigint"), " WHERE name = $1");

const ALL: &str = "SELECT name, made_by, definition, cursor, paused, ended,
        (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name)
    FROM subscriptions ORDER BY name";

const ONE: &str = "SELECT name, made_by, definition, cursor, paused, ended,
        (SELECT count(*) FROM dead_letters WHERE subscription = subscriptions.name)
    FROM subscriptions WHERE name = $1";

/// Statement that makes the nodes read the subscriptions again.
const REVISE: &str = "WITH revised AS (UPDATE subscription_revision SET revision = revision + 1 RETURNING 1)
    SELECT pg_notify('tidings_nodes', '') FROM revised";

/// Statement that ends a duty, whichever node has it.
pub(super) const END_DUTY: &str = "DELETE FROM duties WHERE name = $1";

const PUT: &str = concat!(
    "INSERT INTO subscriptions (name, made_by, definition, cursor, paused) VALUES ($1, $2, $3, ",
    given_cursor!("$4::bigint"),
    ", false) ON CONFLICT (name) DO UPDATE SET made_by = excluded.made_by, definition = excluded.definition"
);

const ADD_DEAD_LETTER: &str = "INSERT INTO dead_letters (subscription, seq, refused, reason, attempts, replay, json)
    VALUES ($1, $2, $3, $4, 1, false, $5)";

const REFUSE_DEAD_LETTER: &str = "UPDATE dead_letters
    SET replay = false, attempts = attempts + 1, reason = $3, refused = $4 WHERE subscription = $1 AND id = $2";

/// Reads all subscriptions, in order of their names.
pub(super) async fn all(session: &Session) -> Result<Vec<SubscriptionRecord>, StoreError> {
    let subscriptions = session.query(ALL, &[]).await?;
    subscriptions.iter().map(read).collect()
}

/// Reads one subscription.
pub(super) async fn one(session: &Session, name: &SubscriptionName) -> Result<Option<SubscriptionRecord>, StoreError> {
    session.query_opt(ONE, &[&name.as_str()]).await?.as_ref().map(read).transpose()
}

fn read(found: &Row) -> Result<SubscriptionRecord, StoreError> {
    let origin: &str = row::get(found, 1)?;
    let made_by = MadeBy::ALL.into_iter().find(|made_by| made_by.as_str() == origin);
    Ok(SubscriptionRecord {
        name: SubscriptionName::parse(row::get(found, 0)?).map_err(rows::damaged)?,
        made_by: made_by.ok_or_else(|| rows::damaged(format!("unknown creator of a subscription: {origin}")))?,
        definition: row::get::<String>(found, 2)?.into(),
        cursor: row::seq(found, 3)?,
        paused: row::get(found, 4)?,
        ended: row::text(found, 5)?,
        dead_letters: row::unsigned(found, 6)?,
    })
}

/// Moves cursors forward.
pub(super) async fn advance_all(session: &Session, cursors: &[(SubscriptionName, Seq)]) -> Result<(), StoreError> {
    if cursors.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = cursors.iter().map(|(name, _)| name.as_str()).collect();
    let seqs: Vec<i64> = cursors.iter().map(|(_, seq)| rows::number(seq.0)).collect();
    session.execute(ADVANCE, &[&names, &seqs]).await.map(drop)
}

/// Executes modifications in order, for a duty if there is a term; returns the number of affected rows of each.
pub(super) async fn write(
    session: &Session,
    writes: &[SubscriptionWrite],
    term: Option<Term>,
) -> Result<Vec<u64>, StoreError> {
    // Every transaction locks duties first, then the revision, then subscriptions, so that none waits for another in a
    // circle.
    for name in writes.iter().filter_map(restarted).filter(|_| term.is_none()) {
        session.execute(END_DUTY, &[&DutyName::subscription(name).as_str()]).await?;
    }
    if writes.iter().any(|write| concerns_other_nodes(write, term)) {
        session.query(REVISE, &[]).await?;
    }
    let mut affected = Vec::with_capacity(writes.len());
    for write in writes {
        affected.push(execute(session, write).await?);
    }
    Ok(affected)
}

/// Returns the subscription if it must start again from the journal, on whichever node it runs.
fn restarted(write: &SubscriptionWrite) -> Option<&SubscriptionName> {
    match write {
        SubscriptionWrite::Rewind(name, _)
        | SubscriptionWrite::Delete(name)
        | SubscriptionWrite::SetPaused(name, false) => Some(name),
        _ => None,
    }
}

/// Returns whether other nodes must read the subscription again.
fn concerns_other_nodes(write: &SubscriptionWrite, term: Option<Term>) -> bool {
    match write {
        SubscriptionWrite::Put { .. }
        | SubscriptionWrite::Delete(_)
        | SubscriptionWrite::Rewind(..)
        | SubscriptionWrite::SetPaused(..)
        | SubscriptionWrite::SetEnded(..)
        | SubscriptionWrite::ReplayDeadLetters(..) => true,
        SubscriptionWrite::DropDeadLetters(..) => term.is_none(),
        SubscriptionWrite::AddDeadLetter(..) | SubscriptionWrite::DeadLetterRefused(..) => false,
    }
}

async fn execute(session: &Session, write: &SubscriptionWrite) -> Result<u64, StoreError> {
    let run = async |sql: &'static str, values: &[Value<'_>]| session.execute(sql, values).await;
    match write {
        SubscriptionWrite::Put { name, made_by, definition, cursor } => {
            run(PUT, &[&name.as_str(), &made_by.as_str(), &definition.expose(), &rows::number(cursor.0)]).await
        }
        SubscriptionWrite::Delete(name) => {
            run("DELETE FROM dead_letters WHERE subscription = $1", &[&name.as_str()]).await?;
            run("DELETE FROM subscriptions WHERE name = $1", &[&name.as_str()]).await
        }
        SubscriptionWrite::Rewind(name, cursor) => run(REWIND, &[&name.as_str(), &rows::number(cursor.0)]).await,
        SubscriptionWrite::SetPaused(name, paused) => {
            run("UPDATE subscriptions SET paused = $2 WHERE name = $1", &[&name.as_str(), paused]).await
        }
        SubscriptionWrite::SetEnded(name, reason) => {
            run(
                "UPDATE subscriptions SET ended = $2 WHERE name = $1",
                &[&name.as_str(), &reason.as_ref().map(Text::as_str)],
            )
            .await
        }
        SubscriptionWrite::AddDeadLetter(name, letter) => add_dead_letter(session, name, letter).await,
        SubscriptionWrite::ReplayDeadLetters(name, id) => {
            let sql = "UPDATE dead_letters SET replay = true WHERE subscription = $1 AND id = coalesce($2, id)";
            run(sql, &[&name.as_str(), &id.map(|id| rows::number(id.0))]).await
        }
        SubscriptionWrite::DeadLetterRefused(name, id, reason) => {
            let (id, now) = (rows::number(id.0), Timestamp::now().millis());
            run(REFUSE_DEAD_LETTER, &[&name.as_str(), &id, &reason.as_str(), &now]).await
        }
        SubscriptionWrite::DropDeadLetters(name, id) => {
            let sql = "DELETE FROM dead_letters WHERE subscription = $1 AND id = coalesce($2, id)";
            run(sql, &[&name.as_str(), &id.map(|id| rows::number(id.0))]).await
        }
    }
}

async fn add_dead_letter(
    session: &Session,
    name: &SubscriptionName,
    letter: &NewDeadLetter,
) -> Result<u64, StoreError> {
    let json = std::str::from_utf8(&letter.json).map_err(rows::damaged)?;
    let (seq, now) = (rows::number(letter.seq.0), Timestamp::now().millis());
    session.execute(ADD_DEAD_LETTER, &[&name.as_str(), &seq, &now, &letter.reason.as_str(), &json]).await?;
    advance_all(session, &[(name.clone(), letter.seq)]).await?;
    Ok(1)
}
