//! What events confirmed that are in no change, until the registry's tables hold it; and the registry told again from
//! the changes, from this and from what walks told ([`seeds`]), when a journal is opened.

use std::{collections::hash_map::Entry, sync::Arc};

use foldhash::HashMap;
use rusqlite::{Connection, Row, params};

use super::{
    gathered::{Gathered, Mark, Objects},
    held::Held,
    objects, read, rows, seeds,
};
use crate::{
    journal::{
        registry::{Beginning, ItemRecord, ObjectState},
        seed::Filled,
        store::{Confirmed, ItemsAsked, Packed, StoreError, Touched, packed::Packing},
    },
    model::{Change, Seq, Timestamp, Uri},
};

const INSERT: &str = "INSERT OR FAIL INTO confirmations (number, seq, object, item, purged_confirmed, \
     existence_confirmed, content_confirmed, state_confirmed, begins_in, begins_in_at, begins_in_confirmed) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const READ: &str = "SELECT number, seq, object, item, purged_confirmed, existence_confirmed, content_confirmed, \
     state_confirmed, begins_in, begins_in_at, begins_in_confirmed FROM confirmations WHERE number > ? ORDER BY number";

/// Writes what was confirmed of objects, as it is after the change `after.change`, as the rows that follow `after`; gives the
/// moment with them.
pub(super) fn write(connection: &Connection, after: Mark, touched: &[Touched]) -> Result<Mark, StoreError> {
    let mut mark = after;
    for Touched { uri, confirmed, .. } in touched {
        let Some(Confirmed { state, purged, items }) = confirmed else { continue };
        if *purged {
            mark.confirmation += 1;
            insert(connection, mark, uri, None, &ItemRecord::default(), state.purged.confirmed)?;
        }
        for item in items {
            if let Some(record) = state.items.get(item) {
                mark.confirmation += 1;
                insert(connection, mark, uri, Some(item), record, None)?;
            }
        }
    }
    Ok(mark)
}

fn insert(
    connection: &Connection,
    at: Mark,
    object: &Uri,
    item: Option<&Uri>,
    record: &ItemRecord,
    purged: Option<Timestamp>,
) -> Result<(), StoreError> {
    let beginning = record.begins_in.as_ref();
    connection.prepare_cached(INSERT)?.execute(params![
        at.confirmation,
        rows::number(at.change.0),
        object.as_str(),
        item.map(Uri::as_str),
        purged.map(Timestamp::millis),
        record.existence.clock.confirmed.map(Timestamp::millis),
        record.content.clock.confirmed.map(Timestamp::millis),
        record.state.clock.confirmed.map(Timestamp::millis),
        beginning.map(|beginning| beginning.state.as_str()),
        beginning.map(|beginning| beginning.at.millis()),
        beginning.and_then(|beginning| beginning.confirmed).map(Timestamp::millis),
    ])?;
    Ok(())
}

/// A row: what was confirmed as of its moment. It is the whole of what is confirmed of the item, so that it stands
/// whatever is there when it is told again.
struct Confirmation {
    /// The newest change at its moment.
    change: Seq,
    number: i64,
    object: Uri,
    item: Option<Uri>,
    purged: Option<Timestamp>,
    existence: Option<Timestamp>,
    content: Option<Timestamp>,
    state: Option<Timestamp>,
    begins_in: Option<Beginning>,
}

impl Confirmation {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        let time = |index| row.get::<_, Option<i64>>(index)?.map(rows::time).transpose();
        Ok(Self {
            change: rows::seq(row.get(1)?)?,
            number: row.get(0)?,
            object: rows::uri(&row.get::<_, String>(2)?)?,
            item: row.get::<_, Option<String>>(3)?.as_deref().map(rows::uri).transpose()?,
            purged: time(4)?,
            existence: time(5)?,
            content: time(6)?,
            state: time(7)?,
            begins_in: rows::beginning(row, 8)?,
        })
    }

    fn tell(self, state: &mut ObjectState) {
        let Some(item) = self.item else {
            state.purged.confirmed = self.purged;
            return;
        };
        if let Some(record) = state.items.get_mut(&item) {
            record.existence.clock.confirmed = self.existence;
            record.content.clock.confirmed = self.content;
            record.state.clock.confirmed = self.state;
            record.begins_in = self.begins_in;
        }
    }
}

/// Tells again what the tables do not hold for certain.
pub(super) fn load(connection: &Connection) -> Result<Gathered, StoreError> {
    let moved = Mark::read(connection)?;
    let mut telling = Telling { reading: objects::Reading::new(connection)?, objects: HashMap::default() };
    let (mut newest, mut told) = (moved, 0);
    let mut seeds = connection.prepare(seeds::reading(connection)?)?;
    let mut seeds = seeds::Rows::of(seeds.query([moved.seed])?)?;
    let mut confirmations = connection.prepare(READ)?;
    let mut confirmations = confirmations.query([moved.confirmation])?;
    let mut confirmation = confirmations.next()?.map(Confirmation::read).transpose()?;
    let mut changes =
        connection.prepare("SELECT seq, checksum, json, sight FROM changes WHERE seq > ? ORDER BY seq")?;
    let mut changes = changes.query([rows::number(moved.change.0)])?;
    loop {
        let change = changes.next()?;
        let number = change.map(|row| row.get::<_, i64>(0)).transpose()?.map(rows::seq).transpose()?;
        // What was seeded, and then what was confirmed, before this change, or after the last one.
        while let Some(due) = seeds.before(number)? {
            newest.seed = due.number;
            telling.held(&due.object, due.filled.items())?.filled(&due.filled);
            told += 1;
        }
        while let Some(due) = confirmation.take_if(|due| number.is_none_or(|number| due.change < number)) {
            newest.confirmation = due.number;
            telling.held(&due.object, due.item.iter())?.confirmed(due);
            told += 1;
            confirmation = confirmations.next()?.map(Confirmation::read).transpose()?;
        }
        let (Some(change), Some(number)) = (change, number) else { break };
        newest.change = number;
        told += 1;
        match read_change(change) {
            Ok(change) => telling.take(&change)?,
            // It is not served to anybody either; `verify` tells of it.
            Err(error) => tracing::error!(%error, "the registry does not have what a change told"),
        }
    }
    let mut packing = Packing::default();
    let objects = telling.objects.into_iter().map(|(uri, told)| (uri, told.held(&mut packing))).collect();
    Ok(Gathered::told_again(moved, newest, objects, told))
}

fn read_change(row: &Row<'_>) -> Result<Change, StoreError> {
    serde_json::from_slice(&read::change(row)?.json).map_err(rows::damaged)
}

/// The registry while it is told again.
struct Telling<'a> {
    reading: objects::Reading<'a>,
    objects: HashMap<Uri, Told>,
}

/// An object while it is told again.
struct Told {
    number: Option<i64>,
    itself: bool,
    state: ObjectState,
}

impl Telling<'_> {
    fn take(&mut self, change: &Change) -> Result<(), StoreError> {
        let modification = &change.modification;
        let held = self.held(&modification.object, modification.items.iter().map(|item| &item.uri))?;
        held.itself |= ObjectState::is_told_by(modification, &change.settlement);
        held.state.take(change);
        Ok(())
    }

    /// An object with these of its items, as far as they are known.
    fn held<'i>(&mut self, uri: &Uri, items: impl Iterator<Item = &'i Uri>) -> Result<&mut Told, StoreError> {
        let held = match self.objects.entry(uri.clone()) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(free) => {
                let known = self.reading.object(uri, &ItemsAsked::these([]))?.unwrap_or_default();
                free.insert(Told { number: known.number, itself: false, state: Arc::unwrap_or_clone(known.state) })
            }
        };
        for item in items {
            if let Some(number) = held.number
                && !held.state.items.contains_key(item)
                && let Some(record) = self.reading.item(number, item)?
            {
                held.state.items.insert(item.clone(), record);
            }
        }
        Ok(held)
    }
}

impl Told {
    fn held(self, packing: &mut Packing) -> Held {
        let Self { number, itself, state } = self;
        let items = state.items.iter().map(|(uri, record)| (uri.clone(), Packed::item(record, packing))).collect();
        Held { number, itself, object: Packed::object(&state, packing), items }
    }

    fn filled(&mut self, filled: &Filled) {
        self.itself |= filled.is_of_the_object();
        self.state.fill(filled);
    }

    fn confirmed(&mut self, confirmation: Confirmation) {
        self.itself |= confirmation.item.is_none();
        confirmation.tell(&mut self.state);
    }
}

/// Whether what was written before this version is there: all of it is in the tables.
pub(super) fn are_kept(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'confirmations'")?.exists([])
}

/// The newest change, where all of the registry is in the tables.
pub(super) fn all_moved(newest: Seq) -> Gathered {
    let mark = Mark { change: newest, ..Mark::default() };
    Gathered::told_again(mark, mark, Objects::default(), 0)
}
