//! Windows of pages: the order times at which they begin.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use crate::{
    journal::{Journal, order::OrderTime},
    model::Seq,
    view::{
        block_on, journal_problem,
        numbered_pages::{NumberedPages, first_of, page_of},
    },
    web::Problem,
};

/// Maximum number of windows in memory: those of a journal with ten million changes.
const MAX_WINDOWS: usize = 100_000;

/// Order times at which pages begin. They never change, so the journal is asked once for each, also if several readers
/// need one at the same time.
#[derive(Debug, Default)]
pub(super) struct Windows {
    known: Mutex<KnownWindows>,
    /// Held while the journal is asked.
    asking: Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownWindows {
    /// Identity of the journal.
    journal: Uuid,
    /// Order times of the first changes of pages, by the numbers of these changes.
    begins: BTreeMap<Seq, OrderTime>,
}

impl Windows {
    /// Returns the order times at which these pages begin, which ascend. A page that retention has truncated begins with
    /// the oldest change. It must run on a blocking thread.
    ///
    /// # Errors
    /// `unavailable` if the journal cannot be read.
    pub(super) fn begins(
        &self,
        asked: &[u64],
        pages: &NumberedPages,
        journal: &Journal,
    ) -> Result<Vec<OrderTime>, Problem> {
        let firsts: Vec<Seq> = asked.iter().map(|page| pages.begin_of(*page)).collect();
        let ask = |before, unknown: &[Seq]| {
            let computed = block_on(journal.order_times(before, unknown.to_vec())).map_err(journal_problem)?;
            Ok((computed, journal.first()))
        };
        self.known_or(journal.identity(), &firsts, ask)
    }

    /// Returns the order times of changes. `ask` computes those that are not known, after a change that is known, and
    /// returns the number of the oldest change, too.
    fn known_or<E>(
        &self,
        journal: Uuid,
        firsts: &[Seq],
        ask: impl FnOnce((Seq, OrderTime), &[Seq]) -> Result<(Vec<OrderTime>, Seq), E>,
    ) -> Result<Vec<OrderTime>, E> {
        if let Some(begins) = self.of(journal).all(firsts) {
            return Ok(begins);
        }
        let _asking = lock(&self.asking);
        let (mut begins, unknown, before) = self.of(journal).some(firsts);
        if !unknown.is_empty() {
            let (computed, oldest) = ask(before, &unknown)?;
            let computed = unknown.into_iter().zip(computed);
            // Only of whole pages, because the oldest change is another one soon.
            let of_whole =
                computed.clone().filter(|(first, _)| *first >= oldest && first_of(page_of(*first)) == *first);
            self.of(journal).add(of_whole);
            begins.extend(computed);
        }
        Ok(begins.into_values().collect())
    }

    /// Returns the windows of a journal. Those of another one are forgotten.
    fn of(&self, journal: Uuid) -> MutexGuard<'_, KnownWindows> {
        let mut windows = lock(&self.known);
        if windows.journal != journal {
            *windows = KnownWindows { journal, begins: BTreeMap::new() };
        }
        windows
    }
}

impl KnownWindows {
    /// Returns the order times of changes, if all are known.
    fn all(&self, firsts: &[Seq]) -> Option<Vec<OrderTime>> {
        firsts.iter().map(|first| self.begins.get(first).copied()).collect()
    }

    /// Returns the known order times of changes, the changes without one, and the newest known one before these.
    fn some(&self, firsts: &[Seq]) -> (BTreeMap<Seq, OrderTime>, Vec<Seq>, (Seq, OrderTime)) {
        let known = |first: &Seq| Some((*first, *self.begins.get(first)?));
        let begins: BTreeMap<_, _> = firsts.iter().filter_map(known).collect();
        let unknown: Vec<_> = firsts.iter().copied().filter(|first| !begins.contains_key(first)).collect();
        let before = unknown.first().and_then(|first| self.begins.range(..*first).next_back());
        (begins, unknown, before.map(|(first, begin)| (*first, *begin)).unwrap_or_default())
    }

    fn add(&mut self, begins: impl Iterator<Item = (Seq, OrderTime)>) {
        if self.begins.len() >= MAX_WINDOWS {
            self.begins.clear();
        }
        self.begins.extend(begins);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the problem of a time that cannot be written.
pub(super) fn beyond_calendar() -> Problem {
    Problem::internal("the order time of a change is after the year 9999")
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::{OrderTime, Seq, Uuid, Windows};

    const READERS: usize = 8;

    #[test]
    fn journal_is_asked_once_for_all_readers_of_a_page() {
        let (windows, begin) = (Windows::default(), Barrier::new(READERS));
        let (asked, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let read = || {
            begin.wait();
            waiting.fetch_add(1, Ordering::SeqCst);
            let ask = |_, unknown: &[Seq]| {
                asked.fetch_add(1, Ordering::SeqCst);
                // All readers are about to look, and have time to do so.
                while waiting.load(Ordering::SeqCst) < READERS {
                    std::thread::yield_now();
                }
                (0..1000).for_each(|_| std::thread::yield_now());
                let times = unknown.iter().map(|seq| OrderTime(seq.0.cast_signed())).collect();
                Ok::<_, Infallible>((times, Seq(1)))
            };
            windows.known_or(Uuid::nil(), &[Seq(101), Seq(201)], ask).unwrap()
        };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            for reader in readers {
                assert_eq!(reader.join().unwrap(), [OrderTime(101), OrderTime(201)]);
            }
        });
        assert_eq!(asked.into_inner(), 1);
    }

    #[test]
    fn only_windows_of_whole_pages_of_the_same_journal_are_kept() {
        let windows = Windows::default();
        let ask = |journal: u128, firsts: &[u64], oldest: u64| {
            let firsts: Vec<_> = firsts.iter().copied().map(Seq).collect();
            let mut asked = Vec::new();
            let begins = windows.known_or(Uuid::from_u128(journal), &firsts, |_, unknown| {
                asked = unknown.iter().map(|seq| seq.0).collect();
                let times = unknown.iter().map(|seq| OrderTime(seq.0.cast_signed())).collect();
                Ok::<_, Infallible>((times, Seq(oldest)))
            });
            assert_eq!(begins.unwrap().len(), firsts.len());
            asked
        };
        assert_eq!(ask(1, &[101, 201], 1), [101, 201]);
        assert_eq!(ask(1, &[101, 201, 301], 1), [301]);
        // Retention has removed the beginning of a page, or goes on.
        assert_eq!(ask(1, &[150, 201], 150), [150]);
        assert_eq!(ask(1, &[150, 401], 402), [150, 401]);
        assert_eq!(ask(1, &[401], 1), [401]);
        assert_eq!(ask(2, &[201], 1), [201]);
    }
}
