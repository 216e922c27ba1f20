//! The dedupe window: the keys of events, by which a repeat is known.
//!
//! This is a log-structured merge tree without the merging:
//!
//! 1. A key is written in the row of its change, and put into a write buffer in memory ([`EventKeys::recent`]).
//! 2. When the buffer has [`SqliteOptions::run_keys`] keys, they are written as one sorted run ([`runs`]).
//! 3. A Bloom filter for each run ([`filter`]) tells in memory which runs may have a key, so that new events read nothing.
//! 4. The oldest run is removed as a whole once all its keys are out of the window.
//!
//! After a crash the buffer is read again from the rows of the changes after the newest run.
//!
//! Keys are digests, so they are random. In one B-tree of a million keys nearly every key would dirty a page of its own: 8 KiB
//! of the write-ahead log for 24 octets.

mod filter;
pub(super) mod runs;
pub(super) mod unchanged;

use std::collections::VecDeque;

use foldhash::HashMap;
use rusqlite::{CachedStatement, Connection, OptionalExtension};
use uuid::Uuid;

use self::{
    filter::KeyFilter,
    runs::{Finding, Run},
};
use super::{SqliteOptions, changes, rows};
use crate::{
    journal::store::{EventKey, NewChange, StoreError, StoreLimits},
    model::{ChangeId, Seq, Timestamp},
};

/// How many runs there are at the most, whatever the window: 33 million keys, and 64 MiB for the filter. The oldest go first.
const MOST_RUNS: usize = 2048;

/// What is in memory of the keys. It follows the file: it changes when a transaction has been committed, and not before.
pub(super) struct EventKeys {
    /// Those that are in no run yet.
    recent: HashMap<EventKey, Seq>,
    /// The runs, oldest first.
    runs: VecDeque<Run>,
    filter: KeyFilter,
}

/// What memory knows of a key.
pub(super) enum Held {
    /// It is that of this change.
    Known(Seq),
    /// It may be in one of these runs, and nowhere else.
    Perhaps(Vec<Run>),
}

/// What a transaction does to the keys.
#[derive(Default)]
pub(super) struct Written {
    new: Vec<(EventKey, Seq)>,
    gathered: Option<NewRun>,
}

/// All that had gathered, as a run.
struct NewRun {
    run: Run,
    /// How many of the oldest runs went.
    gone: usize,
}

impl EventKeys {
    /// Reads what there is when the journal is opened.
    pub(super) fn load(connection: &Connection, options: SqliteOptions) -> Result<Self, StoreError> {
        let runs = VecDeque::from(runs::all(connection)?);
        let largest = runs.iter().map(|run| run.keys).max().unwrap_or_default();
        let oldest = runs.front().map_or(1, |run| run.number);
        let mut filter = KeyFilter::new(largest.max(options.run_keys), oldest);
        runs::each(connection, |run, key| filter.insert(run, std::iter::once(key)))?;
        let last = runs.back().map_or(Seq::ZERO, |run| run.last);
        let sql = "SELECT key, seq FROM changes WHERE seq > ? AND key IS NOT NULL ORDER BY seq";
        let mut statement = connection.prepare(sql)?;
        let mut found = statement.query([rows::number(last.0)])?;
        let mut recent = HashMap::default();
        while let Some(row) = found.next()? {
            recent.insert(EventKey(row.get(0)?), rows::seq(row.get(1)?)?);
        }
        Ok(Self { recent, runs, filter })
    }

    /// What is known of a key without asking the file.
    pub(super) fn held(&self, key: EventKey) -> Held {
        match self.recent.get(&key) {
            Some(seq) => Held::Known(*seq),
            None => Held::Perhaps(self.filter.may_have(key).filter_map(|run| self.run(run)).collect()),
        }
    }

    fn run(&self, number: u64) -> Option<Run> {
        let oldest = self.runs.front()?.number;
        self.runs.get(usize::try_from(number.checked_sub(oldest)?).ok()?).copied()
    }

    /// What the keys of new changes do, which stand in their rows; writes a run if enough have gathered.
    pub(super) fn write(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        changes: &[NewChange],
    ) -> Result<Written, StoreError> {
        let new = changes.iter().filter_map(|new| Some((new.key?, new.change.seq))).collect();
        let gathered = match changes.last() {
            Some(newest) if self.recent.len() >= options.run_keys => {
                self.gather(connection, options, newest.change.received)?
            }
            _ => None,
        };
        Ok(Written { new, gathered })
    }

    /// Has the keys of changes up to `last` in a run, since those are about to go.
    pub(super) fn write_up_to(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        last: Seq,
    ) -> Result<Written, StoreError> {
        let gathered = match self.recent.values().min() {
            Some(oldest) if *oldest <= last => {
                let newest = changes::newest(connection)?.1.unwrap_or(Timestamp::EPOCH);
                self.gather(connection, options, newest)?
            }
            _ => None,
        };
        Ok(Written { new: Vec::new(), gathered })
    }

    /// The transaction is on disk.
    pub(super) fn committed(&mut self, Written { new, gathered }: Written) {
        if let Some(NewRun { run, gone }) = gathered {
            self.filter.insert(run.number, self.recent.drain().map(|(key, _)| key));
            if self.runs.back().is_some_and(|newest| newest.number == run.number) {
                self.runs.pop_back();
            }
            self.runs.push_back(run);
            self.runs.drain(..gone);
            self.filter.forget_before(self.runs.front().map_or(run.number, |oldest| oldest.number));
        }
        self.recent.extend(new);
    }

    /// Writes what has gathered as a run, or adds it to the newest one where that has room, and removes those that are
    /// out of the window.
    fn gather(
        &self,
        connection: &Connection,
        options: SqliteOptions,
        now: Timestamp,
    ) -> Result<Option<NewRun>, StoreError> {
        let (Some(first), Some(last)) = (self.recent.values().min(), self.recent.values().max()) else {
            return Ok(None);
        };
        let newest = self.runs.back();
        let widened = newest.filter(|run| run.keys + self.recent.len() <= options.run_keys);
        let mut keys = widened.map(|run| runs::read(connection, *run)).transpose()?.unwrap_or_default();
        keys.extend(self.recent.iter().map(|(key, seq)| (*key, *seq)));
        let keys = runs::in_order(keys);
        let run = Run {
            number: widened.map_or_else(|| newest.map_or(1, |run| run.number + 1), |run| run.number),
            first: widened.map_or(*first, |run| run.first),
            last: *last,
            received: received(connection, *last)?.unwrap_or(now.millis()),
            keys: keys.len(),
        };
        runs::write(connection, run, &keys)?;
        Ok(Some(NewRun { run, gone: self.remove_outdated(connection, options.limits, now, widened.is_some())? }))
    }

    /// Removes the oldest runs, but for the newest one where that is being written; says how many.
    fn remove_outdated(
        &self,
        connection: &Connection,
        limits: StoreLimits,
        now: Timestamp,
        newest_stays: bool,
    ) -> Result<usize, StoreError> {
        let kept_from = changes::first_of_newest(connection, limits.dedupe_events)?.unwrap_or_default();
        let cutoff = now.millis().saturating_sub(limits.dedupe_millis);
        let mut gone = 0;
        for run in self.runs.iter().take(self.runs.len() - usize::from(newest_stays)) {
            let is_outdated = run.last < kept_from && run.received < cutoff;
            if !is_outdated && self.runs.len() - gone < MOST_RUNS {
                break;
            }
            runs::remove(connection, *run)?;
            gone += 1;
        }
        Ok(gone)
    }
}

/// When a change was received, if it is still there.
fn received(connection: &Connection, seq: Seq) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT received FROM changes WHERE seq = ?")?;
    Ok(statement.query_row([rows::number(seq.0)], |row| row.get(0)).optional()?)
}

/// Looks up what events have made already.
pub(super) struct Lookup<'a> {
    connection: &'a Connection,
    limits: StoreLimits,
    finding: Finding<'a>,
    id: CachedStatement<'a>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(connection: &'a Connection, limits: StoreLimits) -> rusqlite::Result<Self> {
        let id = connection.prepare_cached("SELECT id FROM changes WHERE seq = ?")?;
        Ok(Self { connection, limits, finding: Finding::new(connection)?, id })
    }

    /// The change that an event has made, and its identifier where it is still there; `None` where the event is
    /// new, or out of the window.
    pub(super) fn change(
        &mut self,
        key: EventKey,
        held: Held,
        now: Timestamp,
    ) -> Result<Option<(Seq, Option<ChangeId>)>, StoreError> {
        let (seq, run) = match held {
            Held::Known(seq) => (seq, None),
            Held::Perhaps(runs) => match self.in_runs(key, runs)? {
                Some((seq, run)) => (seq, Some(run)),
                None => return Ok(None),
            },
        };
        if self.is_outdated(seq, run, now)? {
            return Ok(None);
        }
        let id = self.id.query_row([rows::number(seq.0)], |row| row.get::<_, [u8; 16]>(0)).optional()?;
        Ok(Some((seq, id.map(|id| ChangeId::from(Uuid::from_bytes(id))))))
    }

    fn in_runs(&mut self, key: EventKey, runs: Vec<Run>) -> Result<Option<(Seq, Run)>, StoreError> {
        for run in runs {
            if let Some(seq) = self.finding.find(run, key)? {
                return Ok(Some((seq, run)));
            }
        }
        Ok(None)
    }

    /// Whether the event is out of both windows; its key leaves with its run. Where the change is gone it counts
    /// as received with the newest of its run.
    fn is_outdated(&self, seq: Seq, run: Option<Run>, now: Timestamp) -> Result<bool, StoreError> {
        let received = received(self.connection, seq)?.or(run.map(|run| run.received));
        let cutoff = now.millis().saturating_sub(self.limits.dedupe_millis);
        if received.is_some_and(|received| received >= cutoff) {
            return Ok(false);
        }
        let kept_from = changes::first_of_newest(self.connection, self.limits.dedupe_events)?;
        Ok(kept_from.is_some_and(|kept_from| seq < kept_from))
    }
}

/// Writes the keys of a journal of version 5 as runs, in the order of their changes.
pub(super) fn move_from_tree(connection: &Connection) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT key, seq, received FROM events ORDER BY seq")?;
    let mut found = statement.query([])?;
    let (mut keys, mut run) = (Vec::with_capacity(runs::USUAL), None::<Run>);
    let mut number = 1;
    while let Some(row) = found.next()? {
        let (key, seq) = (EventKey(row.get(0)?), Seq(row.get::<_, i64>(1)?.unsigned_abs()));
        keys.push((key, seq));
        let first = run.map_or(seq, |run| run.first);
        let widened = Run { number, first, last: seq, received: row.get(2)?, keys: keys.len() };
        run = Some(widened);
        if keys.len() == runs::USUAL {
            runs::write(connection, widened, &runs::in_order(std::mem::take(&mut keys)))?;
            run = None;
            number += 1;
        }
    }
    Ok(run.map_or(Ok(()), |run| runs::write(connection, run, &runs::in_order(keys)))?)
}
