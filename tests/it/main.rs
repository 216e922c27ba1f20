//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod a_wrong_configuration_is_refused_with_advice;
mod each_layer_of_the_configuration_counts_before_the_one_below;
mod every_fixture_is_read_as_its_snapshot_says;
mod every_web_error_is_a_problem;
mod replay_posts_in_order_and_tries_again;
mod the_command_line_keeps_its_promises;
