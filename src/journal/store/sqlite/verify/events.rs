//! Whether events would be known again: the runs of their keys against the changes.

use std::collections::HashMap;

use rusqlite::Connection;

use super::Report;
use crate::{
    journal::store::{
        EventKey,
        sqlite::{
            dedupe::runs::{self, Run},
            rows,
        },
    },
    model::Seq,
};

/// An event leads to a change that is there, or that retention has removed; and its key leads to it. What is in no run
/// has its key in the row of its change.
pub(super) fn examine(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    // An older version had no runs.
    if !connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'key_runs'")?.exists([])? {
        return Ok(());
    }
    for run in runs::all(connection)? {
        match runs::read(connection, run) {
            Ok(keys) => examine_run(connection, run, &keys, report)?,
            Err(error) => {
                report.find(format!("the keys of the events of changes {} to {}: {error}", run.first, run.last));
            }
        }
    }
    Ok(())
}

fn examine_run(
    connection: &Connection,
    run: Run,
    keys: &[(EventKey, Seq)],
    report: &mut Report,
) -> rusqlite::Result<()> {
    let Run { first, last, .. } = run;
    if keys.len() != run.keys || !keys.is_sorted_by(|(one, _), (next, _)| one < next) {
        report.find(format!("the keys of the events of changes {first} to {last} are not as they were written"));
    }
    let mut told: HashMap<Seq, EventKey> = keys.iter().map(|(key, seq)| (*seq, *key)).collect();
    let mut statement = connection.prepare_cached("SELECT seq, key FROM changes WHERE seq >= ? AND seq <= ?")?;
    let mut found = statement.query([first, last].map(|seq| rows::number(seq.0)))?;
    while let Some(row) = found.next()? {
        let seq = Seq(row.get::<_, i64>(0)?.unsigned_abs());
        let key = row.get::<_, Option<[u8; 16]>>(1)?.map(EventKey);
        let in_run = told.remove(&seq);
        // One that came again after the window is that of the later change.
        if let Some(key) = key.filter(|key| in_run != Some(*key))
            && !keys.iter().any(|(other, later)| *other == key && *later > seq)
        {
            report.find(format!("the event of change {seq} would not be known again"));
        }
    }
    let mut lost: Vec<_> = told.into_keys().filter(|seq| report.first.is_some_and(|first| *seq >= first)).collect();
    lost.sort_unstable();
    lost.iter().for_each(|seq| report.find(format!("an event is known as change {seq}, which is not there")));
    Ok(())
}
