//! What the administrator looks at and acts on: the sources, the quarantine, the gateway's health.

pub mod health;
pub mod quarantine;
pub mod sources;

use std::time::Duration;

use crate::{
    journal::JournalError,
    web::{Problem, ProblemCode},
};

/// The problem that is told when the journal failed.
fn failed(error: JournalError) -> Problem {
    if error.is_transient() {
        Problem::new(ProblemCode::Unavailable, format!("The journal does not answer at present: {error}."))
            .retry_after(Duration::from_secs(5))
            .because(error)
    } else {
        Problem::internal(error)
    }
}
