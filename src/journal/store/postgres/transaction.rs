//! The transaction of one batch.

use foldhash::HashMap;
use futures_util::future::{FutureExt, join, join5};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore, changes, connection::pipeline, dedupe, nodes, records, registry, seeds, timeline,
    writing::WriteTransaction,
};
use crate::{
    journal::acceptance::{AcceptanceTime, ObjectNews},
    journal::store::{
        CommitError, PrefetchKeys, PrefetchedRows, StoreError, Transaction, WriteBatch, records::of_batch, rows,
    },
    model::{Seq, Timestamp, Uri},
};

/// Query for the head and the time, which locks the head until the transaction ends.
const LOCK_HEAD: &str = concat!(
    "SELECT head, received, seeds, ",
    timeline::is_same_journal!(),
    ", identity, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, accepted FROM journal_head FOR UPDATE"
);

const MOVE_HEAD: &str =
    "UPDATE journal_head SET head = $1, received = $2, seeds = $3, accepted = greatest(accepted, $4)";

/// Statement that wakes the other nodes at the commit. The payload has the head, and the store that wrote.
const NOTIFY: &str = "SELECT pg_notify('tidings', $1::bigint || ' ' || $2::uuid)";

/// Statements of a batch that are sent together, so they must be prepared.
pub(super) const STATEMENTS: &[&str] = &[
    LOCK_HEAD,
    MOVE_HEAD,
    NOTIFY,
    changes::INSERT,
    changes::USED_IDS,
    changes::RESTORES,
    dedupe::FIND,
    dedupe::FIND_UNCHANGED,
    dedupe::WRITE,
    dedupe::WRITE_UNCHANGED,
    nodes::LOCK_TERMS,
    registry::OBJECTS,
    registry::ALL_ITEMS,
    registry::SELECTED_ITEMS,
    registry::PUT_OBJECTS,
    registry::PUT_ITEMS,
    seeds::INSERT,
];

/// The head as of the beginning of the transaction.
pub(super) struct LockedHead {
    pub(super) head: Seq,
    received: Option<Timestamp>,
    seeds: i64,
    /// Whether the server is the one that wrote the head. A standby that was promoted since is another one.
    is_same_journal: bool,
    /// Identity of the journal, which another node may have changed after a failover.
    identity: Uuid,
    /// Time of the server, at which all changes of the batch are received.
    now: Timestamp,
    /// Newest time of acceptance.
    accepted: AcceptanceTime,
    /// Ranges of numbers that restores have skipped, the newest first.
    restores: Vec<(Seq, Seq)>,
}

/// A transaction that has locked the head.
pub(super) struct PostgresTransaction<'s> {
    store: &'s PostgresStore,
    transaction: WriteTransaction<'s>,
    locked: LockedHead,
    /// Prefetched objects that have a row, each with the number of items in the row.
    known: HashMap<Uri, Option<i64>>,
    /// Number of the newest seed after the commit.
    seeds: i64,
    /// Number of changes to write.
    changes: usize,
}

impl<'s> PostgresTransaction<'s> {
    pub(super) fn begin(store: &'s PostgresStore) -> Result<Self, StoreError> {
        let mut begun = Self::lock(store)?;
        if !begun.locked.is_same_journal {
            drop(begun);
            timeline::adopt(store)?;
            begun = Self::lock(store)?;
        }
        store.note_seeds(begun.locked.seeds);
        store.set_identity(begun.locked.identity);
        Ok(begun)
    }

    fn lock(store: &'s PostgresStore) -> Result<Self, StoreError> {
        let (transaction, locked) = WriteTransaction::begin(store, async |session| {
            let (head, restores) = join(session.query_one(LOCK_HEAD, &[]), changes::restores(session)).await;
            LockedHead::read(&head?, restores?)
        })?;
        let seeds = locked.seeds;
        Ok(Self { store, transaction, locked, known: HashMap::default(), seeds, changes: 0 })
    }
}

impl LockedHead {
    fn read(row: &Row, restores: Vec<(Seq, Seq)>) -> Result<Self, StoreError> {
        let received: Option<i64> = super::row::get(row, 1)?;
        Ok(Self {
            head: super::row::seq(row, 0)?,
            received: received.map(rows::time).transpose()?,
            seeds: super::row::get(row, 2)?,
            is_same_journal: super::row::get(row, 3)?,
            identity: super::row::get(row, 4)?,
            now: rows::time(super::row::get(row, 5)?)?,
            accepted: AcceptanceTime(super::row::get(row, 6)?),
            restores,
        })
    }

    /// Returns the number after which the next change is numbered.
    fn floor(&self) -> Seq {
        self.restores.iter().map(|(_, floor)| *floor).max().unwrap_or_default().max(self.head)
    }
}

impl Transaction for PostgresTransaction<'_> {
    fn prefetch(&mut self, keys: &PrefetchKeys) -> Result<PrefetchedRows, StoreError> {
        let limits = self.store.options.limits;
        let window = dedupe::Window::new(limits, self.locked.now, self.locked.head, &self.locked.restores);
        let (first_changes, unchanged, used_ids, objects, stale_terms) = self.transaction.run(async |session| {
            let (first_changes, unchanged, used_ids, objects, stale_terms) = join5(
                dedupe::first_changes(session, window, &keys.keys),
                dedupe::find_unchanged(session, window, &keys.unchanged),
                changes::used_ids(session, &keys.ids),
                registry::prefetch(session, &keys.objects),
                nodes::stale_terms(session, &keys.terms),
            )
            .await;
            Ok((first_changes?, unchanged?, used_ids?, objects?, stale_terms?))
        })?;
        let objects = objects.into_iter().map(|(uri, object)| {
            if let Some(items) = object.row {
                self.known.insert(uri.clone(), items);
            }
            (uri, object.prefetched)
        });
        let objects = objects.collect();
        let (head, received) = (self.locked.floor(), self.locked.received);
        Ok(PrefetchedRows {
            head,
            stored_head: self.locked.head,
            received,
            now: Some(self.locked.now),
            accepted: self.locked.accepted,
            first_changes,
            unchanged,
            used_ids,
            objects,
            stale_terms,
        })
    }

    fn write(&mut self, batch: &WriteBatch) -> Result<(), StoreError> {
        let newest = batch.changes.last().map(|new| &new.change);
        let head = newest.map_or(self.locked.head, |change| change.seq);
        let received = newest.map(|change| change.received).or(self.locked.received).map(Timestamp::millis);
        let (locked_head, first_seed, known) = (self.locked.head, self.locked.seeds, &self.known);
        let seeds = first_seed + i64::try_from(batch.seeds.len()).unwrap_or(i64::MAX);
        let statements = of_batch(batch)?;
        // A batch without news keeps its time for the next one.
        let has_news = batch.objects.iter().any(|object| object.news != ObjectNews::None);
        let accepted = if has_news { batch.accepted.0 } else { 0 };
        let (store, is_news) = (self.store.node, !batch.changes.is_empty() || !batch.seeds.is_empty());
        self.transaction.run(async |session| {
            changes::check_numbers(locked_head, &batch.changes)?;
            let head_number = rows::number(head.0);
            let move_head =
                async { session.execute(MOVE_HEAD, &[&head_number, &received, &seeds, &accepted]).await.map(drop) };
            let notify = async {
                if is_news {
                    session.query(NOTIFY, &[&head_number, &store]).await?;
                }
                Ok(())
            };
            let mut parts = records::parts(&statements);
            let first_records = parts.next().unwrap_or_default();
            records::prepare(session, first_records).await?;
            let mut steps = vec![
                move_head.boxed_local(),
                notify.boxed_local(),
                changes::insert(session, &batch.changes).boxed_local(),
                dedupe::write(session, &batch.changes).boxed_local(),
                dedupe::write_unchanged(session, batch).boxed_local(),
                seeds::insert(session, first_seed, head, &batch.seeds).boxed_local(),
                registry::write(session, known, batch).boxed_local(),
            ];
            let execute = async |record| records::execute(session, record).await.map(drop);
            steps.extend(first_records.iter().map(|record| execute(record).boxed_local()));
            pipeline(steps).await?;
            for part in parts {
                records::execute_all(session, part).await?;
            }
            Ok(())
        })?;
        (self.seeds, self.changes) = (seeds, batch.changes.len() + batch.unchanged.len());
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), CommitError> {
        let Self { store, transaction, seeds, changes, .. } = *self;
        transaction.commit()?;
        store.note_seeds(seeds);
        store.note_written(changes);
        Ok(())
    }
}
