//! The transaction of one batch.

use std::{mem, sync::MutexGuard};

use foldhash::HashMap;

use super::value::params;
use super::{
    SqliteStore, WriteSide, changes,
    dedupe::{FirstChangeSearch, KeyUpdates, unchanged},
    records,
    registry::{RegistryReader, RegistryWriter, newest_acceptance},
    seeds,
};
use crate::{
    journal::store::{
        CommitError, ItemSelection, ObjectUpdate, PrefetchKeys, PrefetchedObject, PrefetchedRows, StoreError,
        Transaction, WriteBatch, records::of_batch,
    },
    model::{Seq, Timestamp, Uri},
};

/// A transaction on the writing connection, which it locks until it ends.
pub(super) struct SqliteTransaction<'s> {
    store: &'s SqliteStore,
    side: MutexGuard<'s, WriteSide>,
    /// Row numbers of the prefetched objects.
    row_numbers: HashMap<Uri, i64>,
    /// Updates of the data in memory, applied after the commit.
    memory_updates: MemoryUpdates,
    /// Number of the newest change of the batch.
    newest: Option<Seq>,
}

/// Updates of the data in memory that follow a commit.
#[derive(Default)]
struct MemoryUpdates {
    keys: KeyUpdates,
    item_counts: Vec<(Uri, usize)>,
    seeds: Option<i64>,
}

impl<'s> SqliteTransaction<'s> {
    pub(super) fn begin(store: &'s SqliteStore) -> Result<Self, StoreError> {
        let side = store.write_side()?;
        // Immediate, so that it never fails later because another connection has written meanwhile.
        side.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self {
            store,
            side,
            row_numbers: HashMap::default(),
            memory_updates: MemoryUpdates::default(),
            newest: None,
        })
    }

    fn objects(
        &mut self,
        selected: &HashMap<Uri, ItemSelection>,
    ) -> Result<HashMap<Uri, PrefetchedObject>, StoreError> {
        let WriteSide { connection, item_counts, .. } = &*self.side;
        let mut reader = RegistryReader::new(connection)?;
        let mut count = connection.prepare_cached("SELECT count(*) FROM items WHERE object = ?")?;
        let mut objects = HashMap::default();
        objects.reserve(selected.len());
        for (uri, items) in selected {
            let Some((number, state)) = reader.object(uri, items)? else {
                objects.insert(uri.clone(), PrefetchedObject { other_items: Some(0), ..PrefetchedObject::default() });
                continue;
            };
            let is_lacking = |items: &[Uri]| items.iter().any(|item| !state.items.contains_key(item));
            let other_items = match items {
                ItemSelection::All => Some(0),
                ItemSelection::Some(items) if is_lacking(items.as_slice()) => {
                    let all = match item_counts.get(uri) {
                        Some(all) => all,
                        None => usize::try_from(count.query_row(params![number], |row| row.get::<_, i64>(0))?)
                            .unwrap_or(usize::MAX),
                    };
                    Some(all.saturating_sub(state.items.len()))
                }
                ItemSelection::Some(_) => None,
            };
            self.row_numbers.insert(uri.clone(), number);
            objects.insert(uri.clone(), PrefetchedObject { state, other_items });
        }
        Ok(objects)
    }

    fn write_objects(&self, batch: &WriteBatch) -> Result<Vec<(Uri, usize)>, StoreError> {
        let connection = &self.side.connection;
        let (mut writer, mut reader) = (RegistryWriter::new(connection)?, RegistryReader::new(connection)?);
        let mut counts = Vec::new();
        for ObjectUpdate { uri, object_changed, news, state, changed_items, item_count } in &batch.objects {
            let row_number = match self.row_numbers.get(uri) {
                Some(number) => Some(*number),
                None => reader.number(uri)?,
            };
            let number = match row_number {
                Some(number) => {
                    if *object_changed {
                        writer.update(number, state)?;
                    }
                    number
                }
                None => writer.insert(uri, state, batch.accepted)?,
            };
            writer.accept(number, batch.accepted, *news)?;
            for item in changed_items.as_slice() {
                if let Some(record) = state.items.get(item) {
                    writer.put_item(number, item, record)?;
                }
            }
            counts.extend(item_count.map(|count| (uri.clone(), count)));
        }
        Ok(counts)
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn prefetch(&mut self, keys: &PrefetchKeys) -> Result<PrefetchedRows, StoreError> {
        let (connection, event_keys) = (&self.side.connection, &self.side.keys);
        let (head, received) = changes::newest(connection)?;
        let mut rows = PrefetchedRows {
            head: head.max(self.store.floor),
            stored_head: head,
            received,
            accepted: newest_acceptance(connection)?,
            ..PrefetchedRows::default()
        };
        let now = Timestamp::now();
        let mut search = FirstChangeSearch::new(connection, self.store.options.limits)?;
        for key in &keys.keys {
            rows.first_changes
                .extend(search.first_change(*key, event_keys.locate(*key), now)?.map(|first| (*key, first)));
        }
        unchanged::find(connection, &keys.unchanged, &mut rows.unchanged)?;
        let mut id_exists = connection.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
        for id in &keys.ids {
            if id_exists.exists(params![id.uuid().as_bytes()])? {
                rows.used_ids.insert(*id);
            }
        }
        drop((search, id_exists));
        rows.objects = self.objects(&keys.objects)?;
        Ok(rows)
    }

    fn write(&mut self, batch: &WriteBatch) -> Result<(), StoreError> {
        let WriteSide { connection, keys, seeds, .. } = &*self.side;
        let options = self.store.options;
        changes::insert(connection, &batch.changes)?;
        self.newest = batch.changes.last().map(|newest| newest.change.seq);
        unchanged::write(connection, options.limits, batch)?;
        let seeds = seeds::write(connection, *seeds, batch)?;
        records::execute_all(connection, &of_batch(batch)?)?;
        let keys = keys.write(connection, options, &batch.changes)?;
        let item_counts = self.write_objects(batch)?;
        self.memory_updates = MemoryUpdates { keys, item_counts, seeds };
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<(), CommitError> {
        // Checked again, because the preparation of a large batch takes a while.
        self.store.files.check()?;
        let committed = self.side.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        committed.map_err(StoreError::from)?;
        if let Some(newest) = self.newest {
            self.store.mark(newest);
        }
        let MemoryUpdates { keys, item_counts, seeds } = mem::take(&mut self.memory_updates);
        self.side.keys.apply(keys);
        for (uri, count) in item_counts {
            self.side.item_counts.set(uri, count);
        }
        if let Some(seeds) = seeds {
            self.side.seeds = seeds;
            self.store.seeds.store(seeds.unsigned_abs(), std::sync::atomic::Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // SQLite rolls back automatically after some errors, for example if the disk is full.
        if !self.side.connection.is_autocommit()
            && let Err(error) = self.side.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back a transaction of the journal");
        }
    }
}
