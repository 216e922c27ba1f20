//! Kafka client, shared by the source that reads topics and the delivery that publishes to one.
//!
//! The client is a thin layer over `rskafka`: settings with TLS and SASL, a timeout for every wait, and errors that say
//! who has to act. Its owner supervises it (`broker`): after any error the owner drops it and connects again. Consumer
//! groups and transactions are not used, because one reader reads all partitions and records its offsets itself.
//!
//! The client does not look into messages; it passes bytes, keys and headers through.

mod cluster;
mod error;
mod partitioner;
mod settings;

pub use cluster::{Cluster, Fetched, OffsetAt, Partition};
pub use error::KafkaError;
pub use partitioner::partition_of;
pub use rskafka::record::{Record, RecordAndOffset};
pub use settings::{ClusterSettings, Codec, InvalidSetting, Mechanism, Sasl, parse_brokers, parse_topic};
