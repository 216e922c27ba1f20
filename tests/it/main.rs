//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod a_feed_reader_that_walks_the_archive_rebuilds_every_change;
mod a_filtered_feed_shows_every_match_once;
mod archive_pages_never_change;
mod every_fixture_is_read_as_its_snapshot_says;
mod every_web_error_is_a_problem;
mod feed_documents_are_kept_by_caches;
mod feed_reader;
mod shuffled_events_end_in_the_same_registry;
