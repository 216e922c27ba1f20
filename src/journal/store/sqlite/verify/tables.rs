//! Checks of the other tables: subscriptions, dead letters, incomplete changes, crawls, quarantine.

use rusqlite::{Connection, Row};

use super::Report;
use crate::{
    journal::store::{
        StoreError,
        sqlite::{quarantine, rows, seeds, subscriptions},
    },
    model::{Change, MissingFacts, Seq, SourceName},
};

/// Checks the tables that the journal has, because older versions lacked some of them.
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
            report.add(format!("the table {table} cannot be read: {error}"));
        }
    }
    Ok(())
}

/// Checks that no cursor is past the newest change, because it would skip later changes.
fn cursors(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let head = report.head;
    for stored in subscriptions::all(connection)?.into_iter().filter(|stored| stored.cursor > head) {
        let (name, cursor) = (stored.name, stored.cursor);
        report.add(format!("the cursor of the subscription {name} is {cursor}, but the newest change is {head}"));
    }
    Ok(())
}

fn dead_letters(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare(subscriptions::READ_LETTERS)?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        match subscriptions::read_letter(row) {
            Ok(dead) => {
                let row_name = format!("the dead letter {}", dead.id);
                copy_of_change(report, &row_name, dead.letter.seq, &dead.letter.json);
            }
            Err(error) => report.add(format!("the dead letter {}: {error}", identifier(row)?)),
        }
    }
    Ok(())
}

fn incomplete(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT seq, source, untold, json FROM incomplete ORDER BY seq")?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        let seq = rows::seq(row.get(0)?)?;
        let (source, missing): (String, String) = (row.get(1)?, row.get(2)?);
        let row_name = format!("the incomplete change {seq}");
        if SourceName::parse(&source).is_err() || !MissingFacts::ALL.into_iter().any(|facts| facts.name() == missing) {
            report.add(format!("{row_name} has invalid values: missing facts {missing:?}, source {source:?}"));
        }
        copy_of_change(report, &row_name, seq, row.get::<_, String>(3)?.as_bytes());
    }
    Ok(())
}

/// Checks a copy of a change, which a row contains because retention may have removed the change itself.
fn copy_of_change(report: &mut Report, row_name: &str, seq: Seq, json: &[u8]) {
    let head = report.head;
    if seq > head {
        report.add(format!("{row_name} is a copy of change {seq}, but the newest change is {head}"));
    }
    match serde_json::from_slice::<Change>(json) {
        Ok(change) if change.seq != seq => {
            report.add(format!("{row_name} is of change {seq}, but its JSON has the number {}", change.seq));
        }
        Ok(_) => {}
        Err(error) => report.add(format!("{row_name} cannot be read: {error}")),
    }
}

fn crawls(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT source FROM walks ORDER BY source")?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        let source: String = row.get(0)?;
        let read =
            SourceName::parse(&source).map_err(rows::damaged).and_then(|name| seeds::crawl_progress(connection, &name));
        if let Err(error) = read {
            report.add(format!("the crawl of the repository of {source:?}: {error}"));
        }
    }
    Ok(())
}

/// Checks the sizes of messages in the table, because the limits of the quarantine depend on them.
fn quarantined(connection: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let mut statement = connection.prepare(quarantine::READ_LENGTHS)?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        let id = identifier(row)?;
        let (size, length): (i64, i64) = (row.get("size")?, row.get("length")?);
        if size != length {
            report.add(format!("the message {id} of the quarantine has {length} bytes, but its row says {size}"));
        }
        if let Err(error) = quarantine::message(row, bytes::Bytes::new()) {
            report.add(format!("the message {id} of the quarantine: {error}"));
        }
    }
    Ok(())
}

fn identifier(row: &Row<'_>) -> rusqlite::Result<i64> {
    row.get("id")
}
