//! Pull surfaces: what a client reads when it likes. Each reads the journal by number or the
//! registry, and writes in the formats; none changes anything.
//!
//! To add a view: one new file here, and one line in [`crate::router`].

pub mod changes;
pub mod objects;
pub mod service;
pub mod snapshot;

use std::time::Duration;

use crate::{
    journal::JournalError,
    model::Seq,
    web::{Problem, ProblemCode},
};

/// The problem that a reader is told when the journal could not be read.
fn unreadable(error: JournalError) -> Problem {
    if let JournalError::Gone { after, first } = error {
        return gone(after, first);
    }
    if error.is_transient() {
        Problem::new(ProblemCode::Unavailable, format!("The journal cannot be read at present: {error}."))
            .retry_after(Duration::from_secs(5))
            .because(error)
    } else {
        Problem::internal(error)
    }
}

/// What a reader is told whose place is not in the journal any more, or never was: where to start.
fn gone(after: Seq, first: Seq) -> Problem {
    let detail = format!(
        "The journal cannot be read on from {after}: what came next is no longer kept, or this is not a number of this \
         journal (it may have been restored from a backup). The oldest change that is kept has the number {first}. Start \
         again: read the registry as it is now, page by page from /snapshot, then go on with /changes?after= and the \
         \"head\" of its first page."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}
