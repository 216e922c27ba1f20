//! Kafka: the source that reads topics, and the delivery that publishes to one.

mod delivery;
mod delivery_failures;
mod inflated_batches;
mod record_batches;
mod retention;
mod security;
mod source;
mod source_failures;
mod undecodable_records;
