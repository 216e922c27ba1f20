//! Sorted runs of event keys in the file. A run has the keys of consecutive changes, in order of the keys.
//!
//! The first bits of the keys divide a run into parts, and each part is one row, so that a search reads one row.
//! Keys are random and therefore evenly distributed; a part fills about one page.

use std::cmp::Reverse;

use rusqlite::{CachedStatement, Connection, OptionalExtension, types::ValueRef};

use super::super::value::params;
use super::rows;
use crate::{
    journal::store::{EventKey, StoreError},
    model::Seq,
};

/// Default number of keys of a run, with which a part fills most of a page.
pub(in super::super) const DEFAULT_KEYS: usize = 16 * 1024;

/// Number of parts of a run.
const PARTS: u64 = 64;

/// Size of an entry in bytes: a key, and the number of its change in big-endian order.
const ENTRY: usize = 16 + 8;

/// Description of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Run {
    /// Number of the run, one more than the number of the previous run.
    pub(in super::super) number: u64,
    /// Oldest change of the run.
    pub(in super::super) first: Seq,
    /// Newest change of the run.
    pub(in super::super) last: Seq,
    /// Time of receipt of the newest change, in milliseconds since 1970.
    pub(in super::super) received: i64,
    /// Number of keys.
    pub(in super::super) keys: usize,
}

/// Sorts keys. A key occurs twice if its event was repeated after the window; then the newest change counts.
pub(in super::super) fn in_order(mut keys: Vec<(EventKey, Seq)>) -> Vec<(EventKey, Seq)> {
    // Numbers compare faster than byte arrays.
    keys.sort_unstable_by_key(|(key, seq)| (u128::from_be_bytes(key.0), Reverse(*seq)));
    keys.dedup_by_key(|(key, _)| *key);
    keys
}

/// Returns all runs, oldest first.
pub(in super::super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut statement = connection.prepare("SELECT run, first, last, received, keys FROM key_runs ORDER BY run")?;
    let runs = statement.query_map([], |row| {
        let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        let (number, first, last, keys) = (unsigned(0)?, Seq(unsigned(1)?), Seq(unsigned(2)?), unsigned(4)?);
        Ok(Run { number, first, last, received: row.get(3)?, keys: usize::try_from(keys).unwrap_or(usize::MAX) })
    })?;
    runs.collect()
}

/// Writes a run with its sorted keys; replaces the run if it exists.
pub(in super::super) fn write(connection: &Connection, run: Run, keys: &[(EventKey, Seq)]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO key_runs (run, first, last, received, keys) VALUES (?, ?, ?, ?, ?)";
    let count = rows::number(keys.len() as u64);
    let [number, first, last] = [run.number, run.first.0, run.last.0].map(rows::number);
    connection.prepare_cached(sql)?.execute(params![number, first, last, run.received, count])?;
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO key_parts (part, keys) VALUES (?, ?)")?;
    let mut entries = Vec::new();
    for part in keys.chunk_by(|(one, _), (next, _)| part_of(run.number, *one) == part_of(run.number, *next)) {
        entries.clear();
        for (key, seq) in part {
            entries.extend_from_slice(&key.0);
            entries.extend_from_slice(&seq.0.to_be_bytes());
        }
        put.execute(params![rows::number(part_of(run.number, part[0].0)), entries])?;
    }
    Ok(())
}

/// Removes a run.
pub(in super::super) fn remove(connection: &Connection, run: Run) -> rusqlite::Result<()> {
    let parts = params![rows::number(run.number * PARTS), rows::number((run.number + 1) * PARTS)];
    connection.prepare_cached("DELETE FROM key_parts WHERE part >= ? AND part < ?")?.execute(parts)?;
    connection.prepare_cached("DELETE FROM key_runs WHERE run = ?")?.execute(params![rows::number(run.number)])?;
    Ok(())
}

/// Reads the keys of a run.
pub(in super::super) fn read(connection: &Connection, run: Run) -> Result<Vec<(EventKey, Seq)>, StoreError> {
    let mut keys = Vec::with_capacity(run.keys);
    let parts = "SELECT keys FROM key_parts WHERE part >= ? AND part < ?";
    let mut statement = connection.prepare_cached(parts)?;
    let mut result =
        statement.query(params![rows::number(run.number * PARTS), rows::number((run.number + 1) * PARTS)])?;
    while let Some(row) = result.next()? {
        keys.extend(entries(row.get_ref(0)?)?);
    }
    Ok(keys)
}

/// Calls `visit` with each key of each run, and the number of the run.
pub(in super::super) fn each(connection: &Connection, mut visit: impl FnMut(u64, EventKey)) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT part, keys FROM key_parts ORDER BY part")?;
    let mut result = statement.query([])?;
    while let Some(row) = result.next()? {
        let run = row.get::<_, i64>(0)?.unsigned_abs() / PARTS;
        entries(row.get_ref(1)?)?.for_each(|(key, _)| visit(run, key));
    }
    Ok(())
}

/// Search for keys in runs.
pub(in super::super) struct RunSearch<'a>(CachedStatement<'a>);

impl<'a> RunSearch<'a> {
    pub(in super::super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("SELECT keys FROM key_parts WHERE part = ?").map(Self)
    }

    /// Returns the change of the key, if the run has the key.
    pub(in super::super) fn find(&mut self, run: Run, key: EventKey) -> Result<Option<Seq>, StoreError> {
        let part = rows::number(part_of(run.number, key));
        let entry = self.0.query_row(params![part], |row| Ok(find(row.get_ref(0)?, key))).optional()?;
        entry.transpose().map(Option::flatten)
    }
}

fn find(part: ValueRef<'_>, key: EventKey) -> Result<Option<Seq>, StoreError> {
    let entries = slices(part)?;
    let at = entries.binary_search_by(|entry| entry[..16].cmp(&key.0));
    Ok(at.ok().map(|at| entry(&entries[at]).1))
}

fn entries(part: ValueRef<'_>) -> Result<impl Iterator<Item = (EventKey, Seq)>, StoreError> {
    Ok(slices(part)?.iter().map(entry))
}

fn slices(part: ValueRef<'_>) -> Result<&[[u8; ENTRY]], StoreError> {
    let (entries, rest) = part.as_blob().map_err(rows::damaged)?.as_chunks();
    if rest.is_empty() { Ok(entries) } else { Err(rows::damaged("a part of a run of event keys is truncated")) }
}

fn entry(entry: &[u8; ENTRY]) -> (EventKey, Seq) {
    let key = EventKey(std::array::from_fn(|byte| entry[byte]));
    (key, Seq(u64::from_be_bytes(std::array::from_fn(|byte| entry[16 + byte]))))
}

/// Returns the row number of the part of a run that would have the key.
fn part_of(run: u64, EventKey(key): EventKey) -> u64 {
    run * PARTS + u64::from(key[0]) * PARTS / 256
}
