//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod every_fixture_is_read_as_its_snapshot_says;
mod every_web_error_is_a_problem;
mod shuffled_events_end_in_the_same_registry;
