//! Crawls that seed the registry from a repository.

mod errors;
mod interruptions;
mod journal_storage;
pub(crate) mod registry_merge;
mod resume_positions;
mod seed_registry;
mod uploads;
