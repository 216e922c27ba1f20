//! The tables `subscriptions` and `dead_letters`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};

use super::rows;
use super::value::{self, params, storable_values};
use crate::{
    journal::{
        store::StoreError,
        subscriptions::{DeadLetter, DeadLetterId, MadeBy, NewDeadLetter, SubscriptionRecord, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName, Text, Timestamp},
};

const LETTER_COLUMNS: &str = "id, seq, refused, reason, attempts, replay, json";

pub(super) fn all(connection: &Connection) -> Result<Vec<SubscriptionRecord>, StoreError> {
    let sql = "SELECT name, origin, definition, cursor, paused, ended,
                      (SELECT count(*) FROM dead_letters WHERE subscription = name)
               FROM subscriptions ORDER BY name";
    let mut statement = connection.prepare_cached(sql)?;
    let mut result = statement.query([])?;
    let mut subscriptions = Vec::new();
    while let Some(row) = result.next()? {
        subscriptions.push(read(row)?);
    }
    Ok(subscriptions)
}

/// Reads one subscription.
pub(super) fn one(connection: &Connection, name: &SubscriptionName) -> Result<Option<SubscriptionRecord>, StoreError> {
    let sql = "SELECT name, origin, definition, cursor, paused, ended,
                      (SELECT count(*) FROM dead_letters WHERE subscription = name)
               FROM subscriptions WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut result = statement.query(params![name.as_str()])?;
    result.next()?.map(read).transpose()
}

fn read(row: &Row<'_>) -> Result<SubscriptionRecord, StoreError> {
    let (name, origin): (String, String) = (row.get(0)?, row.get(1)?);
    let made_by = MadeBy::ALL.into_iter().find(|made_by| made_by.as_str() == origin);
    Ok(SubscriptionRecord {
        name: SubscriptionName::parse(&name).map_err(rows::damaged)?,
        made_by: made_by.ok_or_else(|| rows::damaged(format!("unknown creator of a subscription: {origin}")))?,
        definition: row.get::<_, String>(2)?.into(),
        cursor: rows::seq(row.get(3)?)?,
        paused: row.get(4)?,
        ended: value::text(row, 5)?,
        dead_letters: number(row.get(6)?)?,
    })
}

/// Expression for the cursor of the parameter `?2`: the newest number that this journal has given up to there.
macro_rules! given_cursor {
    () => {
        "coalesce((SELECT head FROM restores WHERE head < ?2 AND ?2 <= floor),
            min(?2, (SELECT coalesce(max(seq), 0) FROM changes)))"
    };
}

/// Moves a cursor forward, and never back; returns the number of affected rows. A cursor above the head, or in a range
/// that a restore has skipped, is from another journal, and stays where it is.
pub(super) fn advance(connection: &Connection, name: &SubscriptionName, cursor: Seq) -> Result<u64, StoreError> {
    let sql =
        concat!("UPDATE subscriptions SET cursor = ?2 WHERE name = ?1 AND cursor < ?2 AND ?2 = ", given_cursor!());
    let affected = connection.prepare_cached(sql)?.execute(params![name.as_str(), rows::number(cursor.0)])?;
    Ok(affected as u64)
}

pub(super) fn write(connection: &mut Connection, writes: &[SubscriptionWrite]) -> Result<Vec<u64>, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let affected = writes.iter().map(|write| execute(&transaction, write)).collect::<Result<_, _>>()?;
    transaction.commit()?;
    Ok(affected)
}

fn execute(transaction: &Transaction<'_>, write: &SubscriptionWrite) -> Result<u64, StoreError> {
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> Result<u64, StoreError> {
        Ok(transaction.prepare_cached(sql)?.execute(storable_values(values))? as u64)
    };
    match write {
        SubscriptionWrite::Put { name, made_by, definition, cursor } => run(
            concat!(
                "INSERT INTO subscriptions (name, origin, definition, cursor, paused) VALUES (?1, ?3, ?4, ",
                given_cursor!(),
                ", 0) ON CONFLICT (name) DO UPDATE SET origin = excluded.origin, definition = excluded.definition"
            ),
            &[&name.as_str(), &rows::number(cursor.0), &made_by.as_str(), &definition.expose()],
        ),
        SubscriptionWrite::Delete(name) => {
            run("DELETE FROM dead_letters WHERE subscription = ?", &[&name.as_str()])?;
            run("DELETE FROM subscriptions WHERE name = ?", &[&name.as_str()])
        }
        SubscriptionWrite::Rewind(name, cursor) => {
            let sql = concat!("UPDATE subscriptions SET cursor = ", given_cursor!(), " WHERE name = ?1");
            run(sql, &[&name.as_str(), &rows::number(cursor.0)])
        }
        SubscriptionWrite::SetPaused(name, paused) => {
            run("UPDATE subscriptions SET paused = ?2 WHERE name = ?1", &[&name.as_str(), paused])
        }
        SubscriptionWrite::SetEnded(name, reason) => run(
            "UPDATE subscriptions SET ended = ?2 WHERE name = ?1",
            &[&name.as_str(), &reason.as_ref().map(Text::as_str)],
        ),
        SubscriptionWrite::AddDeadLetter(name, letter) => add_dead_letter(transaction, name, letter),
        SubscriptionWrite::ReplayDeadLetters(name, id) => run(
            "UPDATE dead_letters SET replay = 1 WHERE subscription = ?1 AND id = coalesce(?2, id)",
            &[&name.as_str(), &id.map(|id| rows::number(id.0))],
        ),
        SubscriptionWrite::DeadLetterRefused(name, id, reason) => run(
            "UPDATE dead_letters SET replay = 0, attempts = attempts + 1, reason = ?3, refused = ?4
             WHERE subscription = ?1 AND id = ?2",
            &[&name.as_str(), &rows::number(id.0), &reason.as_str(), &Timestamp::now().millis()],
        ),
        SubscriptionWrite::DropDeadLetters(name, id) => run(
            "DELETE FROM dead_letters WHERE subscription = ?1 AND id = coalesce(?2, id)",
            &[&name.as_str(), &id.map(|id| rows::number(id.0))],
        ),
    }
}

fn add_dead_letter(
    transaction: &Transaction<'_>,
    name: &SubscriptionName,
    letter: &NewDeadLetter,
) -> Result<u64, StoreError> {
    let json = std::str::from_utf8(&letter.json).map_err(rows::damaged)?;
    let sql = "INSERT INTO dead_letters (subscription, seq, refused, reason, attempts, replay, json)
               VALUES (?, ?, ?, ?, 1, 0, ?)";
    transaction.prepare_cached(sql)?.execute(params![
        name.as_str(),
        rows::number(letter.seq.0),
        Timestamp::now().millis(),
        letter.reason.as_str(),
        json
    ])?;
    advance(transaction, name, letter.seq)?;
    Ok(1)
}

pub(super) fn letters_before(
    connection: &Connection,
    subscription: &SubscriptionName,
    before: Option<DeadLetterId>,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let sql =
        format!("SELECT {LETTER_COLUMNS} FROM dead_letters WHERE subscription = ? AND id < ? ORDER BY id DESC LIMIT ?");
    let bound = before.map_or(i64::MAX, |id| rows::number(id.0));
    letters(connection, &sql, params![subscription.as_str(), bound, rows::number(limit as u64)])
}

pub(super) fn replays(
    connection: &Connection,
    subscription: &SubscriptionName,
    after: Option<DeadLetterId>,
    limit: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let sql = format!(
        "SELECT {LETTER_COLUMNS} FROM dead_letters WHERE subscription = ? AND id > ? AND replay = 1 ORDER BY id LIMIT ?"
    );
    let bound = after.map_or(0, |id| rows::number(id.0));
    letters(connection, &sql, params![subscription.as_str(), bound, rows::number(limit as u64)])
}

fn letters(connection: &Connection, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<DeadLetter>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut result = statement.query(values)?;
    let mut letters = Vec::new();
    while let Some(row) = result.next()? {
        letters.push(read_letter(row)?);
    }
    Ok(letters)
}

pub(super) fn letter(
    connection: &Connection,
    subscription: &SubscriptionName,
    id: DeadLetterId,
) -> Result<Option<DeadLetter>, StoreError> {
    let sql = format!("SELECT {LETTER_COLUMNS} FROM dead_letters WHERE subscription = ? AND id = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let read = |row: &Row<'_>| Ok(read_letter(row));
    statement.query_row(params![subscription.as_str(), rows::number(id.0)], read).optional()?.transpose()
}

fn read_letter(row: &Row<'_>) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        id: DeadLetterId(number(row.get(0)?)?),
        refused: rows::time(row.get(2)?)?,
        attempts: number(row.get(4)?)?,
        replay: row.get(5)?,
        letter: NewDeadLetter {
            seq: rows::seq(row.get(1)?)?,
            reason: row.get::<_, String>(3)?.into(),
            json: Bytes::from(row.get::<_, String>(6)?),
        },
    })
}

fn number(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(rows::damaged)
}
