//! Selections whose ranges stay in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ranges::Ranges,
    selection::{Selection, SelectionFilter},
};
use crate::journal::Journal;

/// Maximum number of selections.
const MAX_SELECTIONS: usize = 4;

/// Time after which an unfinished selection that no request continues gives its place up.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Ranges that all requests with the same filter share. One request at a time brings them up to date.
pub(super) type SharedRanges = Arc<tokio::sync::Mutex<Ranges>>;

/// The selections, the one that was used longest ago first.
#[derive(Default)]
pub(super) struct Selections(Vec<UsedSelection>);

struct UsedSelection {
    filter: Arc<SelectionFilter>,
    ranges: SharedRanges,
    used: Instant,
    /// Whether the pass over the registry has ended, and no request is going to begin another.
    is_complete: bool,
}

impl Selections {
    /// Returns the ranges of a selection, which may have no objects yet. `None` if there is no place for a further selection:
    /// one whose pass over the registry has not ended keeps its place, because otherwise none would ever end.
    pub(super) fn get(&mut self, selection: &Selection, journal: &Journal, now: Instant) -> Option<SharedRanges> {
        let used = match self.position(selection) {
            Some(at) => UsedSelection { used: now, is_complete: false, ..self.0.remove(at) },
            None => {
                self.make_room(now)?;
                let ranges = Arc::new(tokio::sync::Mutex::new(Ranges::new(selection.clone(), journal)));
                UsedSelection { filter: Arc::clone(selection.filter()), ranges, used: now, is_complete: false }
            }
        };
        let ranges = Arc::clone(&used.ranges);
        self.0.push(used);
        Some(ranges)
    }

    /// Notes whether the pass over the registry for these ranges has ended. The time in which a client must ask again begins now.
    pub(super) fn note(&mut self, ranges: &SharedRanges, is_complete: bool, now: Instant) {
        if let Some(used) = self.0.iter_mut().find(|used| Arc::ptr_eq(&used.ranges, ranges)) {
            (used.is_complete, used.used) = (is_complete, now);
        }
    }

    fn position(&self, selection: &Selection) -> Option<usize> {
        self.0.iter().position(|used| used.filter == *selection.filter())
    }

    fn make_room(&mut self, now: Instant) -> Option<()> {
        if self.0.len() >= MAX_SELECTIONS {
            let is_abandoned = |used: &UsedSelection| {
                Arc::strong_count(&used.ranges) == 1 && now.duration_since(used.used) >= ABANDONED_AFTER
            };
            let gives_up = |used: &UsedSelection| used.is_complete || is_abandoned(used);
            let at = self.0.iter().position(gives_up)?;
            self.0.remove(at);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ABANDONED_AFTER, Duration, Instant, Selection, Selections};
    use crate::{
        model::{Filter, UriPrefix},
        view::test_journal::{journal_of, small_draft},
        web::ReadPermit,
    };

    fn selection(name: &str) -> Selection {
        let objects = vec![UriPrefix::parse(name).unwrap()];
        Selection::new(Filter { objects, ..Filter::default() }, &ReadPermit::whole()).unwrap()
    }

    #[tokio::test]
    async fn unfinished_selection_keeps_its_place_while_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 1, 1, folder.path()).await;
        let mut selections = Selections::default();
        let now = Instant::now();
        let get = |selections: &mut Selections, name: &str, seconds: u64| {
            selections.get(&selection(name), &journal, now + Duration::from_secs(seconds)).is_some()
        };
        assert!(["a", "b", "c", "d"].iter().all(|name| get(&mut selections, name, 0)));
        assert!(!get(&mut selections, "e", 1), "four passes go on");
        assert!(get(&mut selections, "a", 2));
        let b = selections.get(&selection("b"), &journal, now).unwrap();
        selections.note(&b, true, now);
        assert!(get(&mut selections, "e", 3), "b can be made again");
        assert!(!get(&mut selections, "b", 4));
        assert!(get(&mut selections, "b", ABANDONED_AFTER.as_secs() + 1), "nobody continues c");
        assert!(get(&mut selections, "a", ABANDONED_AFTER.as_secs() + 1));
        assert_eq!(selections.0.len(), 4);
    }
}
