//! Pull surfaces: what a client reads when it likes. Each reads the journal by number or the
//! registry, and writes in the formats; none changes anything.
//!
//! To add a view: one new file here, and one line in [`crate::router`].

mod atom;
mod behind;
pub mod changes;
pub mod feed;
mod filtered;
pub mod live;
pub mod metrics;
pub mod objects;
mod pages;
mod parameters;
pub mod service;
pub mod snapshot;
pub mod stream;
mod topics;
pub mod waiting;

pub use filtered::Selection;
pub use topics::{EntriesError, NoTopic};

use crate::{
    journal::{JournalError, store::StoreError},
    model::Seq,
    web::{Problem, ProblemCode},
};

/// What a reader is told when the journal cannot be read, or no longer has what comes next.
fn journal_problem(error: JournalError) -> Problem {
    match error {
        JournalError::Gone { after, first } => gone(after, first),
        error => Problem::failure("The journal cannot be read at present", error.is_transient(), error),
    }
}

/// The same where a change of the journal cannot be read.
fn store_problem(error: StoreError) -> Problem {
    journal_problem(JournalError::Store(error))
}

/// What a reader is told whose place is not in the journal any more, or never was: where to start.
fn gone(after: Seq, first: Seq) -> Problem {
    let detail = format!(
        "The journal cannot be read on from {after}: what came next is no longer kept, or this is not a number of this \
         journal (it may have been restored from a backup). The oldest change that is kept has the number {first}. Start \
         again: read the registry as it is now, page by page from /snapshot, then go on with /changes?after= or \
         /stream?after= and the \"head\" of its first page."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}

/// What a reader is told that walks the archive past the end of what is kept.
fn page_gone(page: u64, first: Seq) -> Problem {
    let detail = format!(
        "Archive page {page} is no longer kept: the oldest change that is has the number {first}. What the objects have \
         come to is in the registry: read it page by page from /snapshot."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}
