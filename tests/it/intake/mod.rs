//! Ingest: limits on messages and changes, duplicates and the quarantine.

mod change_bounds;
mod decompression;
mod hostile_messages;
mod quarantine;
mod quarantine_trials;
mod redelivery;
