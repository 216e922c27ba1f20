//! Kafka client, shared by the source that reads topics and the delivery that publishes to one.
//!
//! Two clients share settings with TLS and SASL, a timeout for every wait, and errors that say who has to act: a publisher
//! over `rskafka` ([`Cluster`]), and a reader over own requests ([`TopicReader`]; `reading` says why). The owner supervises
//! a client (`broker`): after any error the owner drops it and connects again. Consumer groups are not used, because one
//! reader reads all partitions and records its offsets itself.
//!
//! The client does not look into messages; it passes bytes, keys and headers through.

mod cluster;
mod error;
mod partitioner;
mod reading;
mod settings;
mod table;

pub use cluster::{Cluster, Partition};
pub use error::KafkaError;
pub use partitioner::partition_of;
pub use reading::{
    Batches, Entry, Fetched, MAX_INFLATED_BYTES, MAX_KEY_AND_HEADER_BYTES, OffsetAt, PartitionReader, Piece,
    TopicReader,
};
pub use rskafka::record::Record;
pub use settings::{ClusterSettings, Codec, InvalidSetting, Mechanism, Sasl, parse_brokers, parse_topic};
pub use table::ClusterTable;
