//! Where all subscriptions are, written to the journal together: at most every tenth of a second, or
//! when a thousand messages have been confirmed since, and whenever somebody asks for it. A crash in
//! between costs a receiver that many repeats, and no gap; a sync of the disk for each message would
//! cost every source its share of the disk.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    journal::{Journal, JournalError},
    model::{Seq, SubscriptionName},
};

/// How long a cursor waits to be written at the most.
const WAIT: Duration = Duration::from_millis(100);

/// How many confirmed messages wait at the most.
const CONFIRMED: u64 = 1000;

/// The cursors that are yet to be written. Clones are handles to the same ones.
#[derive(Clone)]
pub(super) struct Cursors(Arc<Inner>);

struct Inner {
    journal: Journal,
    waiting: Mutex<Waiting>,
    enough: Notify,
    /// Held while cursors are on their way to the disk: who holds it knows that none is.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    cursors: BTreeMap<SubscriptionName, Seq>,
    confirmed: u64,
}

impl Cursors {
    pub(super) fn new(journal: Journal) -> Self {
        let writing = tokio::sync::Mutex::default();
        Self(Arc::new(Inner { journal, waiting: Mutex::default(), enough: Notify::new(), writing }))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A subscription is done with all changes up to `cursor`, `confirmed` of them by its receiver.
    pub(super) fn advance(&self, name: &SubscriptionName, cursor: Seq, confirmed: u64) {
        let mut waiting = self.waiting();
        match waiting.cursors.get_mut(name) {
            Some(held) => *held = cursor,
            None => {
                waiting.cursors.insert(name.clone(), cursor);
            }
        }
        waiting.confirmed += confirmed;
        if waiting.confirmed >= CONFIRMED {
            self.0.enough.notify_one();
        }
    }

    /// Writes what waits. On return everything that was advanced before is on disk.
    ///
    /// # Errors
    /// When the journal cannot be written; then it waits on.
    pub(super) async fn flush(&self) -> Result<(), JournalError> {
        let _writing = self.0.writing.lock().await;
        let taken = std::mem::take(&mut *self.waiting());
        if taken.cursors.is_empty() {
            return Ok(());
        }
        let cursors = taken.cursors.iter().map(|(name, cursor)| (name.clone(), *cursor)).collect();
        let written = self.0.journal.advance(cursors).await;
        if written.is_err() {
            let mut waiting = self.waiting();
            for (name, cursor) in taken.cursors {
                waiting.cursors.entry(name).or_insert(cursor);
            }
        }
        written
    }

    /// Drops what waits of a subscription, whose engine has stopped: it goes elsewhere, or nowhere.
    pub(super) async fn forget(&self, name: &SubscriptionName) {
        let _writing = self.0.writing.lock().await;
        self.waiting().cursors.remove(name);
    }

    /// Waits until it is time to write.
    pub(super) async fn due(&self) {
        tokio::select! {
            () = tokio::time::sleep(WAIT) => {}
            () = self.0.enough.notified() => {}
        }
    }
}
