//! Writing a batch: answers, decision and writes in one transaction.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use super::{Bounds, read, rows};
use crate::{
    journal::{
        registry::{ItemRecord, ObjectState},
        store::{Decision, EventKey, Known, NewChange, Questions, StoreError},
    },
    model::{ChangeId, Seq, State, Timestamp, Uri},
};

/// How many outdated event keys an append removes at the most, so that none takes long.
const KEYS_PRUNED_AT_ONCE: u64 = 2048;

pub(super) fn append(
    connection: &mut Connection,
    bounds: Bounds,
    floor: Seq,
    questions: &Questions,
    decide: &mut dyn FnMut(Known) -> Decision,
) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut known, held) = answer(&transaction, questions)?;
    known.head = known.head.max(floor);
    let decision = decide(known);
    for new in &decision.changes {
        insert(&transaction, new)?;
    }
    for (uri, state) in &decision.objects {
        write_object(&transaction, uri, state, held.get(uri))?;
    }
    for key in &decision.unchanged {
        let sql = "INSERT OR IGNORE INTO unchanged (key, received) VALUES (?, ?)";
        transaction.prepare_cached(sql)?.execute(params![key.0.as_slice(), decision.received.millis()])?;
    }
    if !decision.unchanged.is_empty() {
        forget_old_unchanged(&transaction, bounds, decision.received)?;
    }
    if let Some(newest) = decision.changes.last() {
        forget_old_events(&transaction, bounds, newest)?;
    }
    Ok(transaction.commit()?)
}

/// An object as it is stored: only what differs from it afterwards is written.
struct Held {
    number: i64,
    state: ObjectState,
}

fn answer(transaction: &Transaction<'_>, questions: &Questions) -> Result<(Known, BTreeMap<Uri, Held>), StoreError> {
    let (head, received) = read::newest(transaction)?;
    let mut known = Known { head, received, ..Known::default() };
    for key in &questions.keys {
        if let Some(first) = first_of(transaction, *key)? {
            known.seen.insert(*key, first);
        }
    }
    let mut unchanged = transaction.prepare_cached("SELECT 1 FROM unchanged WHERE key = ?")?;
    for key in &questions.unchanged {
        if unchanged.exists([key.0.as_slice()])? {
            known.unchanged.insert(*key);
        }
    }
    let mut taken = transaction.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
    for id in &questions.ids {
        if taken.exists([id.uuid().as_bytes().as_slice()])? {
            known.taken.insert(*id);
        }
    }
    let mut held = BTreeMap::new();
    for (uri, items) in &questions.objects {
        if let Some((number, state)) = read::object_with(transaction, uri, items)? {
            known.objects.insert(uri.clone(), state.clone());
            held.insert(uri.clone(), Held { number, state });
        }
    }
    Ok((known, held))
}

/// The change that an event has made already.
fn first_of(transaction: &Transaction<'_>, key: EventKey) -> Result<Option<(Seq, Option<ChangeId>)>, StoreError> {
    let sql = "SELECT e.seq, c.id FROM events e LEFT JOIN changes c ON c.seq = e.seq WHERE e.key = ?";
    let row = transaction
        .prepare_cached(sql)?
        .query_row([key.0.as_slice()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<Vec<u8>>>(1)?)));
    let Some((seq, id)) = row.optional()? else { return Ok(None) };
    let id = id.map(|id| Uuid::from_slice(&id).map(ChangeId::from).map_err(rows::damaged)).transpose()?;
    Ok(Some((rows::seq(seq)?, id)))
}

fn insert(transaction: &Transaction<'_>, new: &NewChange) -> Result<(), StoreError> {
    let seq = rows::number(new.change.seq.0);
    let received = new.change.received.millis();
    let id = new.change.modification.id.uuid();
    // The JSON is ours, so it is UTF-8.
    let json = std::str::from_utf8(&new.json).map_err(rows::damaged)?;
    transaction
        .prepare_cached("INSERT INTO changes (seq, id, received, checksum, json) VALUES (?, ?, ?, ?, ?)")?
        .execute(params![seq, id.as_bytes().as_slice(), received, rows::checksum(seq, &new.json), json])?;
    if let Some(key) = new.key {
        let sql = "INSERT INTO events (seq, key, received) VALUES (?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![seq, key.0.as_slice(), received])?;
    }
    Ok(())
}

fn write_object(
    transaction: &Transaction<'_>,
    uri: &Uri,
    state: &ObjectState,
    held: Option<&Held>,
) -> Result<(), StoreError> {
    let number = match held {
        Some(Held { number, state: held }) if same_row(held, state) => *number,
        _ => write_row(transaction, uri, state)?,
    };
    let unchanged = |uri, record| held.and_then(|held| held.state.items.get(uri)) == Some(record);
    let mut changed = state.items.iter().filter(|(uri, record)| !unchanged(uri, record));
    changed.try_for_each(|(uri, record)| write_item(transaction, number, uri, record))
}

/// Whether the row of the object itself is the same.
fn same_row(one: &ObjectState, other: &ObjectState) -> bool {
    one.parent == other.parent && one.types == other.types && one.purged == other.purged
}

/// Writes the row of the object itself; gives its number.
fn write_row(transaction: &Transaction<'_>, uri: &Uri, state: &ObjectState) -> Result<i64, StoreError> {
    let (parent_at, parent_confirmed) = rows::clock_columns(state.parent.clock);
    let (types_at, types_confirmed) = rows::clock_columns(state.types.clock);
    let (purged_at, purged_confirmed) = rows::clock_columns(state.purged);
    let sql = format!(
        "INSERT INTO objects (uri, {}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (uri) DO UPDATE SET
         parent = excluded.parent, parent_at = excluded.parent_at, parent_confirmed = excluded.parent_confirmed,
         types = excluded.types, types_at = excluded.types_at, types_confirmed = excluded.types_confirmed,
         purged_at = excluded.purged_at, purged_confirmed = excluded.purged_confirmed
         RETURNING object",
        rows::OBJECT_COLUMNS
    );
    let number = transaction.prepare_cached(&sql)?.query_row(
        params![
            uri.as_str(),
            state.parent.value.as_ref().map(Uri::as_str),
            parent_at,
            parent_confirmed,
            rows::to_json(&state.types.value)?,
            types_at,
            types_confirmed,
            purged_at,
            purged_confirmed,
        ],
        |row| row.get(0),
    )?;
    Ok(number)
}

fn write_item(transaction: &Transaction<'_>, object: i64, uri: &Uri, record: &ItemRecord) -> Result<(), StoreError> {
    let (existence_at, existence_confirmed) = rows::clock_columns(record.existence.clock);
    let (content_at, content_confirmed) = rows::clock_columns(record.content.clock);
    let (state_at, state_confirmed) = rows::clock_columns(record.state.clock);
    let sql = format!(
        "INSERT OR REPLACE INTO items (object, {}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows::ITEM_COLUMNS
    );
    transaction.prepare_cached(&sql)?.execute(params![
        object,
        uri.as_str(),
        record.existence.value,
        existence_at,
        existence_confirmed,
        record.content.value.as_ref().map(rows::to_json).transpose()?,
        content_at,
        content_confirmed,
        record.state.value.as_ref().map(State::as_str),
        state_at,
        state_confirmed,
        record.begins_in.as_ref().map(|beginning| beginning.state.as_str()),
        record.begins_in.as_ref().map(|beginning| beginning.at.millis()),
        record.begins_in.as_ref().and_then(|beginning| beginning.confirmed).map(Timestamp::millis),
    ])?;
    Ok(())
}

/// Forgets events that are out of the window in which repeats are known: the index over random keys
/// stays small, and appends stay as fast as on the first day.
fn forget_old_events(transaction: &Transaction<'_>, bounds: Bounds, newest: &NewChange) -> Result<(), StoreError> {
    if newest.change.seq.0 <= bounds.dedupe_events {
        return Ok(());
    }
    let Some(kept_from) = read::first_of_newest(transaction, bounds.dedupe_events)? else { return Ok(()) };
    let outdated = rows::number(kept_from.0) - 1;
    let oldest = "SELECT seq, received FROM events ORDER BY seq LIMIT 1";
    let oldest = transaction.prepare_cached(oldest)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((first, received)) = oldest else { return Ok(()) };
    let cutoff = newest.change.received.millis() - bounds.dedupe_millis;
    let first: i64 = first;
    if first > outdated || cutoff <= received {
        return Ok(());
    }
    let last = outdated.min(first.saturating_add(rows::number(KEYS_PRUNED_AT_ONCE)));
    transaction.prepare_cached("DELETE FROM events WHERE seq <= ? AND received < ?")?.execute(params![last, cutoff])?;
    Ok(())
}

/// The same for events that changed nothing.
fn forget_old_unchanged(transaction: &Transaction<'_>, bounds: Bounds, now: Timestamp) -> Result<(), StoreError> {
    let cutoff = now.millis() - bounds.dedupe_millis;
    let sql = "DELETE FROM unchanged WHERE received < ?1
               AND number <= (SELECT max(number) FROM unchanged) - ?2
               AND number < (SELECT min(number) FROM unchanged) + ?3";
    let (kept, at_once) = (rows::number(bounds.dedupe_events), rows::number(KEYS_PRUNED_AT_ONCE));
    transaction.prepare_cached(sql)?.execute(params![cutoff, kept, at_once])?;
    Ok(())
}
