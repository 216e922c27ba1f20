//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod a_bomb_costs_no_more_than_the_limit;
mod a_feed_reader_that_walks_the_archive_rebuilds_every_change;
mod a_filtered_feed_shows_every_match_once;
mod a_journal_that_cannot_be_used_is_refused;
mod a_purge_lists_every_item;
mod a_thousand_connections_lose_nothing;
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
mod hostile;
mod hostile_messages_are_refused_or_answered;
mod hostile_requests_are_refused_or_answered;
mod it_stops_when_told_and_finishes_what_it_accepted;
mod limits_are_documented;
mod limits_are_held;
mod nobody_gets_in_without_the_right_token;
mod replay_posts_in_order_and_tries_again;
mod shuffled_events_end_in_the_same_registry;
mod the_certificate_is_read_again_at_sighup;
mod the_command_line_keeps_its_promises;
mod the_json_is_as_documented;
mod the_model_in_xml_has_the_facts_of_the_json;
mod the_seed_examples_come_out_as_they_went_in;
mod the_store_keeps_its_promises;
mod the_views_show_what_the_journal_holds;
mod what_is_acknowledged_survives_kill_9;
mod what_is_emitted_is_read_back;
mod what_is_emitted_is_valid;
mod what_no_dialect_can_read_is_kept;
mod xmllint;
