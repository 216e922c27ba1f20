//! Appending a batch: the answers on which it is decided, and the writes in one transaction.

use rusqlite::{Connection, TransactionBehavior, params};

use super::{
    SqliteStore, Writing, confirmations,
    events::{EventKeys, Lookup},
    gathered::Mark,
    objects, read, rows, subscriptions, unchanged,
};
use crate::{
    journal::store::{Decision, Known, NewChange, Questions, StoreError},
    model::{Seq, Timestamp},
};

/// How many rows move at once when nobody waits for an append.
const MOVED_AT_ONCE: usize = 2048;

impl SqliteStore {
    pub(super) fn look_up(&self, questions: &Questions) -> Result<Known, StoreError> {
        let mut writing = self.writing();
        let Writing { connection, keys } = &mut *writing;
        let transaction = connection.transaction()?;
        let known = self.answer(&transaction, keys, questions)?;
        transaction.commit()?;
        Ok(known)
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
        let gathered = self.gathered();
        for (uri, items) in &questions.objects {
            if let Some(object) = gathered.known(uri, items, &mut reading)? {
                known.objects.insert(uri.clone(), object);
            }
        }
        Ok(known)
    }

    pub(super) fn append_batch(&self, decision: Decision) -> Result<Vec<NewChange>, StoreError> {
        let mut writing = self.writing();
        let Writing { connection, keys } = &mut *writing;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        insert(&transaction, &decision.changes)?;
        unchanged::write(&transaction, self.bounds, &decision)?;
        for (name, cursor) in &decision.cursors {
            subscriptions::advance(&transaction, name, *cursor)?;
        }
        let written = keys.write(&transaction, self.bounds, &decision.changes)?;
        let before = self.gathered().newest();
        let newest = decision.changes.last().map_or(before.change, |newest| newest.change.seq);
        let newest = Mark { change: newest, ..before };
        let newest = confirmations::write(&transaction, newest, &decision.objects)?;
        let touched = decision.objects.iter().map(|touched| 1 + touched.items.len()).sum();
        let moved = self.gathered().step(&transaction, touched)?;
        transaction.commit()?;
        keys.committed(written);
        self.log.grown_by(&decision);
        let confirmed = usize::try_from(newest.confirmation - before.confirmation).unwrap_or_default();
        let told = decision.changes.len() + confirmed;
        let mut gathered = self.gathered_mut();
        gathered.has_moved(moved);
        gathered.take(self.bounds, decision.objects, newest, told);
        Ok(decision.changes)
    }

    /// Has the registry's tables hold everything up to a change, or all that there is. It takes several transactions,
    /// since one would be too large.
    pub(super) fn move_all(&self, connection: &mut Connection, up_to: Option<Seq>) -> Result<(), StoreError> {
        loop {
            {
                let mut gathered = self.gathered_mut();
                if gathered.is_empty() || up_to.is_some_and(|up_to| gathered.moved().change >= up_to) {
                    return Ok(());
                }
                gathered.set_out();
            }
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let moved = self.gathered().step(&transaction, MOVED_AT_ONCE)?;
            transaction.commit()?;
            self.gathered_mut().has_moved(moved);
        }
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
