//! Lookups that complete an event from its repository.

mod abandoned_requests;
mod failed_commits;
pub(crate) mod failures;
pub(crate) mod fedora3;
mod ldp;
mod queue_sources;
mod shuffled_sessions;
