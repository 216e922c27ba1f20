//! Appending a batch: the answers on which it is decided, and the writes in one transaction.

use std::sync::PoisonError;

use rusqlite::{CachedStatement, Connection, ToSql, TransactionBehavior};

use super::{
    SqliteStore, confirmations, events::Lookup, gathered::Gathered, incomplete, objects, read, registry, rows, seeds,
    subscriptions, together, unchanged,
};
use crate::{
    journal::store::{Decision, Known, Meanwhile, NewChange, Questions, StoreError},
    model::{Seq, Timestamp, Uri},
};

/// How many rows move at once when nobody waits for an append.
const MOVED_AT_ONCE: usize = 2048;

impl SqliteStore {
    /// Answers over the connection that writes, which has most of the pages in memory, or while that is needed for
    /// writing over one of its own.
    pub(super) fn look_up(&self, questions: &Questions, meanwhile: Meanwhile) -> Result<Known, StoreError> {
        let writing = (meanwhile == Meanwhile::Idle).then(|| self.writing.try_lock().ok()).flatten();
        match writing {
            Some(writing) => self.answer(&writing, questions),
            None => self.answer(&self.looking.lock().unwrap_or_else(PoisonError::into_inner), questions),
        }
    }

    /// Counts items of objects, over the same connection as [`look_up`](Self::look_up).
    pub(super) fn count_items(&self, objects: &[Uri], meanwhile: Meanwhile) -> Result<Vec<usize>, StoreError> {
        let writing = (meanwhile == Meanwhile::Idle).then(|| self.writing.try_lock().ok()).flatten();
        match writing {
            Some(writing) => registry::item_counts(&writing, &self.gathered, objects),
            None => {
                let looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
                registry::item_counts(&looking, &self.gathered, objects)
            }
        }
    }

    fn answer(&self, connection: &Connection, questions: &Questions) -> Result<Known, StoreError> {
        let (transaction, (keys, held)) = self.gathered.at_one_moment(connection, |gathered| {
            let keys = self.keys();
            let keys: Vec<_> = questions.keys.iter().map(|key| keys.held(*key)).collect();
            (keys, questions.objects.iter().map(|(uri, asked)| gathered.known(uri, asked)).collect::<Vec<_>>())
        })?;
        let connection = &*transaction;
        let (head, received) = read::newest(connection)?;
        let mut known = Known { head: head.max(self.floor), received, ..Known::default() };
        let now = Timestamp::now();
        let mut lookup = Lookup::new(connection, self.bounds)?;
        for (key, held) in questions.keys.iter().zip(keys) {
            known.seen.extend(lookup.change(*key, held, now)?.map(|first| (*key, first)));
        }
        unchanged::find(connection, &questions.unchanged, &mut known.unchanged)?;
        let mut taken = connection.prepare_cached("SELECT 1 FROM changes WHERE id = ?")?;
        for id in &questions.ids {
            if taken.exists([id.uuid().as_bytes()])? {
                known.taken.insert(*id);
            }
        }
        let mut reading = objects::Reading::new(connection)?;
        known.objects.reserve(questions.objects.len());
        let mut not_held = Vec::with_capacity(questions.objects.len());
        for ((uri, items), held) in questions.objects.iter().zip(held) {
            match held {
                Some(held) => {
                    known.objects.insert(uri.clone(), held.complete(uri, items, &mut reading)?);
                }
                None => not_held.push((uri, items)),
            }
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        together::objects(connection, &mut reading, &mut numbers, &not_held, &mut known.objects)?;
        Ok(known)
    }

    pub(super) fn append_batches(&self, decisions: Vec<Decision>) -> Result<Vec<Vec<NewChange>>, StoreError> {
        let mut connection = self.writing();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut marks = Vec::with_capacity(decisions.len());
        let mut newest = self.gathered.read().newest();
        for decision in &decisions {
            let before = newest;
            insert(&transaction, &decision.changes)?;
            unchanged::write(&transaction, self.bounds, decision)?;
            incomplete::write(&transaction, decision)?;
            for (name, cursor) in &decision.cursors {
                subscriptions::advance(&transaction, name, *cursor)?;
            }
            newest.change = decision.changes.last().map_or(before.change, |newest| newest.change.seq);
            // The seeds first: told again, what a confirmation is about is there.
            newest = seeds::write(&transaction, newest, &decision.seeds)?;
            newest = confirmations::write(&transaction, newest, &decision.objects)?;
            seeds::write_walks(&transaction, &decision.walks)?;
            let confirmed = usize::try_from(newest.confirmation - before.confirmation).unwrap_or_default();
            marks.push((newest, decision.changes.len() + confirmed + decision.seeds.len()));
        }
        let changes = || decisions.iter().flat_map(|decision| &decision.changes);
        let written = self.keys().write(&transaction, self.bounds, changes())?;
        let touched = decisions.iter().flat_map(|decision| decision.objects.iter());
        let moved = self.gathered.read().step(&transaction, touched.map(|touched| 1 + touched.items.len()).sum())?;
        transaction.commit()?;
        // The keys first: whoever finds the registry up to date finds them so.
        self.keys_mut().committed(written);
        Ok(self.gathered.update(|gathered| {
            gathered.has_moved(moved);
            let mut changes = Vec::with_capacity(decisions.len());
            for (decision, (newest, told)) in decisions.into_iter().zip(marks) {
                gathered.take(self.bounds, decision.objects, newest, told);
                changes.push(decision.changes);
            }
            changes
        }))
    }

    /// Has the registry's tables hold everything up to a change, or all that there is. It takes several transactions,
    /// since one would be too large.
    pub(super) fn move_all(&self, connection: &mut Connection, up_to: Option<Seq>) -> Result<(), StoreError> {
        while self.move_some(connection, up_to, MOVED_AT_ONCE)? {}
        Ok(())
    }

    /// Moves rows to the registry's tables in one transaction, as many as a batch that touches `touched` rows; returns
    /// whether the tables still lack something up to that change.
    pub(super) fn move_some(
        &self,
        connection: &mut Connection,
        up_to: Option<Seq>,
        touched: usize,
    ) -> Result<bool, StoreError> {
        let lacks =
            |gathered: &Gathered| !gathered.is_empty() && up_to.is_none_or(|up_to| gathered.moved().change < up_to);
        let is_moving = self.gathered.update(|gathered| {
            let lacks = lacks(gathered);
            if lacks {
                gathered.set_out();
            }
            lacks
        });
        if !is_moving {
            return Ok(false);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let moved = self.gathered.read().step(&transaction, touched)?;
        transaction.commit()?;
        Ok(self.gathered.update(|gathered| {
            gathered.has_moved(moved);
            lacks(gathered)
        }))
    }
}

/// How many changes one statement inserts, where there are so many: each statement has its price.
const ROWS_AT_ONCE: usize = 8;

/// How many columns a change has after its number.
const COLUMNS: usize = 6;

// FAIL and not ABORT, the default: with it SQLite keeps a copy of every page, to take back a part of
// the statement. Here the whole transaction is taken back. It keeps one as well where a statement inserts several rows and
// says their numbers, so these are given by SQLite: each the next one.
macro_rules! insert {
    ($($row:literal)*) => {
        concat!(
            "INSERT OR FAIL INTO changes (id, received, checksum, json, sight, key) VALUES (?, ?, ?, ?, ?, ?)",
            $(", ", $row),*
        )
    };
}

const INSERT_ONE: &str =
    "INSERT OR FAIL INTO changes (id, received, checksum, json, sight, key, seq) VALUES (?, ?, ?, ?, ?, ?, ?)";
const INSERT_SEVERAL: &str = insert!(
    "(?, ?, ?, ?, ?, ?)" "(?, ?, ?, ?, ?, ?)" "(?, ?, ?, ?, ?, ?)" "(?, ?, ?, ?, ?, ?)"
    "(?, ?, ?, ?, ?, ?)" "(?, ?, ?, ?, ?, ?)" "(?, ?, ?, ?, ?, ?)"
);

/// Inserts changes, each with the number after the one before. What number the first has is said, since a restore leaves some
/// out.
fn insert(connection: &Connection, changes: &[NewChange]) -> Result<(), StoreError> {
    let Some((first, others)) = changes.split_first() else { return Ok(()) };
    let mut one = connection.prepare_cached(INSERT_ONE)?;
    let mut insert_one = |change: &NewChange| {
        one.raw_bind_parameter(COLUMNS + 1, rows::number(change.change.seq.0))?;
        insert_rows(&mut one, std::slice::from_ref(change))
    };
    insert_one(first)?;
    let (together, rest) = others.as_chunks::<ROWS_AT_ONCE>();
    let mut several = connection.prepare_cached(INSERT_SEVERAL)?;
    for changes in together {
        insert_rows(&mut several, changes)?;
        let [.., newest] = changes;
        if connection.last_insert_rowid() != rows::number(newest.change.seq.0) {
            return Err(rows::damaged(format!("change {} does not follow the one before", newest.change.seq)));
        }
    }
    rest.iter().try_for_each(insert_one)
}

/// Inserts as many changes as the statement takes.
fn insert_rows(statement: &mut CachedStatement<'_>, changes: &[NewChange]) -> Result<(), StoreError> {
    for (row, NewChange { change, json, sight, key, .. }) in changes.iter().enumerate() {
        let checksum = rows::checksum(rows::number(change.seq.0), json, sight.as_deref());
        // The JSON is ours, so it is UTF-8.
        let json = std::str::from_utf8(json).map_err(rows::damaged)?;
        let sight = sight.as_deref().map(std::str::from_utf8).transpose().map_err(rows::damaged)?;
        let (id, key) = (change.modification.id.uuid(), key.as_ref().map(|key| key.0.as_slice()));
        let columns: [&dyn ToSql; COLUMNS] =
            [&id.as_bytes().as_slice(), &change.received.millis(), &checksum, &json, &sight, &key];
        for (column, value) in columns.into_iter().enumerate() {
            statement.raw_bind_parameter(row * COLUMNS + column + 1, value)?;
        }
    }
    statement.raw_execute()?;
    Ok(())
}
