//! Checks of the event keys: whether the journal would detect every repeated event.

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

/// Compares the runs of keys with the changes. Each key must refer to a change that exists or that retention has
/// removed, and each change with a key must have it in a run, unless it is newer than all runs.
pub(super) fn examine(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    for run in runs::all(connection)? {
        match runs::read(connection, run) {
            Ok(keys) => examine_run(connection, run, &keys, report)?,
            Err(error) => {
                report.add(format!("the event keys of changes {} to {}: {error}", run.first, run.last));
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
        report.add(format!("the event keys of changes {first} to {last} are damaged"));
    }
    let mut keys_by_change: HashMap<Seq, EventKey> = keys.iter().map(|(key, seq)| (*seq, *key)).collect();
    let mut statement = connection.prepare_cached("SELECT seq, key FROM changes WHERE seq >= ? AND seq <= ?")?;
    let mut result = statement.query([first, last].map(|seq| rows::number(seq.0)))?;
    while let Some(row) = result.next()? {
        let seq = Seq(row.get::<_, i64>(0)?.unsigned_abs());
        let key = row.get::<_, Option<[u8; 16]>>(1)?.map(EventKey);
        let in_run = keys_by_change.remove(&seq);
        // The key of an event that was repeated after the window belongs to the later change.
        if let Some(key) = key.filter(|key| in_run != Some(*key))
            && !keys.iter().any(|(other, later)| *other == key && *later > seq)
        {
            report.add(format!("a repeat of the event of change {seq} would not be detected"));
        }
    }
    let is_available = |seq: &Seq| report.first.is_some_and(|first| *seq >= first);
    let mut missing: Vec<_> = keys_by_change.into_keys().filter(is_available).collect();
    missing.sort_unstable();
    missing.iter().for_each(|seq| report.add(format!("the key of an event refers to change {seq}, which is missing")));
    Ok(())
}
