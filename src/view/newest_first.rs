//! Iterator over changes of the journal from the newest to the oldest, read piece by piece.

use std::{collections::VecDeque, sync::Arc};

use super::{PIECE_BYTES, block_on, journal_problem, store_problem};
use crate::{
    journal::{Journal, RecordedChange, store::StoreError},
    model::Seq,
    web::Problem,
};

/// Maximum number of changes in a piece.
const PIECE: usize = 100;

/// Iterator over the changes of a range of numbers that are still in the journal, newest first, without gaps. At most
/// one piece is in memory. It must run on a blocking thread.
pub(super) struct NewestFirst<'a> {
    journal: &'a Journal,
    first: Seq,
    piece: VecDeque<Arc<RecordedChange>>,
    /// Number of the last change returned.
    oldest: Option<Seq>,
}

impl<'a> NewestFirst<'a> {
    /// Reads the first piece of the changes from `first` to `last`.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(super) fn open(journal: &'a Journal, first: Seq, last: Seq) -> Result<Self, Problem> {
        let mut changes = Self { journal, first, piece: VecDeque::new(), oldest: None };
        changes.read(last.next())?;
        Ok(changes)
    }

    /// Returns the next change without advancing.
    pub(super) fn peek(&self) -> Option<&Arc<RecordedChange>> {
        self.piece.front()
    }

    /// Returns the number of the last change returned.
    pub(super) fn oldest(&self) -> Option<Seq> {
        self.oldest
    }

    fn read(&mut self, before: Seq) -> Result<(), Problem> {
        let count = usize::try_from(before.0.saturating_sub(self.first.0)).unwrap_or(PIECE).min(PIECE);
        if count > 0 {
            let read = block_on(self.journal.before_within(before, count, PIECE_BYTES)).map_err(journal_problem)?;
            self.piece = read.into_iter().take_while(|change| change.seq() >= self.first).collect();
        }
        Ok(())
    }
}

impl Iterator for NewestFirst<'_> {
    type Item = Result<Arc<RecordedChange>, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(oldest) = self.oldest.filter(|_| self.piece.is_empty())
            && let Err(problem) = self.read(oldest)
        {
            return Some(Err(problem));
        }
        let change = self.piece.pop_front()?;
        let newer = self.oldest.replace(change.seq());
        if newer.is_some_and(|newer| change.seq().next() != newer) {
            let missing = change.seq().next();
            let error = StoreError::DamagedChange { seq: missing, what: "it is missing".to_owned() };
            return Some(Err(store_problem(error)));
        }
        Some(Ok(change))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{NewestFirst, PIECE_BYTES, Seq};
    use crate::view::test_journal::journal_of;

    /// Draft whose change is larger than a piece.
    fn large_draft() -> Value {
        let item = |number: usize| json!({ "uri": format!("http://h/1/{number}"), "change": "ADD" });
        // The JSON of an item has more than fifty bytes.
        json!({ "object": "http://h/1", "items": (0..PIECE_BYTES / 50).map(item).collect::<Vec<_>>() })
    }

    #[tokio::test]
    async fn piece_contains_only_one_large_change() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(large_draft(), 3, 1, folder.path()).await;
        let read = move || {
            let mut changes = NewestFirst::open(&journal, Seq(1), Seq(3)).unwrap();
            let mut numbers = Vec::new();
            loop {
                assert!(changes.piece.len() <= 1, "{} are in memory", changes.piece.len());
                let Some(change) = changes.next() else { break numbers };
                numbers.push(change.unwrap().seq().0);
            }
        };
        assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), [3, 2, 1]);
    }
}
