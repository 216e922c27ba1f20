//! The transaction of a batch.

use std::{mem, sync::MutexGuard};

use foldhash::HashMap;

use super::{
    SqliteStore, WriteSide, changes,
    dedupe::{Lookup, Written, unchanged},
    incomplete,
    registry::{Reader, Writer},
    seeds, subscriptions,
};
use crate::{
    journal::store::{
        ItemSelection, ObjectUpdate, PrefetchKeys, PrefetchedObject, PrefetchedRows, StoreError, Transaction,
        WriteBatch,
    },
    model::{Timestamp, Uri},
};

/// A transaction on the writing connection, which it holds until it ends.
pub(super) struct SqliteTransaction<'s> {
    store: &'s SqliteStore,
    side: MutexGuard<'s, WriteSide>,
    /// Row numbers of the known objects that the batch asked for.
    numbers: HashMap<Uri, i64>,
    /// Updates of memory that follow the commit.
    follow_up: FollowUp,
}

/// Updates of memory that follow a commit.
#[derive(Default)]
struct FollowUp {
    keys: Written,
    item_counts: Vec<(Uri, usize)>,
    seeds: Option<i64>,
}

impl<'s> SqliteTransaction<'s> {
    pub(super) fn begin(store: &'s SqliteStore) -> Result<Self, StoreError> {
        let side = store.write_side();
        // Immediate, so that it never fails later because another connection has written meanwhile.
        side.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self { store, side, numbers: HashMap::default(), follow_up: FollowUp::default() })
    }

    fn objects(&mut self, asked: &HashMap<Uri, ItemSelection>) -> Result<HashMap<Uri, PrefetchedObject>, StoreError> {
        let WriteSide { connection, item_counts, .. } = &*self.side;
        let mut reader = Reader::new(connection)?;
        let mut count = connection.prepare_cached("SELECT count(*) FROM items WHERE object = ?")?;
        let mut known = HashMap::default();
        known.reserve(asked.len());
        for (uri, items) in asked {
            let Some((number, state)) = reader.object(uri, items)? else {
                known.insert(uri.clone(), PrefetchedObject { other_items: Some(0), ..PrefetchedObject::default() });
                continue;
            };
            let is_lacking = |items: &[Uri]| items.iter().any(|item| !state.items.contains_key(item));
            let other_items = match items {
                ItemSelection::All => Some(0),
                ItemSelection::Some(items) if is_lacking(items.as_slice()) => {
                    let all = match item_counts.get(uri) {
                        Some(all) => all,
                        None => usize::try_from(count.query_row([number], |row| row.get::<_, i64>(0))?)
                            .unwrap_or(usize::MAX),
                    };
                    Some(all.saturating_sub(state.items.len()))
                }
                ItemSelection::Some(_) => None,
            };
            self.numbers.insert(uri.clone(), number);
            known.insert(uri.clone(), PrefetchedObject { state, other_items });
        }
        Ok(known)
    }

    fn write_objects(&self, objects: &[ObjectUpdate]) -> Result<Vec<(Uri, usize)>, StoreError> {
        let connection = &self.side.connection;
        let (mut writer, mut reader) = (Writer::new(connection)?, Reader::new(connection)?);
        let mut counts = Vec::new();
        for ObjectUpdate { uri, object_changed, state, changed_items, item_count } in objects {
            let known = match self.numbers.get(uri) {
                Some(number) => Some(*number),
                None => reader.number(uri)?,
            };
            let number = match known {
                Some(number) => {
                    if *object_changed {
                        writer.update(number, state)?;
                    }
                    number
                }
                None => writer.insert(uri, state)?,
            };
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
    fn prefetch(&mut self, questions: &PrefetchKeys) -> Result<PrefetchedRows, StoreError> {
        let (connection, keys) = (&self.side.connection, &self.side.keys);
        let (head, received) = changes::newest(connection)?;
        let mut known = PrefetchedRows { head: head.max(self.store.floor), received, ..PrefetchedRows::default() };
        let now = Timestamp::now();
        let mut lookup = Lookup::new(connection, self.store.options.limits)?;
        for key in &questions.keys {
            known.first_changes.extend(lookup.change(*key, keys.held(*key), now)?.map(|first| (*key, first)));
        }
        unchanged::find(connection, &questions.unchanged, &mut known.unchanged)?;
        let mut taken = connection.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
        for id in &questions.ids {
            if taken.exists([id.uuid().as_bytes()])? {
                known.used_ids.insert(*id);
            }
        }
        drop((lookup, taken));
        known.objects = self.objects(&questions.objects)?;
        Ok(known)
    }

    fn write(&mut self, decision: &WriteBatch) -> Result<(), StoreError> {
        let WriteSide { connection, keys, seeds, .. } = &*self.side;
        let options = self.store.options;
        changes::insert(connection, &decision.changes)?;
        unchanged::write(connection, options.limits, decision)?;
        incomplete::write(connection, decision)?;
        for (name, cursor) in &decision.cursors {
            subscriptions::advance(connection, name, *cursor)?;
        }
        let seeds = seeds::write(connection, *seeds, decision)?;
        seeds::write_crawls(connection, &decision.crawls)?;
        let keys = keys.write(connection, options, &decision.changes)?;
        let item_counts = self.write_objects(&decision.objects)?;
        self.follow_up = FollowUp { keys, item_counts, seeds };
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        self.side.connection.prepare_cached("COMMIT")?.execute([])?;
        let FollowUp { keys, item_counts, seeds } = mem::take(&mut self.follow_up);
        self.side.keys.committed(keys);
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
        // After a full disk or a failed read SQLite has rolled back by itself.
        if !self.side.connection.is_autocommit()
            && let Err(error) = self.side.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction of the journal cannot be rolled back");
        }
    }
}
