//! Runs of event keys in the file: the keys of a run of changes, in their own order, and never moved again.
//!
//! A run is cut into parts by the first bits of the keys, so that one row is read to look for a key. Keys are random and so
//! fall evenly; a part has about a page.

use std::cmp::Reverse;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params, types::ValueRef};

use super::rows;
use crate::{
    journal::store::{EventKey, StoreError},
    model::Seq,
};

/// How many keys a run has, where nothing else is set: a part of as many fills most of a page.
pub(in super::super) const USUAL: usize = 16 * 1024;

/// Into how many parts a run is cut.
const PARTS: u64 = 64;

/// A key, and the number of its change with the highest byte first.
const ENTRY: usize = 16 + 8;

/// A run, without its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Run {
    /// Its number; each is one more than that of the run before.
    pub(in super::super) number: u64,
    /// The oldest of its changes, …
    pub(in super::super) first: Seq,
    /// … the newest, …
    pub(in super::super) last: Seq,
    /// … and when that was received, in milliseconds since 1970.
    pub(in super::super) received: i64,
    /// How many keys it has.
    pub(in super::super) keys: usize,
}

/// Puts keys in their order. Of a key that is there twice, since it came again after the window, the newest change counts.
pub(in super::super) fn in_order(mut keys: Vec<(EventKey, Seq)>) -> Vec<(EventKey, Seq)> {
    // As numbers they compare faster than octet by octet.
    keys.sort_unstable_by_key(|(key, seq)| (u128::from_be_bytes(key.0), Reverse(*seq)));
    keys.dedup_by_key(|(key, _)| *key);
    keys
}

/// Every run, oldest first.
pub(in super::super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut statement = connection.prepare("SELECT run, first, last, received, keys FROM key_runs ORDER BY run")?;
    let found = statement.query_map([], |row| {
        let whole = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        let (number, first, last, keys) = (whole(0)?, Seq(whole(1)?), Seq(whole(2)?), whole(4)?);
        Ok(Run { number, first, last, received: row.get(3)?, keys: usize::try_from(keys).unwrap_or(usize::MAX) })
    })?;
    found.collect()
}

/// Writes a run with its keys, which are in their order, in place of what it had before.
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
    connection.prepare_cached("DELETE FROM key_runs WHERE run = ?")?.execute([rows::number(run.number)])?;
    Ok(())
}

/// The keys of a run.
pub(in super::super) fn read(connection: &Connection, run: Run) -> Result<Vec<(EventKey, Seq)>, StoreError> {
    let mut keys = Vec::with_capacity(run.keys);
    let parts = "SELECT keys FROM key_parts WHERE part >= ? AND part < ?";
    let mut statement = connection.prepare_cached(parts)?;
    let mut found = statement.query([rows::number(run.number * PARTS), rows::number((run.number + 1) * PARTS)])?;
    while let Some(row) = found.next()? {
        keys.extend(entries(row.get_ref(0)?)?);
    }
    Ok(keys)
}

/// Every key that is in a run, with the number of that run.
pub(in super::super) fn each(connection: &Connection, mut take: impl FnMut(u64, EventKey)) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT part, keys FROM key_parts ORDER BY part")?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let run = row.get::<_, i64>(0)?.unsigned_abs() / PARTS;
        entries(row.get_ref(1)?)?.for_each(|(key, _)| take(run, key));
    }
    Ok(())
}

/// Looks for keys in runs.
pub(in super::super) struct Finding<'a>(CachedStatement<'a>);

impl<'a> Finding<'a> {
    pub(in super::super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("SELECT keys FROM key_parts WHERE part = ?").map(Self)
    }

    /// The change of that key, if the run has it.
    pub(in super::super) fn find(&mut self, run: Run, key: EventKey) -> Result<Option<Seq>, StoreError> {
        let part = rows::number(part_of(run.number, key));
        let found = self.0.query_row([part], |row| Ok(find(row.get_ref(0)?, key))).optional()?;
        found.transpose().map(Option::flatten)
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
    if rest.is_empty() { Ok(entries) } else { Err(rows::damaged("a part of a run of event keys is cut short")) }
}

fn entry(entry: &[u8; ENTRY]) -> (EventKey, Seq) {
    let key = EventKey(std::array::from_fn(|byte| entry[byte]));
    (key, Seq(u64::from_be_bytes(std::array::from_fn(|byte| entry[16 + byte]))))
}

/// The row of the part in which a run has a key, if it has it.
fn part_of(run: u64, EventKey(key): EventKey) -> u64 {
    run * PARTS + u64::from(key[0]) * PARTS / 256
}
