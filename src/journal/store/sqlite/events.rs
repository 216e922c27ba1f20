//! The keys of events, by which a repeat is known.
//!
//! Keys are random, so a B-tree of a million of them has no page that the next batch is likely to touch
//! again: put in one by one, each key costs a page of the write-ahead log, and the more so the longer
//! the journal. So a new key is first written to `events` alone, which grows at its end, and held in
//! memory; when enough ([`Bounds::gathered_keys`]) have gathered they move to the tree `event_keys`, in the order of the keys, a
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

/// How many keys move for each new one: more than one, so that all have moved before as many have
/// gathered again.
const MOVED_FOR_EACH: usize = 2;

/// Up to which number of a change the keys are in the tree, in `meta`.
const MOVED: &str = "events_moved";

/// The keys that are not all in the tree yet. Memory follows the file: it changes when a transaction has
/// been committed, and not before.
#[derive(Default)]
pub(super) struct EventKeys {
    recent: HashMap<EventKey, Seq>,
    walk: Option<Walk>,
}

/// Keys on their way into the tree and out of it, both in the order of the keys.
struct Walk {
    coming: Vec<(EventKey, Seq)>,
    come: usize,
    leaving: Vec<(EventKey, Seq)>,
    left: usize,
}

/// What a transaction does to the keys.
pub(super) struct Written {
    new: Vec<(EventKey, Seq)>,
    walked: Walked,
}

enum Walked {
    /// Not at all.
    Stood,
    /// A walk is due, and takes these out of the tree.
    Begun { leaving: Vec<(EventKey, Seq)> },
    /// To here.
    To { come: usize, left: usize },
}

impl EventKeys {
    /// Reads what had not moved when the journal was closed.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut keys = Self::default();
        let moved: Option<i64> =
            connection.query_row("SELECT value FROM meta WHERE name = ?", [MOVED], |row| row.get(0)).optional()?;
        let mut statement = connection.prepare("SELECT key, seq FROM events WHERE seq > ? ORDER BY seq")?;
        let mut found = statement.query([moved.unwrap_or(0)])?;
        while let Some(row) = found.next()? {
            keys.recent.insert(EventKey(row.get(0)?), Seq(row.get::<_, i64>(1)?.unsigned_abs()));
        }
        Ok(keys)
    }

    /// The change of an event whose key is in memory.
    pub(super) fn gathered(&self, key: EventKey) -> Option<Seq> {
        let coming = || {
            let coming = &self.walk.as_ref()?.coming;
            coming.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| coming[at].1)
        };
        self.recent.get(&key).copied().or_else(coming)
    }

    /// Writes the keys of new changes, and moves some that have gathered.
    pub(super) fn write<'c>(
        &self,
        connection: &Connection,
        bounds: Bounds,
        changes: impl Iterator<Item = &'c NewChange>,
    ) -> Result<Written, StoreError> {
        let mut statement =
            connection.prepare_cached("INSERT OR FAIL INTO events (seq, key, received) VALUES (?, ?, ?)")?;
        let (mut new, mut newest) = (Vec::with_capacity(changes.size_hint().0), None);
        for NewChange { change, key, .. } in changes {
            newest = Some(change.received);
            if let Some(key) = key {
                statement.execute(params![rows::number(change.seq.0), key.0, change.received.millis()])?;
                new.push((*key, change.seq));
            }
        }
        let walked = match (&self.walk, newest) {
            (Some(walk), _) => walk.step(connection, new.len() * MOVED_FOR_EACH)?,
            (None, Some(newest)) if self.recent.len() >= bounds.gathered_keys => {
                Walked::Begun { leaving: outdated(connection, bounds, newest)? }
            }
            _ => Walked::Stood,
        };
        Ok(Written { new, walked })
    }

    /// The transaction is on disk.
    pub(super) fn committed(&mut self, Written { new, walked }: Written) {
        match (walked, &mut self.walk) {
            (Walked::Begun { leaving }, _) => {
                let coming = in_order(self.recent.drain());
                self.walk = Some(Walk { coming, come: 0, leaving, left: 0 });
            }
            (Walked::To { come, .. }, Some(walk)) if come == walk.coming.len() => self.walk = None,
            (Walked::To { come, left }, Some(walk)) => (walk.come, walk.left) = (come, left),
            _ => {}
        }
        self.recent.extend(new);
    }
}

impl Walk {
    /// Moves so many keys, and lets those in between leave.
    fn step(&self, connection: &Connection, keys: usize) -> Result<Walked, StoreError> {
        let come = self.coming.len().min(self.come + keys);
        let mut put = connection.prepare_cached("INSERT OR REPLACE INTO event_keys (key, seq) VALUES (?, ?)")?;
        for (key, seq) in &self.coming[self.come..come] {
            put.execute(params![key.0, rows::number(seq.0)])?;
        }
        let is_done = come == self.coming.len();
        let reached = self.coming[..come].last().map(|(key, _)| *key);
        let passed = self.leaving[self.left..].iter().take_while(|(key, _)| is_done || Some(*key) <= reached).count();
        let left = self.left + passed;
        let mut remove = connection.prepare_cached("DELETE FROM event_keys WHERE key = ? AND seq = ?")?;
        for (key, seq) in &self.leaving[self.left..left] {
            remove.execute(params![key.0, rows::number(seq.0)])?;
        }
        if is_done {
            let newest = |keys: &[(EventKey, Seq)]| keys.iter().map(|(_, seq)| rows::number(seq.0)).max();
            let mut moved = connection.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)")?;
            moved.execute(params![MOVED, newest(&self.coming)])?;
            let mut gone = connection.prepare_cached("DELETE FROM events WHERE seq <= ?")?;
            gone.execute([newest(&self.leaving)])?;
        }
        Ok(Walked::To { come, left })
    }
}

fn in_order(keys: impl Iterator<Item = (EventKey, Seq)>) -> Vec<(EventKey, Seq)> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys
}

/// The oldest keys that are out of the window, some more than come in on one walk.
fn outdated(connection: &Connection, bounds: Bounds, now: Timestamp) -> Result<Vec<(EventKey, Seq)>, StoreError> {
    let Some(kept_from) = read::first_of_newest(connection, bounds.dedupe_events)? else { return Ok(Vec::new()) };
    let cutoff = now.millis().saturating_sub(bounds.dedupe_millis);
    let sql = "SELECT key, seq, received FROM events WHERE seq < ? ORDER BY seq LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found =
        statement.query(params![rows::number(kept_from.0), rows::number(2 * bounds.gathered_keys as u64)])?;
    let mut keys = Vec::new();
    while let Some(row) = found.next()? {
        if row.get::<_, i64>(2)? >= cutoff {
            break;
        }
        keys.push((EventKey(row.get(0)?), rows::seq(row.get(1)?)?));
    }
    Ok(in_order(keys.into_iter()))
}

/// Looks up what events have made already, where their keys are not in memory.
pub(super) struct Lookup<'a> {
    connection: &'a Connection,
    bounds: Bounds,
    in_tree: CachedStatement<'a>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(connection: &'a Connection, bounds: Bounds) -> rusqlite::Result<Self> {
        let in_tree = connection.prepare_cached("SELECT seq FROM event_keys WHERE key = ?")?;
        Ok(Self { connection, bounds, in_tree })
    }

    /// The change that an event has made already.
    pub(super) fn in_tree(&mut self, key: EventKey) -> Result<Option<Seq>, StoreError> {
        let seq = self.in_tree.query_row([key.0], |row| row.get(0)).optional()?;
        seq.map(rows::seq).transpose()
    }

    /// The change's identifier, where it is still there.
    pub(super) fn id_of(&self, seq: Seq) -> Result<Option<ChangeId>, StoreError> {
        let mut id = self.connection.prepare_cached("SELECT id FROM changes WHERE seq = ?")?;
        let id = id.query_row([rows::number(seq.0)], |row| row.get::<_, [u8; 16]>(0)).optional()?;
        Ok(id.map(|id| ChangeId::from(Uuid::from_bytes(id))))
    }

    /// Whether the event is out of both windows; its key leaves the tree only on the next walk.
    pub(super) fn is_outdated(&self, seq: Seq, now: Timestamp) -> Result<bool, StoreError> {
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
