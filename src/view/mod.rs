//! Pull surfaces: what a client reads when it likes. Each reads the journal by number or the
//! registry, and writes in the formats; none changes anything.
//!
//! To add a view: one new file here, and one line in [`crate::router`].

mod atom;
pub mod changes;
pub mod feed;
mod filtered;
pub mod objects;
mod pages;
pub mod service;

pub use filtered::Selection;

use crate::{
    journal::{JournalError, store::StoreError},
    web::Problem,
};

/// What a reader is told when the journal cannot be read.
fn journal_problem(error: JournalError) -> Problem {
    Problem::failure("The journal cannot be read at present", error.is_transient(), error)
}

/// The same where a change of the journal cannot be read.
fn store_problem(error: StoreError) -> Problem {
    journal_problem(JournalError::Store(error))
}
