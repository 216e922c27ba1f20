//! Administration: the sources, the harvests, the subscriptions, the quarantine and the health of the gateway.

pub mod attempts;
pub mod audit;
pub mod connect;
pub mod crawlers;
pub mod dead_letters;
pub mod deliveries;
pub mod due;
pub mod favicon;
pub mod filesets;
pub mod flow;
pub mod harvests;
pub mod health;
pub mod home;
pub mod manual_delivery;
pub mod metrics;
pub mod nodes;
pub mod notifications;
pub mod page;
pub mod publication;
pub mod quarantine;
pub mod registry;
pub mod reload;
pub mod sources;
pub mod status;
pub mod subscriptions;

use crate::{journal::JournalError, web::Problem};

/// Returns a text with its first letter in upper case.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// Returns the problem of a failed access to the journal.
fn journal_problem(error: JournalError) -> Problem {
    let is_logged = error.is_outage();
    Problem::failure("The journal is not available at present", error.is_transient(), error).logged(is_logged)
}
