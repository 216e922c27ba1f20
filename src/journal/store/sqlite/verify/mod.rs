//! Is a journal what was written? Every change against its checksum and its columns, the numbering,
//! the events, the registry against the changes, and the tables beside them.
//!
//! It reads a journal that is in use as well as a backup, as of one moment, and changes nothing.

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
    rows, seeds,
    version_8::{self, Replayed},
};
use crate::{
    journal::{registry::Registry, store::StoreError},
    model::{Change, Seq, Timestamp, Uri},
};

/// How many findings are told one by one; the others are counted.
const FINDINGS_TOLD: usize = 100;

/// How many objects are rebuilt in memory at once; the changes of a journal with more are read again for
/// each such part of them.
const OBJECTS_AT_ONCE: u64 = 100_000;

/// How many changes are read between two reports of progress.
const CHANGES_AT_ONCE: u64 = 1_000;

/// What is in a journal, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many changes there are.
    pub changes: u64,
    /// The oldest.
    pub first: Option<Seq>,
    /// The newest.
    pub head: Seq,
    /// How many objects the registry has.
    pub objects: u64,
    /// Whether every change since the first is there, so that the registry was compared as a whole;
    /// else only those facts were that the changes which are kept have set.
    pub complete: bool,
    /// What is wrong, and where: the first 100.
    pub findings: Vec<String>,
    /// How much more is wrong.
    pub more: u64,
}

impl Report {
    fn find(&mut self, what: String) {
        if self.findings.len() < FINDINGS_TOLD {
            self.findings.push(what);
        } else {
            self.more += 1;
        }
    }
}

/// Verifies the journal, or backup, at `path`. `progress` is told what is done and how much there is,
/// in changes read.
///
/// # Errors
/// Fails if the file cannot be opened as a journal. What is wrong in it stands in the report.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, OpenError> {
    let connection = open_to_read(path)?;
    let mut report = Report::default();
    if let Err(error) = examine(&connection, &mut report, progress) {
        let explained = explain(path, &error);
        if matches!(explained, OpenError::Storage { .. }) {
            return Err(explained);
        }
        report.find(format!("the file cannot be read on: {error}"));
    }
    Ok(report)
}

fn examine(connection: &Connection, report: &mut Report, progress: &mut dyn FnMut(u64, u64)) -> rusqlite::Result<()> {
    // From here on everything is as of this moment.
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
    let parts = report.objects / OBJECTS_AT_ONCE + 1;
    for part in 0..parts {
        let mut walk = Walk { connection, report, parts, part, registry: Registry::default(), before: None };
        walk.changes(&mut |done| progress(part * total + done, parts * total))?;
        if part == 0
            && let Some(moved) = complete_up_to
        {
            walk.all_can_be_told(moved)?;
        }
        let Walk { registry, .. } = walk;
        compare(connection, &replayed, registry, |uri| part_of(uri, parts) == part, report)?;
    }
    events::examine(connection, report)?;
    tables::examine(connection, report)?;
    failed.map_or(Ok(()), Err)
}

/// Objects that the registry's tables do not hold, and the change up to which they hold everything, in a file of versions 5
/// to 8. All others hold everything.
fn replayed(connection: &Connection, report: &mut Report) -> rusqlite::Result<(Replayed, Option<Seq>)> {
    if !version_8::is_version(connection)? {
        return Ok((Replayed::new(), None));
    }
    let replayed = version_8::replay(connection).unwrap_or_else(|error| {
        report.find(format!("the registry: {error}"));
        Replayed::new()
    });
    Ok((replayed, Some(version_8::complete_up_to(connection)?)))
}

/// SQLite's own checks of the file: pages, trees, indexes, references.
fn structure(connection: &Connection, check: &str, report: &mut Report) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(check)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        match row.get::<_, String>(0)? {
            ok if ok == "ok" => {}
            wrong if check.contains("foreign") => {
                report.find(format!("a row of {wrong} refers to one that is not there"));
            }
            wrong => report.find(format!("the file: {wrong}")),
        }
    }
    Ok(())
}

/// One reading of all changes, which rebuilds one part of the registry, and the first time checks
/// each change.
struct Walk<'a> {
    connection: &'a Connection,
    report: &'a mut Report,
    parts: u64,
    part: u64,
    registry: Registry,
    before: Option<(i64, i64)>,
}

impl Walk<'_> {
    fn changes(&mut self, progress: &mut dyn FnMut(u64)) -> rusqlite::Result<()> {
        // A journal that no newer version has opened yet has no such column.
        let visibility = self.connection.prepare("SELECT sight FROM changes").map_or("NULL", |_| "sight");
        let sql =
            format!("SELECT seq, id, received, checksum, json, {visibility} FROM changes NOT INDEXED ORDER BY seq");
        let mut statement = self.connection.prepare(&sql)?;
        let mut found = statement.query([])?;
        let mut done = 0;
        let mut seeds = self.connection.prepare(seeds::reading(self.connection)?)?;
        let mut seeds = self.unless_damaged(seeds::Rows::of(seeds.query([0])?));
        let mut is_first = true;
        while let Some(row) = found.next()? {
            let seq = row.get(0)?;
            let is_complete = !is_first || seq == 1 || self.is_restored(0, seq)?;
            self.seeds(&mut seeds, Some(seq), is_complete);
            is_first = false;
            self.change(row)?;
            done += 1;
            if done % CHANGES_AT_ONCE == 0 {
                progress(done);
            }
        }
        self.seeds(&mut seeds, None, true);
        // The newest change always stays, so where there is none there has been none.
        self.report.complete |= is_first;
        progress(done);
        Ok(())
    }

    /// Takes over what walks told before this change. Where changes before it are gone, they may have set what was
    /// told among them, so only what was told after the last of them counts.
    fn seeds(&mut self, seeds: &mut Option<seeds::Rows<'_>>, before: Option<i64>, is_complete: bool) {
        let change = before.map(|seq| Seq(seq.unsigned_abs()));
        while let Some(rows) = seeds {
            let seed = match rows.before(change) {
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
        read.inspect_err(|error| self.report.find(format!("what walks told cannot be read: {error}"))).ok()
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
        self.place(seq, received)?;
        let visibility = match row.get_ref(5)? {
            rusqlite::types::ValueRef::Text(visibility) => Some(visibility),
            _ => None,
        };
        if row.get::<_, i64>(3)? != rows::checksum(seq, json, visibility) {
            self.report.find(format!("change {seq} is not as it was written: its checksum is wrong"));
        }
        match change {
            Err(error) => self.report.find(format!("change {seq} cannot be read: {error}")),
            Ok(change) => {
                if rows::number(change.seq.0) != seq {
                    self.report.find(format!("change {seq} says of itself that it has the number {}", change.seq));
                }
                if Uuid::from_slice(&row.get::<_, Vec<u8>>(1)?).ok() != Some(change.modification.id.uuid()) {
                    self.report.find(format!("change {seq} is {} and kept under another id", change.modification.id));
                }
                if change.received.millis() != received {
                    self.report.find(format!(
                        "change {seq} was received at {} and is kept under another time",
                        change.received
                    ));
                }
            }
        }
        Ok(())
    }

    /// Numbers and times of receipt go up, numbers one by one but for what restores have left out.
    fn place(&mut self, seq: i64, received: i64) -> rusqlite::Result<()> {
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
                    self.report.find(format!("the changes {gap} to {end} are missing"));
                }
                if received < earlier {
                    let earlier = Timestamp::from_millis(earlier).map(|time| time.to_string()).unwrap_or_default();
                    self.report.find(format!("change {seq} was received before {earlier}, when the one before it was"));
                }
            }
        }
        self.report.changes += 1;
        self.report.head = number;
        self.before = Some((seq, received));
        Ok(())
    }

    /// The registry's tables hold everything up to `moved`, so that no change after it may be gone.
    fn all_can_be_told(&mut self, moved: Seq) -> rusqlite::Result<()> {
        if let Some(first) = self.report.first
            && first > moved.next()
            && !self.is_restored(rows::number(moved.0), rows::number(first.0))?
        {
            self.report.find(format!("the registry is as of change {moved}, and what it lacks is gone up to {first}"));
        }
        Ok(())
    }

    /// Whether a restore made the numbering go on at `after` when `before` was the newest change.
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
