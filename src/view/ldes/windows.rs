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
        numbered_pages::{NumberedPages, first_of},
    },
    web::Problem,
};

/// Maximum number of windows in memory: those of a journal with ten million changes.
const MAX_WINDOWS: usize = 100_000;

/// Order times at which pages begin. They never change, so the journal is asked once for each.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<KnownWindows>);

#[derive(Debug, Default)]
struct KnownWindows {
    /// Identity of the journal.
    journal: Uuid,
    /// Order times of the first changes, by the numbers of their pages.
    begins: BTreeMap<u64, OrderTime>,
}

impl Windows {
    /// Returns the order times at which these pages begin, in ascending order of the pages. It must run on a blocking thread.
    ///
    /// # Errors
    /// `unavailable` if the journal cannot be read.
    pub(super) fn begins(
        &self,
        asked: &[u64],
        pages: &NumberedPages,
        journal: &Journal,
    ) -> Result<Vec<OrderTime>, Problem> {
        let identity = journal.identity();
        let (mut begins, unknown, known) = {
            let windows = self.of(identity);
            let begin = |page: &u64| Some((*page, *windows.begins.get(page)?));
            let begins: BTreeMap<_, _> = asked.iter().filter_map(begin).collect();
            let unknown: Vec<_> = asked.iter().copied().filter(|page| !begins.contains_key(page)).collect();
            let before = unknown.first().and_then(|page| windows.begins.range(..page).next_back());
            (begins, unknown, before.map(|(page, begin)| (first_of(*page), *begin)).unwrap_or_default())
        };
        if !unknown.is_empty() {
            // Retention can have removed the beginning of the newest page.
            let firsts: Vec<Seq> = unknown.iter().map(|page| first_of(*page).max(pages.first())).collect();
            let computed = block_on(journal.order_times(known, firsts)).map_err(journal_problem)?;
            let computed = unknown.into_iter().zip(computed);
            let mut windows = self.of(identity);
            if windows.begins.len() >= MAX_WINDOWS {
                windows.begins.clear();
            }
            let is_whole = |(page, _): &(u64, OrderTime)| first_of(*page) >= pages.first();
            windows.begins.extend(computed.clone().filter(is_whole));
            begins.extend(computed);
        }
        Ok(begins.into_values().collect())
    }

    /// Returns the windows of a journal. Those of another one are forgotten.
    fn of(&self, journal: Uuid) -> MutexGuard<'_, KnownWindows> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.journal != journal {
            *windows = KnownWindows { journal, begins: BTreeMap::new() };
        }
        windows
    }
}

/// Returns the problem of a time that cannot be written.
pub(super) fn beyond_calendar() -> Problem {
    Problem::internal("the order time of a change is after the year 9999")
}
