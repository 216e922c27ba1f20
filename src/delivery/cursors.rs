//! Writes the cursors of all subscriptions to the journal in batches.
//!
//! A batch is written every tenth of a second, after every thousand confirmed messages, and on request. A crash
//! between two batches causes duplicates but no gaps. Syncing the disk for each message would slow down all
//! sources.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    journal::{Journal, JournalError, nodes::Term, subscriptions::CursorAdvance},
    model::{Seq, SubscriptionName, Timestamp},
};

/// Maximum time until a cursor is written.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Number of confirmed messages after which cursors are written early.
const FLUSH_MESSAGES: u64 = 1000;

/// Cursors that are not yet written to disk. Clones share the same cursors.
#[derive(Clone)]
pub(super) struct Cursors(Arc<Inner>);

struct Inner {
    journal: Journal,
    unwritten: Mutex<Unwritten>,
    batch_full: Notify,
    /// Locked while a batch is being written, so that a holder knows that no write is in progress.
    writing: tokio::sync::Mutex<()>,
}

/// Cursor that is not yet written to disk.
#[derive(Clone, Copy, PartialEq)]
struct UnwrittenCursor {
    cursor: Seq,
    /// Time of the last confirmed message since the cursor was last written.
    delivered: Option<Timestamp>,
    /// Term of the subscription's duty.
    term: Option<Term>,
}

#[derive(Default)]
struct Unwritten {
    cursors: BTreeMap<SubscriptionName, UnwrittenCursor>,
    /// Newest cursor of each subscription in its last tenure on this node, written or not.
    newest: BTreeMap<SubscriptionName, Seq>,
    confirmed: u64,
}

impl Cursors {
    pub(super) fn new(journal: Journal) -> Self {
        let writing = tokio::sync::Mutex::default();
        Self(Arc::new(Inner { journal, unwritten: Mutex::default(), batch_full: Notify::new(), writing }))
    }

    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.0.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a subscription has completed all changes up to `cursor`, of which its receiver confirmed
    /// `confirmed`. `term` is that of the subscription's duty.
    pub(super) fn advance(&self, name: &SubscriptionName, cursor: Seq, confirmed: u64, term: Option<Term>) {
        let mut unwritten = self.unwritten();
        let delivered = (confirmed > 0).then(Timestamp::now);
        match unwritten.cursors.get_mut(name) {
            Some(pending) => *pending = UnwrittenCursor { cursor, delivered: delivered.or(pending.delivered), term },
            None => {
                unwritten.cursors.insert(name.clone(), UnwrittenCursor { cursor, delivered, term });
            }
        }
        match unwritten.newest.get_mut(name) {
            Some(newest) => *newest = cursor,
            None => {
                unwritten.newest.insert(name.clone(), cursor);
            }
        }
        unwritten.confirmed += confirmed;
        if unwritten.confirmed >= FLUSH_MESSAGES {
            self.0.batch_full.notify_one();
        }
    }

    /// Writes all pending cursors. On return, every earlier call of [`Self::advance`] is durable.
    ///
    /// # Errors
    /// Fails if the journal cannot be written; the cursors then remain pending.
    pub(super) async fn flush(&self) -> Result<(), JournalError> {
        let _writing = self.0.writing.lock().await;
        let batch = {
            let mut unwritten = self.unwritten();
            unwritten.confirmed = 0;
            unwritten.cursors.clone()
        };
        if batch.is_empty() {
            return Ok(());
        }
        let advance = |(name, unwritten): (&SubscriptionName, &UnwrittenCursor)| {
            let UnwrittenCursor { cursor, delivered, term } = *unwritten;
            CursorAdvance { name: name.clone(), cursor, delivered, term }
        };
        self.0.journal.advance_all(batch.iter().map(advance).collect()).await?;
        // Only now, so that a caller that drops this future in the middle loses no cursor.
        self.unwritten().cursors.retain(|name, cursor| batch.get(name) != Some(cursor));
        Ok(())
    }

    /// Discards the pending cursor of a stopped subscription, before a rewind or a deletion.
    pub(super) async fn discard(&self, name: &SubscriptionName) {
        let _writing = self.0.writing.lock().await;
        let mut unwritten = self.unwritten();
        unwritten.cursors.remove(name);
        unwritten.newest.remove(name);
    }

    /// Returns the newest cursor of a subscription in its last tenure on this node, written or not, and forgets it.
    pub(super) fn take_newest(&self, name: &SubscriptionName) -> Option<Seq> {
        self.unwritten().newest.remove(name)
    }

    /// Waits until the next batch is due.
    pub(super) async fn due(&self) {
        tokio::select! {
            () = tokio::time::sleep(FLUSH_INTERVAL) => {}
            () = self.0.batch_full.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{Cursors, Journal, Seq, SubscriptionName};
    use crate::journal::{
        JournalSettings,
        store::sqlite::{SqliteOptions, SqliteStore},
    };

    #[tokio::test]
    async fn flush_that_is_dropped_in_the_middle_loses_no_cursor() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        let (journal, _threads) = Journal::start(store, JournalSettings::default()).unwrap();
        let (cursors, name) = (Cursors::new(journal), SubscriptionName::parse("index").unwrap());
        let mut seq = Seq(7);
        cursors.advance(&name, seq, 1, None);
        // On a busy machine the writer may answer before the future is polled, and then nothing is dropped in the middle.
        while cursors.flush().now_or_never().is_some() {
            seq = seq.next();
            cursors.advance(&name, seq, 1, None);
        }
        assert!(cursors.unwritten().cursors.contains_key(&name));
        cursors.advance(&name, seq.next(), 1, None);
        cursors.flush().await.unwrap();
        assert!(cursors.unwritten().cursors.is_empty());
    }
}
