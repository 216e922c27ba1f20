//! Verification of a journal: every change against its checksum and its columns, the numbering, the event keys, the
//! registry against the changes, and all other tables.
//!
//! Verification reads a consistent snapshot of a journal, which may be in use, or of a backup, and changes nothing.

mod events;
mod registry;
mod tables;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use rusqlite::{Connection, Row};
use uuid::Uuid;

use self::registry::compare;
use super::{
    backup::open_to_read,
    open::{OpenError, explain},
    rows,
    seeds::{self, SeedRows},
    version_8::{self, Replayed},
};
use crate::{
    journal::{registry::Registry, store::StoreError},
    model::{Change, Seq, Timestamp, Uri},
};

/// Maximum number of findings in a report; further findings are only counted.
const MAX_FINDINGS: usize = 100;

/// Maximum number of objects that are rebuilt in memory at the same time. For a larger registry, the changes are
/// read again for each part of the objects.
const MAX_OBJECTS_IN_MEMORY: u64 = 100_000;

/// Number of changes between two reports of progress.
const CHANGES_PER_PROGRESS: u64 = 1_000;

/// Content of a journal, and its errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of changes.
    pub changes: u64,
    /// Number of the oldest change.
    pub first: Option<Seq>,
    /// Number of the newest change.
    pub head: Seq,
    /// Number of objects in the registry.
    pub objects: u64,
    /// Whether the journal has every change since the first one. If not, only the facts that the remaining changes
    /// set were compared with the registry.
    pub complete: bool,
    /// Descriptions of the first 100 errors.
    pub findings: Vec<String>,
    /// Number of further errors.
    pub more: u64,
}

impl Report {
    fn add(&mut self, finding: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Verifies the journal or backup at `path`. Calls `progress` with the number of changes that were read, and with
/// the number of all changes to read.
///
/// # Errors
/// Fails if the file cannot be opened as a journal. The report contains the errors in the file.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, OpenError> {
    let connection = open_to_read(path)?;
    let mut report = Report::default();
    if let Err(error) = examine(&connection, &mut report, progress) {
        let explained = explain(path, &error);
        if matches!(explained, OpenError::Storage { .. }) {
            return Err(explained);
        }
        report.add(format!("cannot read the rest of the file: {error}"));
    }
    Ok(report)
}

fn examine(connection: &Connection, report: &mut Report, progress: &mut dyn FnMut(u64, u64)) -> rusqlite::Result<()> {
    // A read transaction gives all queries the same snapshot.
    connection.execute_batch("BEGIN")?;
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(u64::try_from);
    let mut failed = None;
    for check in ["PRAGMA integrity_check(100)", "PRAGMA foreign_key_check"] {
        failed = structure(connection, check, report).err().or(failed);
    }
    let total = count("SELECT count(*) FROM changes")?.unwrap_or_default();
    let (replayed, complete_up_to) = replayed(connection, report)?;
    let without_row = "SELECT count(*) FROM (SELECT 1) WHERE NOT EXISTS (SELECT 1 FROM objects WHERE uri = ?)";
    report.objects = count("SELECT count(*) FROM objects")?.unwrap_or_default();
    for uri in replayed.keys() {
        let mut statement = connection.prepare_cached(without_row)?;
        report.objects += statement.query_row([uri.as_str()], |row| row.get::<_, i64>(0))?.unsigned_abs();
    }
    let parts = report.objects / MAX_OBJECTS_IN_MEMORY + 1;
    for part in 0..parts {
        let mut replay = JournalReplay { connection, report, parts, part, registry: Registry::default(), before: None };
        replay.changes(&mut |done| progress(part * total + done, parts * total))?;
        if part == 0
            && let Some(complete_up_to) = complete_up_to
        {
            replay.check_registry_can_be_completed(complete_up_to)?;
        }
        let JournalReplay { registry, .. } = replay;
        compare(connection, &replayed, registry, |uri| part_of(uri, parts) == part, report)?;
    }
    events::examine(connection, report)?;
    tables::examine(connection, report)?;
    failed.map_or(Ok(()), Err)
}

/// Returns, for a file of versions 5 to 8, the objects that the registry's tables lack, and the change up to which
/// the tables are complete. In all other versions the tables are complete.
fn replayed(connection: &Connection, report: &mut Report) -> rusqlite::Result<(Replayed, Option<Seq>)> {
    if !version_8::is_version(connection)? {
        return Ok((Replayed::new(), None));
    }
    let replayed = version_8::replay(connection).unwrap_or_else(|error| {
        report.add(format!("the registry: {error}"));
        Replayed::new()
    });
    Ok((replayed, Some(version_8::complete_up_to(connection)?)))
}

/// Runs SQLite's own checks of the file: pages, trees, indexes, references.
fn structure(connection: &Connection, check: &str, report: &mut Report) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(check)?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        match row.get::<_, String>(0)? {
            ok if ok == "ok" => {}
            table if check.contains("foreign") => {
                report.add(format!("a row of {table} refers to a missing row"));
            }
            error => report.add(format!("the file: {error}")),
        }
    }
    Ok(())
}

/// One pass over all changes, which rebuilds one part of the registry. The first pass also checks each change.
struct JournalReplay<'a> {
    connection: &'a Connection,
    report: &'a mut Report,
    parts: u64,
    part: u64,
    registry: Registry,
    /// Number and time of receipt of the previous change.
    before: Option<(i64, i64)>,
}

impl JournalReplay<'_> {
    fn changes(&mut self, progress: &mut dyn FnMut(u64)) -> rusqlite::Result<()> {
        // A journal of an older version lacks the column.
        let visibility = self.connection.prepare("SELECT sight FROM changes").map_or("NULL", |_| "sight");
        let sql =
            format!("SELECT seq, id, received, checksum, json, {visibility} FROM changes NOT INDEXED ORDER BY seq");
        let mut statement = self.connection.prepare(&sql)?;
        let mut result = statement.query([])?;
        let mut done = 0;
        let mut seeds = self.connection.prepare(seeds::select_sql(self.connection)?)?;
        let mut seeds = self.unless_damaged(SeedRows::new(seeds.query([0])?));
        let mut is_first = true;
        while let Some(row) = result.next()? {
            let seq = row.get(0)?;
            let is_complete = !is_first || seq == 1 || self.is_restored(0, seq)?;
            self.seeds(&mut seeds, Some(seq), is_complete);
            is_first = false;
            self.change(row)?;
            done += 1;
            if done % CHANGES_PER_PROGRESS == 0 {
                progress(done);
            }
        }
        self.seeds(&mut seeds, None, true);
        // Retention never removes the newest change, so a journal without changes is complete.
        self.report.complete |= is_first;
        progress(done);
        Ok(())
    }

    /// Applies the seeds that are ordered before this change. If earlier changes are missing, they may have set the
    /// facts of the seeds between them, so only the seeds after the last of them count.
    fn seeds(&mut self, seeds: &mut Option<SeedRows<'_>>, before: Option<i64>, is_complete: bool) {
        let change = before.map(|seq| Seq(seq.unsigned_abs()));
        while let Some(rows) = seeds {
            let seed = match rows.next_before(change) {
                Ok(Some(seed)) => seed,
                Ok(None) => return,
                Err(error) => {
                    *seeds = self.unless_damaged(Err(error));
                    return;
                }
            };
            let counts = is_complete || Some(seed.change.next()) == change;
            if counts && part_of(&seed.object, self.parts) == self.part {
                self.registry.apply_delta(seed.object, &seed.delta);
            }
        }
    }

    fn unless_damaged<T>(&mut self, read: Result<T, StoreError>) -> Option<T> {
        read.inspect_err(|error| self.report.add(format!("the seeds cannot be read: {error}"))).ok()
    }

    fn change(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let (seq, received): (i64, i64) = (row.get(0)?, row.get(2)?);
        let json = match row.get_ref(4)? {
            rusqlite::types::ValueRef::Text(json) | rusqlite::types::ValueRef::Blob(json) => json,
            _ => &[],
        };
        let change = serde_json::from_slice::<Change>(json);
        if self.part == 0 {
            self.check(row, seq, received, json, change.as_ref())?;
        }
        if let Ok(change) = change
            && part_of(&change.modification.object, self.parts) == self.part
        {
            self.registry.apply(&change);
        }
        Ok(())
    }

    fn check(
        &mut self,
        row: &Row<'_>,
        seq: i64,
        received: i64,
        json: &[u8],
        change: Result<&Change, &serde_json::Error>,
    ) -> rusqlite::Result<()> {
        self.check_order(seq, received)?;
        let visibility = match row.get_ref(5)? {
            rusqlite::types::ValueRef::Text(visibility) => Some(visibility),
            _ => None,
        };
        if row.get::<_, i64>(3)? != rows::checksum(seq, json, visibility) {
            self.report.add(format!("change {seq} is damaged: its checksum is wrong"));
        }
        match change {
            Err(error) => self.report.add(format!("change {seq} cannot be read: {error}")),
            Ok(change) => {
                if rows::number(change.seq.0) != seq {
                    self.report.add(format!("the JSON of change {seq} has the number {}", change.seq));
                }
                if Uuid::from_slice(&row.get::<_, Vec<u8>>(1)?).ok() != Some(change.modification.id.uuid()) {
                    let id = change.modification.id;
                    self.report.add(format!("change {seq} has the id {id}, but its row has another id"));
                }
                if change.received.millis() != received {
                    let received = change.received;
                    self.report.add(format!("change {seq} was received at {received}, but its row has another time"));
                }
            }
        }
        Ok(())
    }

    /// Checks that numbers and times of receipt increase, and that only restores skip numbers.
    fn check_order(&mut self, seq: i64, received: i64) -> rusqlite::Result<()> {
        let number = Seq(u64::try_from(seq).unwrap_or_default());
        match self.before {
            None => {
                self.report.first = Some(number);
                self.report.complete = seq == 1 || self.is_restored(0, seq)?;
            }
            Some((before, earlier)) => {
                if before + 1 != seq && !self.is_restored(before, seq)? {
                    self.report.complete = false;
                    let (gap, end) = (before + 1, seq - 1);
                    self.report.add(format!("the changes {gap} to {end} are missing"));
                }
                if received < earlier {
                    let earlier = Timestamp::from_millis(earlier).map(|time| time.to_string()).unwrap_or_default();
                    self.report
                        .add(format!("change {seq} was received before {earlier}, the time of the previous change"));
                }
            }
        }
        self.report.changes += 1;
        self.report.head = number;
        self.before = Some((seq, received));
        Ok(())
    }

    /// Checks that no change after `complete_up_to` is missing, because the registry's tables lack these changes.
    fn check_registry_can_be_completed(&mut self, complete_up_to: Seq) -> rusqlite::Result<()> {
        if let Some(first) = self.report.first
            && first > complete_up_to.next()
            && !self.is_restored(rows::number(complete_up_to.0), rows::number(first.0))?
        {
            self.report.add(format!(
                "the registry is complete up to change {complete_up_to}, but the changes from there to {first} are missing"
            ));
        }
        Ok(())
    }

    /// Returns whether a restore continued the numbering at `after` when `before` was the newest change.
    fn is_restored(&self, before: i64, after: i64) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM restores WHERE head = ? AND floor + 1 = ?";
        self.connection.prepare_cached(sql)?.exists([before, after])
    }
}

fn part_of(uri: &Uri, parts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    uri.as_str().hash(&mut hasher);
    hasher.finish() % parts
}
