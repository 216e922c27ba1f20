//! Publication of committed changes to the readers of this node: first the tail, then the head.
//!
//! The writer publishes its own changes, and the follower those of other nodes. Both publish under one lock and in the
//! order of the numbers, so no reader of this node ever sees a number before a smaller one.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::watch;
use uuid::Uuid;

use super::{
    metrics,
    store::{JournalState, NewChange, Store, StoreError},
    tail::{RecordedChange, Tail},
};
use crate::model::Seq;

/// Publishes changes in the order of their numbers.
pub(super) struct Publisher {
    store: Arc<dyn Store>,
    tail: Arc<Tail>,
    head: watch::Sender<Seq>,
    facts: Arc<JournalFacts>,
    progress: Mutex<Progress>,
}

/// Gaps in the numbering, as far as this node knows.
#[derive(Debug, Default)]
struct Progress {
    /// Newest number that a restore or a failover has skipped.
    floor: Seq,
    /// Published head before the first gap since the follower has read the state.
    before_gap: Option<Seq>,
}

/// Facts about the journal that change rarely, for readers.
#[derive(Debug)]
pub(super) struct JournalFacts {
    /// Identity of the journal that the published changes are of.
    identity: RwLock<Uuid>,
    /// Number of the oldest available change; 0 for none, because no change has the number 0.
    first: AtomicU64,
    /// Ranges of numbers that restores and failovers have skipped: after the first number, up to the second.
    skipped_ranges: RwLock<Arc<[(Seq, Seq)]>>,
}

impl JournalFacts {
    pub(super) fn new(identity: Uuid, first: Option<Seq>, skipped_ranges: Vec<(Seq, Seq)>) -> Self {
        let first = AtomicU64::new(first.unwrap_or_default().0);
        Self { identity: RwLock::new(identity), first, skipped_ranges: RwLock::new(skipped_ranges.into()) }
    }

    /// Returns the identity of the journal that the published changes are of. The store may know a later one already.
    pub(super) fn identity(&self) -> Uuid {
        *self.identity.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_identity(&self, identity: Uuid) {
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Returns the number of the oldest available change.
    pub(super) fn first(&self) -> Option<Seq> {
        Some(Seq(self.first.load(Ordering::Acquire))).filter(|first| *first != Seq::ZERO)
    }

    fn set_first(&self, first: Seq) {
        self.first.store(first.0, Ordering::Release);
    }

    /// Returns the ranges of numbers that restores and failovers have skipped.
    pub(super) fn skipped_ranges(&self) -> Arc<[(Seq, Seq)]> {
        Arc::clone(&self.skipped_ranges.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_skipped_ranges(&self, ranges: Vec<(Seq, Seq)>) {
        *self.skipped_ranges.write().unwrap_or_else(PoisonError::into_inner) = ranges.into();
    }
}

impl Publisher {
    pub(super) fn new(
        store: Arc<dyn Store>,
        tail: Arc<Tail>,
        head: watch::Sender<Seq>,
        facts: Arc<JournalFacts>,
    ) -> Self {
        let floor = facts.skipped_ranges().last().map_or(Seq::ZERO, |(_, floor)| *floor);
        Self { store, tail, head, facts, progress: Mutex::new(Progress { floor, before_gap: None }) }
    }

    /// Publishes the changes of a batch that followed the change `stored_head`. Returns the changes evicted from the
    /// tail, so that the caller can free them after it has replied. After a gap in the numbering, readers learn the skipped
    /// numbers before the changes; if they cannot be read now, the follower publishes the changes.
    pub(super) fn publish(&self, stored_head: Seq, changes: Vec<NewChange>) -> Vec<Arc<RecordedChange>> {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return Vec::new() };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let mut progress = self.lock();
        let published = self.published();
        if oldest > published.next()
            && let Err(error) = self.learn_of_losses()
        {
            tracing::debug!(%error, "cannot read the skipped numbers; the changes are published later");
            return Vec::new();
        }
        let mut first_new = oldest;
        if published < stored_head {
            // The changes of other nodes are stored, so a reader who misses them in the tail reads them from the store.
            match self.catch_up(published, stored_head) {
                Ok(first) => first_new = first.unwrap_or(oldest),
                Err(error) => tracing::debug!(%error, "cannot read the changes of other nodes"),
            }
        }
        if first_new > published.next() {
            progress.before_gap.get_or_insert(published);
        }
        // Changes of other nodes may be older; the follower then learns the oldest one.
        if self.facts.first().is_none() && published >= stored_head {
            self.facts.set_first(oldest);
        }
        // The follower may have published some of them since the commit.
        let new = changes.into_iter().filter(|new| new.change.seq > published);
        let new = new.map(|new| Arc::new(RecordedChange::new(new.change, new.json, new.visibility)));
        let evicted = self.tail.extend(new);
        self.move_head(newest.max(published));
        evicted
    }

    /// Lets readers know of a failover or a restore before they see a number after the skipped ones. They never see a lost
    /// change under the new identity.
    fn learn_of_losses(&self) -> Result<(), StoreError> {
        let ranges = self.store.skipped_ranges()?;
        if ranges != *self.facts.skipped_ranges() {
            self.tail.clear();
            self.facts.set_skipped_ranges(ranges);
            self.facts.set_identity(self.store.identity());
        }
        Ok(())
    }

    /// Publishes the changes of other nodes up to a state of the journal, and all other news from them.
    ///
    /// # Errors
    /// Fails if the changes cannot be read; then nothing was published.
    pub(super) fn follow(&self, state: JournalState) -> Result<(), StoreError> {
        let mut progress = self.lock();
        let published = self.published();
        let has_more = published < state.head;
        if has_more {
            self.catch_up(published, state.head)?;
        }
        if state.floor() > progress.floor {
            let seen = progress.before_gap.take().unwrap_or(published);
            // The new database server may lack changes that this node has published.
            let is_lost = |(head, floor): &&(Seq, Seq)| *head < seen && seen <= *floor;
            if let Some((head, _)) = state.skipped_ranges.iter().find(is_lost) {
                log_loss(*head, seen);
            }
            if state.head < published && published <= state.floor() {
                self.tail.clear();
                self.move_head(state.head);
                self.facts.set_first(state.first.unwrap_or_default());
            }
            progress.floor = state.floor();
            self.facts.set_skipped_ranges(state.skipped_ranges);
            // No lost change is published any more.
            self.facts.set_identity(state.identity);
        } else if state.head >= published {
            // The state is newer than the gap, so no loss was its reason.
            progress.before_gap = None;
        }
        // A reader who sees a number after skipped ones knows that they were skipped.
        if has_more {
            self.move_head(state.head);
        }
        // A state that was read before the newest removal has an older number.
        if let Some(first) = state.first.filter(|first| Some(*first) > self.facts.first()) {
            self.remove_before(first);
        }
        Ok(())
    }

    /// Makes the changes before `first` unavailable, because retention has removed them.
    pub(super) fn remove_before(&self, first: Seq) {
        self.facts.set_first(first);
        self.tail.drop_before(first);
    }

    /// Reads the changes after `published` up to `head` into the tail; only the newest, if there are too many. Returns
    /// the number of the first of them.
    fn catch_up(&self, published: Seq, head: Seq) -> Result<Option<Seq>, StoreError> {
        let newest = Tail::read_newest(&*self.store, published, head, self.tail.bounds())?;
        let first = newest.first().map(|change| change.seq);
        drop(self.tail.extend(newest.into_iter().map(|stored| Arc::new(RecordedChange::from(stored)))));
        Ok(first)
    }

    fn move_head(&self, head: Seq) {
        self.head.send_if_modified(|published| std::mem::replace(published, head) != head);
        metrics::head(head);
    }

    fn published(&self) -> Seq {
        *self.head.borrow()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_loss(head: Seq, published: Seq) {
    tracing::error!(
        first_seq = head.next().0,
        last_seq = published.0,
        "the journal's database has lost changes that readers may have seen: a standby was promoted without them, or an \
         earlier state was restored; their numbers are not given again, and readers beyond the loss are told to start again"
    );
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Arc, JournalFacts, JournalState, NewChange, Publisher, Seq, Tail, Uuid, watch};
    use crate::{
        journal::{
            TailBounds,
            store::{FILE_NAME, Store, sqlite::SqliteStore},
        },
        model::{Change, ChangeId},
    };

    struct Published {
        publisher: Publisher,
        tail: Arc<Tail>,
        head: watch::Receiver<Seq>,
        facts: Arc<JournalFacts>,
    }

    impl Published {
        /// Publishes nothing yet, over an empty store.
        fn none(folder: &std::path::Path) -> Self {
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder, Default::default()).unwrap());
            let tail = Arc::new(Tail::load(&*store, Seq::ZERO, TailBounds::default()).unwrap());
            let facts = Arc::new(JournalFacts::new(store.identity(), None, Vec::new()));
            let (sender, head) = watch::channel(Seq::ZERO);
            let publisher = Publisher::new(store, Arc::clone(&tail), sender, Arc::clone(&facts));
            Self { publisher, tail, head, facts }
        }

        /// Publishes the changes 1 to 8 of an empty store.
        fn eight(folder: &std::path::Path) -> Self {
            let published = Self::none(folder);
            published.publisher.publish(Seq::ZERO, changes(1..=8));
            published
        }

        fn head(&self) -> u64 {
            self.head.borrow().0
        }

        fn after(&self, cursor: u64) -> Option<Vec<u64>> {
            let page = self.tail.after(Seq(cursor), 99, usize::MAX)?;
            Some(page.iter().map(|change| change.seq().0).collect())
        }
    }

    fn changes(numbers: impl IntoIterator<Item = u64>) -> Vec<NewChange> {
        let change = |number| {
            let mut change: Change = serde_json::from_str(include_str!("../../fixtures/change.json")).unwrap();
            (change.seq, change.modification.id) = (Seq(number), ChangeId::mint());
            let json = Bytes::from(serde_json::to_vec(&change).unwrap());
            NewChange { change, json, visibility: None, key: None, incomplete: None }
        };
        numbers.into_iter().map(change).collect()
    }

    /// State of the journal after a failover that lost the changes 6 to 8.
    fn after_loss() -> JournalState {
        JournalState {
            identity: Uuid::from_u128(2),
            head: Seq(5),
            first: Some(Seq(1)),
            skipped_ranges: vec![(Seq(5), Seq(1000))],
        }
    }

    #[test]
    fn oldest_change_is_not_the_oldest_own_one_after_changes_of_other_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::none(folder.path());
        published.publisher.publish(Seq(3), changes(4..=5));
        assert_eq!((published.head(), published.facts.first()), (5, None));
        let state = JournalState { head: Seq(5), first: Some(Seq(1)), ..JournalState::default() };
        published.publisher.follow(state).unwrap();
        assert_eq!(published.facts.first(), Some(Seq(1)));
        let other_folder = tempfile::tempdir().unwrap();
        assert_eq!(Published::eight(other_folder.path()).facts.first(), Some(Seq(1)));
    }

    #[test]
    fn older_states_and_changes_that_are_published_already_move_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::eight(folder.path());
        published
            .publisher
            .follow(JournalState { head: Seq(6), first: Some(Seq(1)), ..JournalState::default() })
            .unwrap();
        published.publisher.publish(Seq(6), changes(7..=9));
        assert_eq!(published.head(), 9);
        assert_eq!(published.after(5), Some(vec![6, 7, 8, 9]));
    }

    #[test]
    fn removed_changes_leave_the_tail() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::eight(folder.path());
        let state = |first| JournalState { head: Seq(8), first: Some(Seq(first)), ..JournalState::default() };
        published.publisher.follow(state(4)).unwrap();
        published.publisher.follow(state(2)).unwrap();
        assert_eq!((published.facts.first(), published.after(2)), (Some(Seq(4)), None));
        assert_eq!(published.after(3), Some(vec![4, 5, 6, 7, 8]));
    }

    #[test]
    fn lost_changes_leave_the_tail_before_the_next_change() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::eight(folder.path());
        published.publisher.follow(after_loss()).unwrap();
        assert_eq!((published.head(), published.after(5)), (5, None));
        assert_eq!(published.facts.identity(), Uuid::from_u128(2));
        assert_eq!(published.facts.skipped_ranges()[..], [(Seq(5), Seq(1000))]);
        published.publisher.publish(Seq(5), changes([1001]));
        published.publisher.follow(after_loss()).unwrap();
        assert_eq!((published.head(), published.after(1000)), (1001, Some(vec![1001])));
    }

    #[test]
    fn lost_changes_leave_the_tail_with_the_next_change() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::eight(folder.path());
        rusqlite::Connection::open(folder.path().join(FILE_NAME))
            .unwrap()
            .execute("INSERT INTO restores (head, floor) VALUES (5, 1000)", [])
            .unwrap();
        let former = published.facts.identity();
        published.publisher.publish(Seq(5), changes([1001]));
        // Readers know the skipped numbers together with the change, although no state was read.
        assert_eq!(published.facts.skipped_ranges()[..], [(Seq(5), Seq(1000))]);
        assert_eq!((published.after(7), published.facts.identity()), (None, former), "the store has the same one");
        // A state that was read before the failover does not explain the gap.
        published
            .publisher
            .follow(JournalState { head: Seq(8), first: Some(Seq(1)), ..JournalState::default() })
            .unwrap();
        assert_eq!(published.publisher.lock().before_gap, Some(Seq(8)));
        published.publisher.follow(after_loss()).unwrap();
        assert_eq!(published.publisher.lock().before_gap, None);
        assert_eq!((published.head(), published.after(7), published.after(8)), (1001, None, None));
        assert_eq!(published.facts.skipped_ranges()[..], [(Seq(5), Seq(1000))]);
    }

    /// Notes the skipped ranges that are known when a reader is woken.
    struct Reader {
        facts: Arc<JournalFacts>,
        known: std::sync::Mutex<Option<usize>>,
    }

    impl std::task::Wake for Reader {
        fn wake(self: Arc<Self>) {
            *self.known.lock().unwrap() = Some(self.facts.skipped_ranges().len());
        }
    }

    #[test]
    fn skipped_numbers_are_known_before_the_first_number_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let published = Published::eight(folder.path());
        let reader = Arc::new(Reader { facts: Arc::clone(&published.facts), known: Default::default() });
        let waker = std::task::Waker::from(Arc::clone(&reader));
        let mut head = published.head.clone();
        head.mark_unchanged();
        let mut changed = std::pin::pin!(head.changed());
        assert!(changed.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        published.publisher.follow(JournalState { head: Seq(1002), ..after_loss() }).unwrap();
        assert_eq!((published.head(), *reader.known.lock().unwrap()), (1002, Some(1)));
    }
}
