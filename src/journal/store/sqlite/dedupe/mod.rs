//! The deduplication window: the event keys by which the journal detects repeats.
//!
//! The keys form a log-structured merge tree without the merging:
//!
//! 1. A key is written to the row of its change, and to a write buffer in memory ([`EventKeys::recent`]).
//! 2. When the buffer has [`SqliteOptions::run_keys`] keys, they are written as one sorted run ([`runs`]).
//! 3. Bloom filters in memory ([`filter`]) return the runs that may have a key, so that new events cause no reads.
//! 4. The oldest run is removed as a whole when all its keys are out of the window.
//!
//! After a crash, the buffer is restored from the rows of the changes after the newest run.
//!
//! Keys are digests, so they are random. In a B-tree of a million keys, nearly every new key would modify a page of
//! its own: 8 KiB of the write-ahead log for 24 bytes.

mod filter;
pub(super) mod runs;
pub(super) mod unchanged;

use std::collections::VecDeque;

use foldhash::HashMap;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use uuid::Uuid;

use self::{
    filter::KeyFilter,
    runs::{Run, RunSearch},
};
use super::value::params;
use super::{SqliteOptions, changes, rows};
use crate::{
    journal::store::{EventKey, FirstChange, NewChange, StoreError, StoreLimits},
    model::{ChangeId, Seq, Timestamp},
};

/// Maximum number of runs, whatever the window: 33 million keys, and 64 MiB for the filters. The oldest are removed
/// first.
const MAX_RUNS: usize = 2048;

/// Event keys in memory. They change only after a transaction has been committed.
pub(super) struct EventKeys {
    /// Keys that are in no run yet.
    recent: HashMap<EventKey, Seq>,
    /// Descriptions of the runs, oldest first.
    runs: VecDeque<Run>,
    filter: KeyFilter,
}

/// Possible locations of a key.
pub(super) enum KeyLocation {
    /// The write buffer, with the change of the key.
    Buffer(Seq),
    /// One of these runs, or none.
    Runs(Vec<Run>),
}

/// Updates of the keys in memory that follow the commit of a transaction.
#[derive(Default)]
pub(super) struct KeyUpdates {
    new: Vec<(EventKey, Seq)>,
    flushed: Option<FlushedRun>,
}

/// The run to which the write buffer was flushed.
struct FlushedRun {
    run: Run,
    /// Number of old runs that were removed.
    removed: usize,
}

impl EventKeys {
    /// Loads the keys when the journal is opened.
    pub(super) fn load(connection: &Connection, options: SqliteOptions) -> Result<Self, StoreError> {
        let runs = VecDeque::from(runs::all(connection)?);
        let largest = runs.iter().map(|run| run.keys).max().unwrap_or_default();
        let oldest = runs.front().map_or(1, |run| run.number);
        let mut filter = KeyFilter::new(largest.max(options.run_keys), oldest);
        runs::each(connection, |run, key| filter.insert(run, std::iter::once(key)))?;
        let last = runs.back().map_or(Seq::ZERO, |run| run.last);
        let sql = "SELECT key, seq FROM changes WHERE seq > ? AND key IS NOT NULL ORDER BY seq";
        let mut statement = connection.prepare(sql)?;
        let mut result = statement.query(params![rows::number(last.0)])?;
        let mut recent = HashMap::default();
        while let Some(row) = result.next()? {
            recent.insert(EventKey(row.get(0)?), rows::seq(row.get(1)?)?);
        }
        Ok(Self { recent, runs, filter })
    }

    /// Returns the possible locations of a key without reading the file.
    pub(super) fn locate(&self, key: EventKey) -> KeyLocation {
        match self.recent.get(&key) {
            Some(seq) => KeyLocation::Buffer(*seq),
            None => KeyLocation::Runs(self.filter.candidate_runs(key).filter_map(|run| self.run(run)).collect()),
        }
    }

    fn run(&self, number: u64) -> Option<Run> {
        let oldest = self.runs.front()?.number;
        self.runs.get(usize::try_from(number.checked_sub(oldest)?).ok()?).copied()
    }

    /// Collects the keys of new changes, which their rows contain; flushes the buffer to a run if it is full.
    pub(super) fn write(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        changes: &[NewChange],
    ) -> Result<KeyUpdates, StoreError> {
        let new = changes.iter().filter_map(|new| Some((new.key?, new.change.seq))).collect();
        let flushed = match changes.last() {
            Some(newest) if self.recent.len() >= options.run_keys => {
                self.flush(connection, options, newest.change.received)?
            }
            _ => None,
        };
        Ok(KeyUpdates { new, flushed })
    }

    /// Flushes the buffer if it has keys of changes up to `last`, because these changes are about to be removed.
    pub(super) fn flush_up_to(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        last: Seq,
    ) -> Result<KeyUpdates, StoreError> {
        let flushed = match self.recent.values().min() {
            Some(oldest) if *oldest <= last => {
                let newest = changes::newest(connection)?.1.unwrap_or(Timestamp::EPOCH);
                self.flush(connection, options, newest)?
            }
            _ => None,
        };
        Ok(KeyUpdates { new: Vec::new(), flushed })
    }

    /// Applies the updates of a committed transaction.
    pub(super) fn apply(&mut self, KeyUpdates { new, flushed }: KeyUpdates) {
        if let Some(FlushedRun { run, removed }) = flushed {
            self.filter.insert(run.number, self.recent.drain().map(|(key, _)| key));
            if self.runs.back().is_some_and(|newest| newest.number == run.number) {
                self.runs.pop_back();
            }
            self.runs.push_back(run);
            self.runs.drain(..removed);
            self.filter.remove_before(self.runs.front().map_or(run.number, |oldest| oldest.number));
        }
        self.recent.extend(new);
    }

    /// Writes the buffer as a new run, or adds it to the newest run if that has room, and removes runs that are out
    /// of the window.
    fn flush(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        now: Timestamp,
    ) -> Result<Option<FlushedRun>, StoreError> {
        let (Some(first), Some(last)) = (self.recent.values().min(), self.recent.values().max()) else {
            return Ok(None);
        };
        let newest = self.runs.back();
        let extended = newest.filter(|run| run.keys + self.recent.len() <= options.run_keys);
        let mut keys = extended.map(|run| runs::read(connection, *run)).transpose()?.unwrap_or_default();
        keys.extend(self.recent.iter().map(|(key, seq)| (*key, *seq)));
        let keys = runs::in_order(keys);
        let run = Run {
            number: extended.map_or_else(|| newest.map_or(1, |run| run.number + 1), |run| run.number),
            first: extended.map_or(*first, |run| run.first),
            last: *last,
            received: received(connection, *last)?.unwrap_or(now.millis()),
            keys: keys.len(),
        };
        runs::write(connection, run, &keys)?;
        let removed = self.remove_outdated(connection, options.limits, now, extended.is_some())?;
        Ok(Some(FlushedRun { run, removed }))
    }

    /// Removes outdated runs, and returns their number. The newest run stays if `newest_stays`, because it is being
    /// extended.
    fn remove_outdated(
        &self,
        connection: &Connection,
        limits: StoreLimits,
        now: Timestamp,
        newest_stays: bool,
    ) -> Result<usize, StoreError> {
        let window_start = changes::first_of_newest(connection, limits.dedupe_events)?.unwrap_or_default();
        let cutoff = now.millis().saturating_sub(limits.dedupe_millis);
        let mut removed = 0;
        for run in self.runs.iter().take(self.runs.len() - usize::from(newest_stays)) {
            let is_outdated = run.last < window_start && run.received < cutoff;
            if !is_outdated && self.runs.len() - removed < MAX_RUNS {
                break;
            }
            runs::remove(connection, *run)?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// Returns the time of receipt of a change, unless retention has removed the change.
fn received(connection: &Connection, seq: Seq) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT received FROM changes WHERE seq = ?")?;
    Ok(statement.query_row(params![rows::number(seq.0)], |row| row.get(0)).optional()?)
}

/// Search for the first changes of events.
pub(super) struct FirstChangeSearch<'a> {
    connection: &'a Connection,
    limits: StoreLimits,
    run_search: RunSearch<'a>,
    change: CachedStatement<'a>,
}

impl<'a> FirstChangeSearch<'a> {
    pub(super) fn new(connection: &'a Connection, limits: StoreLimits) -> rusqlite::Result<Self> {
        let change = connection.prepare_cached("SELECT id, json FROM changes WHERE seq = ?")?;
        Ok(Self { connection, limits, run_search: RunSearch::new(connection)?, change })
    }

    /// Returns the number of the first change of an event, and the change unless retention has removed it; `None` if the
    /// event is new or out of the window.
    pub(super) fn first_change(
        &mut self,
        key: EventKey,
        location: KeyLocation,
        now: Timestamp,
    ) -> Result<Option<(Seq, Option<FirstChange>)>, StoreError> {
        let (seq, run) = match location {
            KeyLocation::Buffer(seq) => (seq, None),
            KeyLocation::Runs(runs) => match self.in_runs(key, runs)? {
                Some((seq, run)) => (seq, Some(run)),
                None => return Ok(None),
            },
        };
        if self.is_outdated(seq, run, now)? {
            return Ok(None);
        }
        let first = |row: &Row<'_>| {
            let id = ChangeId::from(Uuid::from_bytes(row.get::<_, [u8; 16]>(0)?));
            // The JSON of a damaged change need not be text.
            let json = row.get_ref(1)?.as_bytes().map(String::from_utf8_lossy).unwrap_or_default();
            Ok(FirstChange::of_json(id, &json))
        };
        Ok(Some((seq, self.change.query_row(params![rows::number(seq.0)], first).optional()?)))
    }

    fn in_runs(&mut self, key: EventKey, runs: Vec<Run>) -> Result<Option<(Seq, Run)>, StoreError> {
        for run in runs {
            if let Some(seq) = self.run_search.find(run, key)? {
                return Ok(Some((seq, run)));
            }
        }
        Ok(None)
    }

    /// Returns whether the event is out of the window, both by number and by time. A removed change counts as
    /// received with the newest change of its run.
    fn is_outdated(&self, seq: Seq, run: Option<Run>, now: Timestamp) -> Result<bool, StoreError> {
        let received = received(self.connection, seq)?.or(run.map(|run| run.received));
        let cutoff = now.millis().saturating_sub(self.limits.dedupe_millis);
        if received.is_some_and(|received| received >= cutoff) {
            return Ok(false);
        }
        let window_start = changes::first_of_newest(self.connection, self.limits.dedupe_events)?;
        Ok(window_start.is_some_and(|window_start| seq < window_start))
    }
}
