//! The keys of events, by which a repeat is known.
//!
//! Keys are random, so a B-tree of a million of them has no page that the next batch is likely to touch
//! again: put in one by one, each key costs a page of the write-ahead log, and the more so the longer
//! the journal. So a new key is first written to `events` alone, which grows at its end, and held in
//! memory; when [`RECENT`] have gathered they move to the tree `event_keys`, in the order of the keys, a
//! few with each append, so that many fall on one page and no append waits long. Keys that have left the
//! window leave the tree on the same walk. After a crash what had not moved is read from `events` again.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use uuid::Uuid;

use super::{Bounds, read, rows};
use crate::{
    journal::store::{EventKey, NewChange, StoreError},
    model::{ChangeId, Seq, Timestamp},
};

/// How many keys gather before they move on. Each takes some 40 bytes of memory.
const RECENT: usize = 32 * 1024;

/// How many keys move for each new one: more than one, so that all have moved before as many have
/// gathered again.
const MOVED_FOR_EACH: usize = 2;

/// Up to which number of a change the keys are in the tree, in `meta`.
const MOVED: &str = "events_moved";

/// The keys that are not all in the tree yet.
#[derive(Default)]
pub(super) struct EventKeys {
    recent: HashMap<EventKey, Seq>,
    walk: Option<Walk>,
    /// Whether a transaction has failed, so that memory and file may differ.
    is_stale: bool,
}

/// Keys on their way into the tree and out of it, both in the order of the keys.
struct Walk {
    coming: Vec<(EventKey, Seq)>,
    come: usize,
    leaving: Vec<(EventKey, Seq)>,
    left: usize,
}

impl EventKeys {
    /// Reads what had not moved when the journal was closed.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut keys = Self::default();
        let moved: Option<i64> = connection
            .prepare_cached("SELECT value FROM meta WHERE name = ?")?
            .query_row([MOVED], |row| row.get(0))
            .optional()?;
        let mut statement = connection.prepare_cached("SELECT key, seq FROM events WHERE seq > ? ORDER BY seq")?;
        let mut found = statement.query([moved.unwrap_or(0)])?;
        while let Some(row) = found.next()? {
            keys.recent.insert(EventKey(row.get(0)?), Seq(row.get::<_, i64>(1)?.unsigned_abs()));
        }
        Ok(keys)
    }

    /// Begins an append: what an earlier one left unsure is read anew.
    pub(super) fn begin(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.is_stale {
            *self = Self::load(connection)?;
        }
        self.is_stale = true;
        Ok(())
    }

    /// Writes the keys of new changes, and moves some that have gathered.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        bounds: Bounds,
        changes: &[NewChange],
    ) -> Result<(), StoreError> {
        let mut statement = connection.prepare_cached("INSERT INTO events (seq, key, received) VALUES (?, ?, ?)")?;
        let mut new = 0;
        for change in changes {
            let Some(key) = change.key else { continue };
            let Change { seq, received } = Change::of(change);
            statement.execute(params![rows::number(seq.0), key.0, received.millis()])?;
            self.recent.insert(key, seq);
            new += 1;
        }
        drop(statement);
        if let Some(walk) = &mut self.walk {
            if walk.step(connection, new * MOVED_FOR_EACH)? {
                self.walk = None;
            }
        } else if let Some(newest) = changes.last().filter(|_| self.recent.len() >= RECENT) {
            self.walk = Some(Walk {
                coming: in_order(self.recent.drain()),
                come: 0,
                leaving: outdated(connection, bounds, Change::of(newest))?,
                left: 0,
            });
        }
        Ok(())
    }

    /// The append is on disk.
    pub(super) fn committed(&mut self) {
        self.is_stale = false;
    }

    fn gathered(&self, key: EventKey) -> Option<Seq> {
        let coming = || {
            let coming = &self.walk.as_ref()?.coming;
            coming.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| coming[at].1)
        };
        self.recent.get(&key).copied().or_else(coming)
    }
}

impl Walk {
    /// Moves so many keys, and lets those in between leave; says whether that was the end.
    fn step(&mut self, connection: &Connection, keys: usize) -> Result<bool, StoreError> {
        let end = self.coming.len().min(self.come + keys);
        let mut put = connection.prepare_cached("INSERT OR REPLACE INTO event_keys (key, seq) VALUES (?, ?)")?;
        for (key, seq) in &self.coming[self.come..end] {
            put.execute(params![key.0, rows::number(seq.0)])?;
        }
        let is_done = end == self.coming.len();
        let reached = self.coming[..end].last().map(|(key, _)| *key);
        let passed = self.leaving[self.left..].iter().take_while(|(key, _)| is_done || Some(*key) <= reached).count();
        let mut remove = connection.prepare_cached("DELETE FROM event_keys WHERE key = ? AND seq = ?")?;
        for (key, seq) in &self.leaving[self.left..self.left + passed] {
            remove.execute(params![key.0, rows::number(seq.0)])?;
        }
        (self.come, self.left) = (end, self.left + passed);
        if is_done {
            let newest = |keys: &[(EventKey, Seq)]| keys.iter().map(|(_, seq)| rows::number(seq.0)).max();
            let mut moved = connection.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)")?;
            moved.execute(params![MOVED, newest(&self.coming)])?;
            let mut gone = connection.prepare_cached("DELETE FROM events WHERE seq <= ?")?;
            gone.execute([newest(&self.leaving)])?;
        }
        Ok(is_done)
    }
}

/// What an event's window is measured by.
#[derive(Clone, Copy)]
struct Change {
    seq: Seq,
    received: Timestamp,
}

impl Change {
    fn of(new: &NewChange) -> Self {
        Self { seq: new.change.seq, received: new.change.received }
    }
}

fn in_order(keys: impl Iterator<Item = (EventKey, Seq)>) -> Vec<(EventKey, Seq)> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys
}

/// The oldest keys that are out of the window, some more than come in on one walk.
fn outdated(connection: &Connection, bounds: Bounds, newest: Change) -> Result<Vec<(EventKey, Seq)>, StoreError> {
    let Some(kept_from) = read::first_of_newest(connection, bounds.dedupe_events)? else { return Ok(Vec::new()) };
    let cutoff = newest.received.millis().saturating_sub(bounds.dedupe_millis);
    let sql = "SELECT key, seq, received FROM events WHERE seq < ? ORDER BY seq LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![rows::number(kept_from.0), rows::number(2 * RECENT as u64)])?;
    let mut keys = Vec::new();
    while let Some(row) = found.next()? {
        if row.get::<_, i64>(2)? >= cutoff {
            break;
        }
        keys.push((EventKey(row.get(0)?), rows::seq(row.get(1)?)?));
    }
    Ok(in_order(keys.into_iter()))
}

/// Looks up what events have made already.
pub(super) struct Lookup<'a> {
    keys: &'a EventKeys,
    connection: &'a Connection,
    bounds: Bounds,
    in_tree: CachedStatement<'a>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(keys: &'a EventKeys, connection: &'a Connection, bounds: Bounds) -> rusqlite::Result<Self> {
        let in_tree = connection.prepare_cached("SELECT seq FROM event_keys WHERE key = ?")?;
        Ok(Self { keys, connection, bounds, in_tree })
    }

    /// The change that an event has made already, if that was within the window: its number, and its
    /// identifier where it is still there.
    pub(super) fn first_of(
        &mut self,
        key: EventKey,
        now: Timestamp,
    ) -> Result<Option<(Seq, Option<ChangeId>)>, StoreError> {
        let seq = match self.keys.gathered(key) {
            Some(seq) => seq,
            None => match self.in_tree.query_row([key.0], |row| row.get(0)).optional()? {
                Some(seq) => rows::seq(seq)?,
                None => return Ok(None),
            },
        };
        if self.is_outdated(seq, now)? {
            return Ok(None);
        }
        let mut id = self.connection.prepare_cached("SELECT id FROM changes WHERE seq = ?")?;
        let id = id.query_row([rows::number(seq.0)], |row| row.get::<_, [u8; 16]>(0)).optional()?;
        Ok(Some((seq, id.map(|id| ChangeId::from(Uuid::from_bytes(id))))))
    }

    /// Whether the event is out of both windows; its key leaves the tree only on the next walk.
    fn is_outdated(&self, seq: Seq, now: Timestamp) -> Result<bool, StoreError> {
        let mut received = self.connection.prepare_cached("SELECT received FROM events WHERE seq = ?")?;
        let received: Option<i64> = received.query_row([rows::number(seq.0)], |row| row.get(0)).optional()?;
        let cutoff = now.millis().saturating_sub(self.bounds.dedupe_millis);
        if received.is_some_and(|received| received >= cutoff) {
            return Ok(false);
        }
        let kept_from = read::first_of_newest(self.connection, self.bounds.dedupe_events)?;
        Ok(kept_from.is_some_and(|kept_from| seq < kept_from))
    }
}
