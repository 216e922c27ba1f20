//! The deduplication window: the event keys by which the journal detects repeats.
//!
//! A key is 16 octets of a digest, stored as a `uuid`, which is the smallest type for it. A lookup compares each key
//! with the window, so a repeat is judged correctly whether or not maintenance has removed the key yet.

use foldhash::{HashMap, HashSet};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{changes, connection::Session, row};
use crate::{
    journal::store::{EventKey, FirstChange, NewChange, StoreError, StoreLimits, WriteBatch, rows},
    model::{ChangeId, Seq, Timestamp},
};

/// Maximum number of keys that one statement of the maintenance removes.
const REMOVED_AT_ONCE: i64 = 1024;

pub(super) const FIND: &str = r#"SELECT k.key, k.seq, c.id, substring(c.json FROM '"object":"[^"]*"')
    FROM event_keys k LEFT JOIN changes c ON c.seq = k.seq
    WHERE k.key = ANY($1::uuid[]) AND (k.received >= $2 OR k.seq >= $3)"#;

pub(super) const FIND_UNCHANGED: &str = "SELECT key FROM unchanged WHERE key = ANY($1::uuid[])
    AND (received >= $2 OR number > (SELECT max(number) FROM unchanged) - $3)";

/// Statement that writes the keys of changes. A key exists already if its event was repeated after the window.
pub(super) const WRITE: &str = "INSERT INTO event_keys (key, seq, received)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])
    ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, received = excluded.received";

/// Statement that writes the keys of events without effect, numbered without gaps. A key that the table has already
/// keeps its number, as long as it is in the window.
pub(super) const WRITE_UNCHANGED: &str = "INSERT INTO unchanged (key, number, received)
    SELECT n.key, (SELECT coalesce(max(number), 0) FROM unchanged) + row_number() OVER (ORDER BY n.position), $2::bigint
    FROM unnest($1::uuid[]) WITH ORDINALITY AS n(key, position)
    WHERE NOT EXISTS (SELECT FROM unchanged u WHERE u.key = n.key)";

const REMOVE: &str = "DELETE FROM event_keys WHERE seq IN (
        SELECT seq FROM (SELECT seq, received FROM event_keys WHERE seq < $1 ORDER BY seq LIMIT $3) AS oldest
        WHERE received < $2)
    AND seq < $1 AND received < $2";

const REMOVE_UNCHANGED: &str = "DELETE FROM unchanged WHERE number IN (
        SELECT number FROM (SELECT number, received FROM unchanged ORDER BY number LIMIT $3) AS oldest
        WHERE received < $1 AND number <= (SELECT max(number) FROM unchanged) - $2)";

/// Bounds of the window. A key is in the window by its time or by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Oldest time of receipt in the window, in milliseconds since 1970.
    since: i64,
    /// Number of the oldest change in the window.
    first: i64,
    /// Number of keys of events without effect in the window.
    events: i64,
}

impl Window {
    pub(super) fn new(limits: StoreLimits, now: Timestamp, head: Seq, restores: &[(Seq, Seq)]) -> Self {
        let events = limits.dedupe_events;
        Self {
            since: now.millis().saturating_sub(limits.dedupe_millis),
            first: rows::number(changes::first_of(head, restores, events).0),
            events: rows::number(events),
        }
    }
}

fn uuid(key: EventKey) -> Uuid {
    Uuid::from_bytes(key.0)
}

fn read_key(found: &Row) -> Result<EventKey, StoreError> {
    Ok(EventKey(row::get::<Uuid>(found, 0)?.into_bytes()))
}

/// Returns the number of the first change of each event, and the change unless retention has removed it.
pub(super) async fn first_changes(
    session: &Session,
    window: Window,
    keys: &[EventKey],
) -> Result<HashMap<EventKey, (Seq, Option<FirstChange>)>, StoreError> {
    if keys.is_empty() {
        return Ok(HashMap::default());
    }
    let keys: Vec<Uuid> = keys.iter().copied().map(uuid).collect();
    let found = session.query(FIND, &[&keys, &window.since, &window.first]).await?;
    let read = |found: &Row| {
        let id: Option<Uuid> = row::get(found, 2)?;
        let json: Option<&str> = row::get(found, 3)?;
        let first = id.map(|id| FirstChange::of_json(ChangeId::from(id), json.unwrap_or_default()));
        Ok((read_key(found)?, (row::seq(found, 1)?, first)))
    };
    found.iter().map(read).collect()
}

/// Returns which of these events are recorded as without effect.
pub(super) async fn find_unchanged(
    session: &Session,
    window: Window,
    keys: &[EventKey],
) -> Result<HashSet<EventKey>, StoreError> {
    if keys.is_empty() {
        return Ok(HashSet::default());
    }
    let keys: Vec<Uuid> = keys.iter().copied().map(uuid).collect();
    let found = session.query(FIND_UNCHANGED, &[&keys, &window.since, &window.events]).await?;
    found.iter().map(read_key).collect()
}

/// Writes the keys of new changes.
pub(super) async fn write(session: &Session, changes: &[NewChange]) -> Result<(), StoreError> {
    // One statement cannot update a row twice, so the last change of a key counts, as it would one by one.
    let mut newest: HashMap<EventKey, (i64, i64)> = HashMap::default();
    for NewChange { change, key, .. } in changes {
        newest.extend(key.map(|key| (key, (rows::number(change.seq.0), change.received.millis()))));
    }
    if newest.is_empty() {
        return Ok(());
    }
    let (mut keys, mut seqs, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for (key, (seq, at)) in newest {
        keys.push(uuid(key));
        seqs.push(seq);
        received.push(at);
    }
    session.execute(WRITE, &[&keys, &seqs, &received]).await?;
    Ok(())
}

/// Writes the keys of events without effect.
pub(super) async fn write_unchanged(session: &Session, batch: &WriteBatch) -> Result<(), StoreError> {
    if batch.unchanged.is_empty() {
        return Ok(());
    }
    let mut known = HashSet::default();
    let new = batch.unchanged.iter().copied().filter(|key| known.insert(*key));
    let keys: Vec<Uuid> = new.map(uuid).collect();
    session.execute(WRITE_UNCHANGED, &[&keys, &batch.received.millis()]).await?;
    Ok(())
}

/// Removes keys that are out of the window, in short transactions.
pub(super) async fn trim(session: &Session, limits: StoreLimits) -> Result<(), StoreError> {
    let (head, _) = changes::head(session).await?;
    let window = Window::new(limits, Timestamp::now(), head, &changes::restores(session).await?);
    let remove = async || session.execute(REMOVE, &[&window.first, &window.since, &REMOVED_AT_ONCE]).await;
    while remove().await? > 0 {}
    let remove = async || session.execute(REMOVE_UNCHANGED, &[&window.since, &window.events, &REMOVED_AT_ONCE]).await;
    while remove().await? > 0 {}
    Ok(())
}
