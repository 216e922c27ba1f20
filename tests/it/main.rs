//! Everything Tidings promises, a module a behaviour, in one binary so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod any;
mod emitted;
mod fixtures;
mod xmllint;

mod every_fixture_is_read_as_its_snapshot_says;
mod the_json_is_as_documented;
mod the_model_in_xml_has_the_facts_of_the_json;
mod the_seed_examples_come_out_as_they_went_in;
mod what_is_emitted_is_read_back;
mod what_is_emitted_is_valid;
