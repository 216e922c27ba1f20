//! Outgoing wire formats.

mod activitystreams;
mod cloudevents;
mod headers;
mod hoarder;
mod json_page;
mod round_trip;
pub(crate) mod samples;
mod schemas;
mod seed_examples;
mod xml_equals_json;
