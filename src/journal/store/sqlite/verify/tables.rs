//! The tables beside the changes and the registry: subscriptions, dead letters, incomplete changes, crawls, quarantine.

use rusqlite::{Connection, Row};

use super::Report;
use crate::{
    journal::store::{
        StoreError,
        sqlite::{quarantine, rows, seeds, subscriptions},
    },
    model::{Change, MissingFacts, Seq, SourceName},
};

/// Checks each table that the journal has: an older version lacked some of them.
pub(super) fn examine(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    type Check = fn(&Connection, &mut Report) -> Result<(), StoreError>;
    let checks: [(&str, Check); 5] = [
        ("subscriptions", cursors),
        ("dead_letters", dead_letters),
        ("incomplete", incomplete),
        ("walks", crawls),
        ("quarantine", quarantined),
    ];
    for (table, check) in checks {
        if connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?")?.exists([table])?
            && let Err(error) = check(connection, report)
        {
            report.find(format!("the table {table} cannot be read: {error}"));
        }
    }
    Ok(())
}

/// A cursor past the newest change would skip changes to come.
fn cursors(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let head = report.head;
    for stored in subscriptions::all(connection)?.into_iter().filter(|stored| stored.cursor > head) {
        let (name, cursor) = (stored.name, stored.cursor);
        report.find(format!("the subscription {name} is at change {cursor}, and the newest is {head}"));
    }
    Ok(())
}

fn dead_letters(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare(subscriptions::READ_LETTERS)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        match subscriptions::read_letter(row) {
            Ok(dead) => {
                let place = format!("the dead letter {}", dead.id);
                copy_of_change(report, &place, dead.letter.seq, &dead.letter.json);
            }
            Err(error) => report.find(format!("the dead letter {}: {error}", identifier(row)?)),
        }
    }
    Ok(())
}

fn incomplete(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT seq, source, untold, json FROM incomplete ORDER BY seq")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let seq = rows::seq(row.get(0)?)?;
        let (source, untold): (String, String) = (row.get(1)?, row.get(2)?);
        let place = format!("the incomplete change {seq}");
        if SourceName::parse(&source).is_err() || !MissingFacts::ALL.into_iter().any(|known| known.name() == untold) {
            report.find(format!("{place} lacks {untold:?} of the source {source:?}, which makes no sense"));
        }
        copy_of_change(report, &place, seq, row.get::<_, String>(3)?.as_bytes());
    }
    Ok(())
}

/// Checks a copy of a change that a table has because the change itself may have been removed.
fn copy_of_change(report: &mut Report, place: &str, seq: Seq, json: &[u8]) {
    let head = report.head;
    if seq > head {
        report.find(format!("{place} is a copy of change {seq}, and the newest is {head}"));
    }
    match serde_json::from_slice::<Change>(json) {
        Ok(change) if change.seq != seq => report.find(format!("{place} is of change {seq} and says {}", change.seq)),
        Ok(_) => {}
        Err(error) => report.find(format!("{place} cannot be read: {error}")),
    }
}

fn crawls(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT source FROM walks ORDER BY source")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let source: String = row.get(0)?;
        let read =
            SourceName::parse(&source).map_err(rows::damaged).and_then(|name| seeds::crawl_progress(connection, &name));
        if let Err(error) = read {
            report.find(format!("the walk through the repository of {source:?}: {error}"));
        }
    }
    Ok(())
}

/// The bounds of the quarantine are kept by the sizes that the table has.
fn quarantined(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare(quarantine::READ_LENGTHS)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let id = identifier(row)?;
        let (size, length): (i64, i64) = (row.get("size")?, row.get("length")?);
        if size != length {
            report.find(format!("the message {id} of the quarantine has {length} bytes, and its row says {size}"));
        }
        if let Err(error) = quarantine::message(row, bytes::Bytes::new()) {
            report.find(format!("the message {id} of the quarantine: {error}"));
        }
    }
    Ok(())
}

fn identifier(row: &Row<'_>) -> rusqlite::Result<i64> {
    row.get("id")
}
