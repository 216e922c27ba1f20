//! Appending a batch: answers, decision, and the transaction that writes it.
//!
//! While one batch is being written, the next is answered and decided on, by another thread and over
//! another connection: the processor and the disk work at the same time. What the batch before has
//! decided is laid over what the file says, whether it is in the file yet or not. Were it not written
//! after all, what was decided on it is not written either.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, TransactionBehavior, params};

use super::{SqliteStore, events::Lookup, objects, read, rows, unchanged};
use crate::{
    journal::store::{
        Batch, Decision, EventKey, ItemsAsked, Known, KnownObject, NewChange, Questions, StoreError, Touched,
    },
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// Where batches are decided on, one at a time.
pub(super) struct Deciding {
    connection: Connection,
    before: Option<Before>,
    number: u64,
}

/// What of the newest batch that was decided on concerns the next.
struct Before {
    number: u64,
    newest: Option<(Seq, Timestamp)>,
    keys: HashMap<EventKey, (Seq, ChangeId)>,
    unchanged: HashSet<EventKey>,
    ids: BTreeSet<ChangeId>,
    objects: Arc<[Touched]>,
}

/// The number of a batch that could not be written, and why, until the next has seen it.
#[derive(Default)]
pub(super) struct Failure(Mutex<Option<(u64, StoreError)>>);

impl SqliteStore {
    pub(super) fn append_batch(&self, questions: &Questions, batch: &mut dyn Batch) -> Result<(), StoreError> {
        let mut deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure that is known by now concerns nobody any more.
        let _ = deciding.stands_on_what_failed(&self.failure);
        let known = self.answer(&deciding, questions)?;
        let decision = batch.decide(known);
        // In the order in which they were decided on.
        let mut writer = self.writer();
        if let Some(error) = deciding.stands_on_what_failed(&self.failure) {
            return Err(error);
        }
        let number = deciding.note(&decision);
        drop(deciding);
        if decision.is_empty() {
            return Ok(());
        }
        match self.write(&mut writer, &decision) {
            Ok(()) => {
                batch.written(decision);
                Ok(())
            }
            Err(error) => {
                self.failure.note(number, &error);
                Err(error)
            }
        }
    }

    /// The answers as of the batch before.
    fn answer(&self, deciding: &Deciding, questions: &Questions) -> Result<Known, StoreError> {
        let Deciding { connection, before, .. } = deciding;
        let before = before.as_ref();
        // Keys go from memory when they are in the file, so memory is looked at first.
        let gathered: Vec<_> = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            questions.keys.iter().map(|key| keys.gathered(*key)).collect()
        };
        let snapshot = connection.unchecked_transaction()?;
        let (head, received) = read::newest(&snapshot)?;
        let mut known = Known { head: head.max(self.floor), received, ..Known::default() };
        if let Some((head, received)) = before.and_then(|before| before.newest) {
            (known.head, known.received) = (head, Some(received));
        }
        let now = Timestamp::now();
        let mut lookup = Lookup::new(&snapshot, self.bounds)?;
        for (key, gathered) in questions.keys.iter().zip(gathered) {
            if let Some((seq, id)) = before.and_then(|before| before.keys.get(key)) {
                let id = if *seq > head { Some(*id) } else { lookup.id_of(*seq)? };
                known.seen.insert(*key, (*seq, id));
                continue;
            }
            let first = gathered.map_or_else(|| lookup.in_tree(*key), |seq| Ok(Some(seq)))?;
            if let Some(seq) = first
                && !lookup.is_outdated(seq, now)?
            {
                known.seen.insert(*key, (seq, lookup.id_of(seq)?));
            }
        }
        let is_unchanged = |key: &&EventKey| before.is_some_and(|before| before.unchanged.contains(key));
        known.unchanged = questions.unchanged.iter().filter(is_unchanged).copied().collect();
        unchanged::find(&snapshot, &questions.unchanged, &mut known.unchanged)?;
        let mut taken = snapshot.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
        for id in &questions.ids {
            if before.is_some_and(|before| before.ids.contains(id)) || taken.exists([id.uuid().as_bytes()])? {
                known.taken.insert(*id);
            }
        }
        let mut reading = objects::Reading::new(&snapshot)?;
        for (uri, items) in &questions.objects {
            let stored = reading.object(uri, items)?;
            let touched = before.and_then(|before| before.touched(uri));
            if let Some(object) = touched.map_or(stored.clone(), |touched| Some(overlaid(stored, touched, items))) {
                known.objects.insert(uri.clone(), object);
            }
        }
        Ok(known)
    }

    fn write(&self, connection: &mut Connection, decision: &Decision) -> Result<(), StoreError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        insert(&transaction, &decision.changes)?;
        objects::write(&transaction, &decision.objects)?;
        unchanged::write(&transaction, self.bounds, decision)?;
        let written = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            keys.write(&transaction, self.bounds, &decision.changes)?
        };
        transaction.commit()?;
        self.keys.write().unwrap_or_else(PoisonError::into_inner).committed(written);
        Ok(())
    }
}

impl Deciding {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, before: None, number: 0 }
    }

    /// Why the batch before was not written, if it was not. It is forgotten then.
    fn stands_on_what_failed(&mut self, failure: &Failure) -> Option<StoreError> {
        let number = self.before.as_ref()?.number;
        let error = failure.of(number)?;
        self.before = None;
        Some(error)
    }

    /// Notes what was decided; gives it a number.
    fn note(&mut self, decision: &Decision) -> u64 {
        self.number += 1;
        let of = |new: &NewChange| (new.change.seq, new.change.modification.id);
        self.before = Some(Before {
            number: self.number,
            newest: decision.changes.last().map(|new| (new.change.seq, new.change.received)),
            keys: decision.changes.iter().filter_map(|new| Some((new.key?, of(new)))).collect(),
            unchanged: decision.unchanged.iter().copied().collect(),
            ids: decision.changes.iter().map(|new| new.change.modification.id).collect(),
            objects: Arc::clone(&decision.objects),
        });
        self.number
    }
}

impl Before {
    fn touched(&self, uri: &Uri) -> Option<&Touched> {
        self.objects.binary_search_by(|touched| touched.uri.cmp(uri)).ok().map(|at| &self.objects[at])
    }
}

impl Failure {
    fn note(&self, number: u64, error: &StoreError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, error.clone()));
    }

    fn of(&self, number: u64) -> Option<StoreError> {
        let failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().filter(|(failed, _)| *failed == number).map(|(_, error)| error.clone())
    }
}

/// What is stored of an object, with what the batch before has touched of it.
fn overlaid(stored: Option<KnownObject>, touched: &Touched, asked: &ItemsAsked) -> KnownObject {
    let mut object = stored.unwrap_or_default();
    let KnownObject { state: newer, .. } = &touched.object;
    object.state.parent.clone_from(&newer.parent);
    object.state.types.clone_from(&newer.types);
    object.state.purged = newer.purged;
    for uri in touched.items.iter().filter(|uri| asked.is_for(uri)) {
        if let Some(record) = newer.items.get(uri) {
            object.state.items.insert(uri.clone(), record.clone());
        }
    }
    object
}

fn insert(connection: &Connection, changes: &[NewChange]) -> Result<(), StoreError> {
    // FAIL and not ABORT, the default: with it SQLite keeps a copy of every page, to take back a part of
    // the statement. Here the whole transaction is taken back.
    let sql = "INSERT OR FAIL INTO changes (seq, id, received, checksum, json) VALUES (?, ?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    for NewChange { change, json, .. } in changes {
        let seq = rows::number(change.seq.0);
        let id = change.modification.id.uuid();
        let checksum = rows::checksum(seq, json);
        // The JSON is ours, so it is UTF-8.
        let json = std::str::from_utf8(json).map_err(rows::damaged)?;
        statement.execute(params![seq, id.as_bytes(), change.received.millis(), checksum, json])?;
    }
    Ok(())
}
