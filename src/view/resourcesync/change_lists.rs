//! The change lists (section 12), as readers get them at one head. [`division`](super::division) divides the journal into them.

use super::loss::Loss;
use crate::{
    journal::order::OrderTime,
    model::{Seq, Timestamp},
    web::{Problem, ProblemCode},
};

/// A change list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeList {
    /// Number of its first change.
    pub(super) first: Seq,
    /// Number of its last change; less than `first` if the journal has no change that readers may get.
    pub(super) last: Seq,
    /// Order time of the first change.
    pub(super) begin: OrderTime,
    /// Time since which the list has all changes.
    pub(super) from: Timestamp,
    /// Time until which the list has all changes, if it is closed.
    pub(super) until: Option<Timestamp>,
}

/// The change lists at one head.
#[derive(Clone, Debug)]
pub(super) struct ChangeLists {
    /// The lists, of which the last is open. There is at least one.
    pub(super) lists: Vec<ChangeList>,
    /// Number of the newest change in the lists, or before them if they have none.
    pub(super) head: Seq,
    /// Time of that change. All changes after `head` are later.
    pub(super) at: Timestamp,
    /// The last loss of changes.
    pub(super) loss: Loss,
    /// Whether the lists begin with the oldest change that is there, and therefore elsewhere after each removal.
    pub(super) begin_moves: bool,
}

impl ChangeLists {
    /// Returns the list that begins with this change.
    ///
    /// # Errors
    /// `gone` if retention or a loss of changes has removed it; `not-found` if no list begins there.
    pub(super) fn find(&self, first: Seq) -> Result<ChangeList, Problem> {
        let found = self.lists.iter().find(|list| list.first == first).copied();
        let begin = self.begin();
        let is_gone = first < begin || (self.begin_moves && first <= self.head);
        found.ok_or_else(|| match is_gone {
            true => list_gone(begin),
            false => {
                let detail = format!("No change list begins with change {first}. The index has all: changelist.xml.");
                Problem::new(ProblemCode::NotFound, detail)
            }
        })
    }

    /// Returns the number from which on the lists have all changes.
    pub(super) fn begin(&self) -> Seq {
        self.lists.first().map_or(self.head.next(), |list| list.first)
    }

    /// Returns the time since which the lists have all changes. A destination with an older resource list begins anew.
    pub(super) fn from(&self) -> Timestamp {
        self.lists.first().map_or(self.at, |list| list.from)
    }
}

/// Returns the problem of a list that was removed. The index shows this to readers by its later begin.
pub(super) fn list_gone(first: Seq) -> Problem {
    let detail = format!(
        "The document has been removed by retention, or the journal was restored after it was made. The change lists begin \
         with change {first}. Start again: read the resource list, and then the changes since its attribute \"at\"."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0)
}
