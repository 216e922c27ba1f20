//! Changes of the journal from the newest to the oldest, read piece by piece.

use std::{collections::VecDeque, sync::Arc};

use super::{PIECE_BYTES, journal_problem, store_problem, wait_for};
use crate::{
    journal::{Journal, Recorded, store::StoreError},
    model::Seq,
    web::Problem,
};

/// Maximum number of changes in a piece.
const PIECE: usize = 100;

/// The changes from one number to another that are kept, newest first, without a gap. No more of them are in memory
/// than one piece. It is for a thread that may wait.
pub(super) struct Backwards<'a> {
    journal: &'a Journal,
    first: Seq,
    piece: VecDeque<Arc<Recorded>>,
    /// The number of the change that was given last.
    oldest: Option<Seq>,
}

impl<'a> Backwards<'a> {
    /// Reads the first piece of the changes from `first` to `last`.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub(super) fn open(journal: &'a Journal, first: Seq, last: Seq) -> Result<Self, Problem> {
        let mut changes = Self { journal, first, piece: VecDeque::new(), oldest: None };
        changes.read(last.next())?;
        Ok(changes)
    }

    /// The change that comes next.
    pub(super) fn peek(&self) -> Option<&Arc<Recorded>> {
        self.piece.front()
    }

    /// The number of the change that came last.
    pub(super) fn oldest(&self) -> Option<Seq> {
        self.oldest
    }

    fn read(&mut self, before: Seq) -> Result<(), Problem> {
        let wanted = usize::try_from(before.0.saturating_sub(self.first.0)).unwrap_or(PIECE).min(PIECE);
        if wanted > 0 {
            let read = wait_for(self.journal.before_within(before, wanted, PIECE_BYTES)).map_err(journal_problem)?;
            self.piece = read.into_iter().take_while(|change| change.seq() >= self.first).collect();
        }
        Ok(())
    }
}

impl Iterator for Backwards<'_> {
    type Item = Result<Arc<Recorded>, Problem>;

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
            return Some(Err(store_problem(StoreError::Damaged(format!("change {missing} is not there")))));
        }
        Some(Ok(change))
    }
}
