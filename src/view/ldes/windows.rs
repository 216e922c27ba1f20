//! Windows of pages: the order times at which they begin.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use uuid::Uuid;

use crate::{
    journal::Journal,
    model::Timestamp,
    view::{
        block_on, journal_problem,
        numbered_pages::{NumberedPages, first_of},
    },
    web::{Problem, ProblemCode},
};

/// Maximum number of windows in memory: those of a journal with ten million changes.
const MAX_WINDOWS: usize = 100_000;

/// Order times at which pages begin. They never change, so each is asked for once.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<(Uuid, BTreeMap<u64, Timestamp>)>);

impl Windows {
    /// Returns the order time of the first change of a page. It must run on a blocking thread.
    ///
    /// # Errors
    /// `unavailable` if the journal cannot be read.
    pub(super) fn begin_of(&self, page: u64, pages: &NumberedPages, journal: &Journal) -> Result<Timestamp, Problem> {
        let identity = journal.identity();
        let known = |(of, windows): &(Uuid, BTreeMap<u64, Timestamp>)| {
            if *of == identity { windows.get(&page).copied() } else { None }
        };
        if let Some(begin) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(begin);
        }
        // Retention can have removed the beginning of the newest page.
        let first = first_of(page).max(pages.first());
        let order = block_on(journal.order_time(first)).map_err(journal_problem)?;
        let begin = order.timestamp().ok_or_else(beyond_calendar)?;
        if first == first_of(page) {
            let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if windows.0 != identity || windows.1.len() >= MAX_WINDOWS {
                *windows = (identity, BTreeMap::new());
            }
            windows.1.insert(page, begin);
        }
        Ok(begin)
    }
}

/// Returns the problem of a time that cannot be written.
pub(super) fn beyond_calendar() -> Problem {
    Problem::new(ProblemCode::Internal, "The order time of a change is after the year 9999.")
}
