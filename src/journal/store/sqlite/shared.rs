//! The part of the registry that is in memory ([`Gathered`]), shared by the writer and the readers.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::{Duration, Instant},
};

use rusqlite::{Connection, Transaction};

use super::{gathered::Gathered, read};
use crate::{journal::store::StoreError, model::Seq};

/// Longest time for which a reader waits until memory follows the file: the writer updates memory right after a commit.
const PATIENCE: Duration = Duration::from_secs(5);

/// The part of the registry that is in memory. It changes only while the writing connection is held.
pub(super) struct SharedGathered {
    gathered: RwLock<Gathered>,
    /// The newest change that memory covers.
    newest: Mutex<Seq>,
    /// Notified whenever `newest` changes.
    moved: Condvar,
}

impl SharedGathered {
    pub(super) fn new(gathered: Gathered) -> Self {
        let newest = Mutex::new(gathered.newest().change);
        Self { gathered: RwLock::new(gathered), newest, moved: Condvar::new() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Gathered> {
        self.gathered.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates memory, and wakes the readers that wait for it.
    pub(super) fn update<T>(&self, update: impl FnOnce(&mut Gathered) -> T) -> T {
        let mut gathered = self.gathered.write().unwrap_or_else(PoisonError::into_inner);
        let updated = update(&mut gathered);
        let newest = gathered.newest().change;
        drop(gathered);
        *self.newest() = newest;
        self.moved.notify_all();
        updated
    }

    fn newest(&self) -> MutexGuard<'_, Seq> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a read transaction, and picks a part of memory as of the same moment. A caller that knows of a change finds
    /// what the change did in the tables or in memory: rows are written to the tables before they leave memory. Between a
    /// commit and the update of memory, the file has a change that memory does not cover: the reader waits for the update.
    pub(super) fn at_one_moment<'c, T>(
        &self,
        connection: &'c Connection,
        pick: impl Fn(&Gathered) -> T,
    ) -> Result<(Transaction<'c>, T), StoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let gathered = self.read();
            let transaction = connection.unchecked_transaction()?;
            let head = read::head(&transaction)?;
            if head <= gathered.newest().change {
                let picked = pick(&gathered);
                return Ok((transaction, picked));
            }
            drop((gathered, transaction));
            let left = until.saturating_duration_since(Instant::now());
            let is_behind = |newest: &mut Seq| *newest < head;
            let waited = self.moved.wait_timeout_while(self.newest(), left, is_behind);
            if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                return Err(StoreError::Io("the registry does not follow the changes".to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::{super::confirmations::all_moved, Connection, Duration, Seq, SharedGathered};

    /// A file with one change.
    fn file() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE changes (seq INTEGER PRIMARY KEY, received INTEGER)").unwrap();
        connection.execute("INSERT INTO changes VALUES (1, 0)", []).unwrap();
        connection
    }

    #[test]
    fn reader_sleeps_until_memory_covers_the_newest_change() {
        let shared = Arc::new(SharedGathered::new(all_moved(Seq::ZERO)));
        let reading = Arc::clone(&shared);
        let mut connection = file();
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        let reader = std::thread::spawn(move || {
            reading.at_one_moment(&connection, |gathered| gathered.newest().change).map(|(_, newest)| newest)
        });
        while steps.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // Time in which a reader that looks again and again would take far more steps.
        std::thread::sleep(Duration::from_millis(100));
        shared.update(|gathered| *gathered = all_moved(Seq(1)));
        assert_eq!(reader.join().unwrap().unwrap(), Seq(1));
        assert!(steps.load(Ordering::Relaxed) < 200, "{steps:?} steps of statements");
    }
}
