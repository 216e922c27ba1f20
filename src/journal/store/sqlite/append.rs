//! Writing a batch: answers, decision and writes in one transaction.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{
    Bounds,
    events::{EventKeys, Lookup},
    objects, read, rows,
};
use crate::{
    journal::store::{Decision, Known, NewChange, Questions, StoreError},
    model::{Seq, Timestamp},
};

/// The connection that writes, with what it holds in memory of the file.
pub(super) struct Writing {
    pub(super) connection: Connection,
    pub(super) keys: EventKeys,
}

impl Writing {
    pub(super) fn append(
        &mut self,
        bounds: Bounds,
        floor: Seq,
        questions: &Questions,
        decide: &mut dyn FnMut(Known) -> Decision,
    ) -> Result<Decision, StoreError> {
        let Self { connection, keys } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        keys.begin(&transaction)?;
        let mut known = answer(&transaction, keys, bounds, questions)?;
        known.head = known.head.max(floor);
        let decision = decide(known);
        insert(&transaction, &decision.changes)?;
        keys.write(&transaction, bounds, &decision.changes)?;
        objects::write(&transaction, &decision.objects)?;
        transaction.commit()?;
        keys.committed();
        Ok(decision)
    }
}

fn answer(
    transaction: &Transaction<'_>,
    keys: &EventKeys,
    bounds: Bounds,
    questions: &Questions,
) -> Result<Known, StoreError> {
    let (head, received) = read::newest(transaction)?;
    let mut known = Known { head, received, ..Known::default() };
    let now = Timestamp::now();
    let mut lookup = Lookup::new(keys, transaction, bounds)?;
    for key in &questions.keys {
        if let Some(first) = lookup.first_of(*key, now)? {
            known.seen.insert(*key, first);
        }
    }
    let mut taken = transaction.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
    for id in &questions.ids {
        if taken.exists([id.uuid().as_bytes()])? {
            known.taken.insert(*id);
        }
    }
    let mut reading = objects::Reading::new(transaction)?;
    for (uri, items) in &questions.objects {
        if let Some(object) = reading.object(uri, items)? {
            known.objects.insert(uri.clone(), object);
        }
    }
    Ok(known)
}

fn insert(transaction: &Transaction<'_>, changes: &[NewChange]) -> Result<(), StoreError> {
    let sql = "INSERT INTO changes (seq, id, received, checksum, json) VALUES (?, ?, ?, ?, ?)";
    let mut statement = transaction.prepare_cached(sql)?;
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
