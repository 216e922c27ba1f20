//! Appending a batch: answers, decision and writes in one transaction.

use rusqlite::{Connection, TransactionBehavior, params};

use super::{
    SqliteStore, Writing,
    events::{EventKeys, Lookup},
    objects, read, rows, subscriptions, unchanged,
};
use crate::{
    journal::store::{Decision, Known, NewChange, Questions, StoreError},
    model::Timestamp,
};

impl SqliteStore {
    pub(super) fn append_batch(
        &self,
        questions: &Questions,
        decide: &mut dyn FnMut(Known) -> Decision,
    ) -> Result<Decision, StoreError> {
        let mut writing = self.writing();
        let Writing { connection, keys } = &mut *writing;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known = self.answer(&transaction, keys, questions)?;
        let decision = decide(known);
        if decision.is_empty() {
            return Ok(decision);
        }
        insert(&transaction, &decision.changes)?;
        objects::write(&transaction, &decision.objects)?;
        unchanged::write(&transaction, self.bounds, &decision)?;
        for (name, cursor) in &decision.cursors {
            subscriptions::advance(&transaction, name, *cursor)?;
        }
        let written = keys.write(&transaction, self.bounds, &decision.changes)?;
        transaction.commit()?;
        keys.committed(written);
        self.log.grown_by(&decision);
        Ok(decision)
    }

    fn answer(&self, connection: &Connection, keys: &EventKeys, questions: &Questions) -> Result<Known, StoreError> {
        let (head, received) = read::newest(connection)?;
        let mut known = Known { head: head.max(self.floor), received, ..Known::default() };
        let now = Timestamp::now();
        let mut lookup = Lookup::new(connection, self.bounds)?;
        for key in &questions.keys {
            let first = keys.gathered(*key).map_or_else(|| lookup.in_tree(*key), |seq| Ok(Some(seq)))?;
            if let Some(seq) = first
                && !lookup.is_outdated(seq, now)?
            {
                known.seen.insert(*key, (seq, lookup.id_of(seq)?));
            }
        }
        unchanged::find(connection, &questions.unchanged, &mut known.unchanged)?;
        let mut taken = connection.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
        for id in &questions.ids {
            if taken.exists([id.uuid().as_bytes()])? {
                known.taken.insert(*id);
            }
        }
        let mut reading = objects::Reading::new(connection)?;
        for (uri, items) in &questions.objects {
            if let Some(object) = reading.object(uri, items)? {
                known.objects.insert(uri.clone(), object);
            }
        }
        Ok(known)
    }
}

fn insert(connection: &Connection, changes: &[NewChange]) -> Result<(), StoreError> {
    // FAIL and not ABORT, the default: with it SQLite keeps a copy of every page, to take back a part of
    // the statement. Here the whole transaction is taken back.
    let sql = "INSERT OR FAIL INTO changes (seq, id, received, checksum, json, sight) VALUES (?, ?, ?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    for NewChange { change, json, sight, .. } in changes {
        let seq = rows::number(change.seq.0);
        let id = change.modification.id.uuid();
        let checksum = rows::checksum(seq, json, sight.as_deref());
        // The JSON is ours, so it is UTF-8.
        let json = std::str::from_utf8(json).map_err(rows::damaged)?;
        let sight = sight.as_deref().map(std::str::from_utf8).transpose().map_err(rows::damaged)?;
        statement.execute(params![seq, id.as_bytes(), change.received.millis(), checksum, json, sight])?;
    }
    Ok(())
}
