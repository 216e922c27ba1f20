//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod a_backup_is_whole_and_can_be_restored;
mod a_feed_reader_that_walks_the_archive_rebuilds_every_change;
mod a_filtered_feed_shows_every_match_once;
mod a_full_disk_loses_nothing;
mod a_journal_that_cannot_be_used_is_refused;
mod a_kill_during_upkeep_breaks_nothing;
mod a_purge_lists_every_item;
mod a_reader_starts_from_the_snapshot;
mod a_wrong_configuration_is_refused_with_advice;
mod any;
mod architecture;
mod archive_pages_never_change;
mod each_layer_of_the_configuration_counts_before_the_one_below;
mod emitted;
mod every_fixture_is_read_as_its_snapshot_says;
mod every_web_error_is_a_problem;
mod fedora3;
mod feed_documents_are_kept_by_caches;
mod feed_reader;
mod fixtures;
mod gateway;
mod it_stops_when_told_and_finishes_what_it_accepted;
mod keeping;
mod old_changes_go_and_the_registry_stays;
mod replay_posts_in_order_and_tries_again;
mod shuffled_events_end_in_the_same_registry;
mod the_command_line_keeps_its_promises;
mod the_feed_ends_where_the_journal_does;
mod the_json_is_as_documented;
mod the_model_in_xml_has_the_facts_of_the_json;
mod the_seed_examples_come_out_as_they_went_in;
mod the_store_keeps_its_promises;
mod the_views_show_what_the_journal_holds;
mod verify_finds_what_is_wrong;
mod what_is_acknowledged_survives_kill_9;
mod what_is_emitted_is_read_back;
mod what_is_emitted_is_valid;
mod what_no_dialect_can_read_is_kept;
mod xmllint;
