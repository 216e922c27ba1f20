//! The pull surfaces: what a reader asks for and gets, as against what is delivered to it.
//!
//! A view reads the journal and writes documents; it changes nothing. To add one: a file here and a
//! route.

mod atom;
mod feed;
mod filtered;
mod pages;

pub use feed::FeedView;

use std::time::Duration;

use crate::{
    journal::{JournalError, store::StoreError},
    web::{Problem, ProblemCode},
};

/// What a reader is told when the journal cannot be read.
fn journal_problem(error: JournalError) -> Problem {
    if error.is_transient() {
        let detail = "The journal cannot be read at present. Try again.";
        Problem::new(ProblemCode::Unavailable, detail).retry_after(Duration::from_secs(1)).because(error)
    } else {
        Problem::internal(error)
    }
}

/// The same where a change of the journal cannot be read.
fn store_problem(error: StoreError) -> Problem {
    journal_problem(JournalError::Store(error))
}
