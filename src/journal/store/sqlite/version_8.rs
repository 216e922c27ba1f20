//! Journals of versions 5 to 8, which kept the newest rows of the registry in memory.
//!
//! In such a file the registry's tables are complete up to the change `registry_moved` in `meta`, and may contain
//! parts of later changes. The rest is replayed from three tables: `changes`, `confirmations` (times at which
//! events confirmed facts) and `seeds` (facts from crawls). The migration to version 9 writes the result to the
//! tables. `tidings verify` replays without writing, because a backup may have any version.

use std::collections::{BTreeMap, btree_map::Entry};

use rusqlite::{Connection, OptionalExtension, Row};

use super::value::params;
use super::{
    changes,
    registry::{self, RegistryReader, RegistryWriter},
    rows,
    seeds::{self, SeedRows},
};
use crate::{
    journal::{
        registry::{InitialState, ObjectState},
        store::{ItemSelection, StoreError},
    },
    model::{Change, Seq, Timestamp, Uri},
};

const CONFIRMATIONS: &str = "SELECT number, seq, object, item, purged_confirmed, existence_confirmed, \
     content_confirmed, state_confirmed, begins_in, begins_in_at, begins_in_confirmed \
     FROM confirmations WHERE number > ? ORDER BY number";

const CHANGES: &str = "SELECT seq, checksum, json, sight FROM changes WHERE seq > ? ORDER BY seq";

/// Objects whose rows may be outdated, each with its replayed items.
pub(super) type Replayed = BTreeMap<Uri, ObjectState>;

/// Returns whether the file has one of the versions that kept rows of the registry in memory.
pub(super) fn is_version(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'confirmations'")?.exists([])
}

/// Returns the number of the change up to which the registry's tables are complete.
pub(super) fn complete_up_to(connection: &Connection) -> rusqlite::Result<Seq> {
    Ok(Seq(meta_number(connection, "registry_moved")?.unsigned_abs()))
}

/// Completes the registry's tables.
pub(super) fn write_registry(connection: &Connection) -> Result<(), StoreError> {
    let replayed = replay(connection)?;
    let (mut reader, mut writer) = (RegistryReader::new(connection)?, RegistryWriter::new(connection)?);
    for (uri, state) in &replayed {
        let number = match reader.number(uri)? {
            Some(number) => {
                writer.update(number, state)?;
                number
            }
            None => writer.insert(uri, state)?,
        };
        for (item, record) in &state.items {
            writer.put_item(number, item, record)?;
        }
    }
    Ok(())
}

/// Replays the changes, confirmations and seeds that the registry's tables may lack.
pub(super) fn replay(connection: &Connection) -> Result<Replayed, StoreError> {
    let complete_up_to = complete_up_to(connection)?;
    let mut replay = Replay { reader: RegistryReader::new(connection)?, objects: Replayed::new() };
    let mut seeds = connection.prepare(seeds::select_sql(connection)?)?;
    let mut seeds = SeedRows::new(seeds.query(params![meta_number(connection, "seeds_moved")?])?)?;
    let mut confirmations = connection.prepare(CONFIRMATIONS)?;
    let mut confirmations = confirmations.query(params![meta_number(connection, "confirmations_moved")?])?;
    let mut confirmation = confirmations.next()?.map(Confirmation::read).transpose()?;
    let mut changes = connection.prepare(CHANGES)?;
    let mut changes = changes.query(params![rows::number(complete_up_to.0)])?;
    loop {
        let change = changes.next()?;
        let number = change.map(|row| row.get::<_, i64>(0)).transpose()?.map(rows::seq).transpose()?;
        // Seeds come first, because a confirmation may concern a fact from a seed.
        while let Some(seed) = seeds.next_before(number)? {
            replay.object(&seed.object, seed.delta.items())?.apply_delta(&seed.delta);
        }
        while let Some(next) = confirmation.take_if(|next| number.is_none_or(|number| next.change < number)) {
            let object = replay.object(&next.object, next.item.iter())?;
            next.apply(object);
            confirmation = confirmations.next()?.map(Confirmation::read).transpose()?;
        }
        let Some(row) = change else { return Ok(replay.objects) };
        match read_change(row) {
            Ok(change) => {
                let modification = &change.modification;
                let items = modification.items.iter().map(|item| &item.uri);
                replay.object(&modification.object, items)?.apply_change(&change);
            }
            // Readers get an error for such a change as well, and `tidings verify` reports it.
            Err(error) => tracing::error!(%error, "cannot add an unreadable change to the registry"),
        }
    }
}

/// Reads a number from `meta`; returns 0 if there is none.
fn meta_number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE name = ?")?;
    Ok(statement.query_row(params![name], |row| row.get(0)).optional()?.unwrap_or_default())
}

fn read_change(row: &Row<'_>) -> Result<Change, StoreError> {
    serde_json::from_slice(&changes::change(row)?.json).map_err(rows::damaged)
}

struct Replay<'c> {
    reader: RegistryReader<'c>,
    objects: Replayed,
}

impl Replay<'_> {
    /// Returns the state of an object with these items, as far as the tables or the replay have them.
    fn object<'i>(&mut self, uri: &Uri, items: impl Iterator<Item = &'i Uri>) -> Result<&mut ObjectState, StoreError> {
        let state = match self.objects.entry(uri.clone()) {
            Entry::Occupied(replayed) => replayed.into_mut(),
            Entry::Vacant(free) => {
                let stored = self.reader.object(uri, &ItemSelection::these([]))?;
                free.insert(stored.map(|(_, state)| state).unwrap_or_default())
            }
        };
        let missing: Vec<_> = items.filter(|item| !state.items.contains_key(*item)).collect();
        if !missing.is_empty()
            && let Some(number) = self.reader.number(uri)?
        {
            for item in missing {
                state.items.extend(self.reader.item(number, item)?.map(|record| (item.clone(), record)));
            }
        }
        Ok(state)
    }
}

/// A row of `confirmations`: all times of confirmation of an item, or of the purge of an object.
struct Confirmation {
    /// Change after which the confirmation is ordered.
    change: Seq,
    object: Uri,
    item: Option<Uri>,
    purged: Option<Timestamp>,
    existence: Option<Timestamp>,
    content: Option<Timestamp>,
    state: Option<Timestamp>,
    initial_state: Option<InitialState>,
}

impl Confirmation {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        let time = |index| row.get::<_, Option<i64>>(index)?.map(rows::time).transpose();
        Ok(Self {
            change: rows::seq(row.get(1)?)?,
            object: rows::uri(&row.get::<_, String>(2)?)?,
            item: row.get::<_, Option<String>>(3)?.as_deref().map(rows::uri).transpose()?,
            purged: time(4)?,
            existence: time(5)?,
            content: time(6)?,
            state: time(7)?,
            initial_state: registry::initial_state(row, 8)?,
        })
    }

    fn apply(self, state: &mut ObjectState) {
        let Some(item) = self.item else {
            state.purged.confirmed = self.purged;
            return;
        };
        if let Some(record) = state.items.get_mut(&item) {
            record.existence.clock.confirmed = self.existence;
            record.content.clock.confirmed = self.content;
            record.state.clock.confirmed = self.state;
            record.initial_state = self.initial_state;
        }
    }
}
