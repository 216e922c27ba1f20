//! What the administrator looks at and acts on: the sources, the subscriptions, the
//! quarantine, the gateway's health.

pub mod attempts;
pub mod dead_letters;
pub mod health;
pub mod home;
pub mod metrics;
pub mod quarantine;
pub mod registry;
pub mod sources;
pub mod subscriptions;

use crate::{journal::JournalError, web::Problem};

/// What the administrator is told when the journal failed.
fn failed(error: JournalError) -> Problem {
    Problem::failure("The journal does not answer at present", error.is_transient(), error)
}
