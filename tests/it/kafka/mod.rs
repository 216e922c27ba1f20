//! Kafka: the source that reads topics, and the delivery that publishes to one.

mod source;
mod source_failures;
