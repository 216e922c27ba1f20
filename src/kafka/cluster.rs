//! Connections to a cluster and to the leaders of its partitions. Every wait has a timeout.

use std::{collections::BTreeMap, time::Duration};

pub use rskafka::client::partition::OffsetAt;
use rskafka::{
    client::{
        Client,
        partition::{PartitionClient, UnknownTopicHandling},
    },
    record::{Record, RecordAndOffset},
};

use super::{Codec, KafkaError, error::within};

/// Maximum time for the response to a request, beside the time that the request itself allows the broker.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum time for the leader of a partition to accept records. The library gives the broker 30 seconds.
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(45);

/// Wait of the fetch that finds the end of a partition. Some brokers return no response without a wait.
const END_WAIT: Duration = Duration::from_millis(100);

/// A connected client of a cluster. Dropping it closes its connections.
#[derive(Debug)]
pub struct Cluster {
    client: Client,
}

/// The records of a fetch, and the end of the partition.
#[derive(Debug)]
pub struct Fetched {
    /// Records from the requested offset on.
    pub records: Vec<RecordAndOffset>,
    /// Offset after the newest record that all replicas have.
    pub high_watermark: i64,
}

/// A client of the leader of one partition, with a connection of its own. It follows the partition to another leader.
#[derive(Debug)]
pub struct Partition {
    client: PartitionClient,
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the numbers of the partitions of each topic.
    ///
    /// # Errors
    /// Fails if a topic does not exist, or the user may not read its description.
    pub async fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, Vec<i32>>, KafkaError> {
        let listed = within("list its topics", RESPONSE_TIMEOUT, self.client.list_topics()).await?;
        let mut found: BTreeMap<String, Vec<i32>> =
            listed.into_iter().map(|topic| (topic.name, topic.partitions.into_iter().collect())).collect();
        let of_topic = |topic: &String| match found.remove(topic) {
            Some(partitions) if !partitions.is_empty() => Ok((topic.clone(), partitions)),
            _ => Err(KafkaError::UnknownTopic(topic.clone())),
        };
        topics.iter().map(of_topic).collect()
    }

    /// Connects to the leader of a partition.
    ///
    /// # Errors
    /// Fails if the partition has no leader, or the leader does not accept the connection in time.
    pub async fn partition(&self, topic: &str, partition: i32) -> Result<Partition, KafkaError> {
        let connecting = self.client.partition_client(topic, partition, UnknownTopicHandling::Error);
        let client = within("connect to the leader of a partition", RESPONSE_TIMEOUT, connecting).await?;
        Ok(Partition { client })
    }
}

impl Partition {
    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.client.topic()
    }

    /// Returns the number of the partition.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.client.partition()
    }

    /// Fetches the records from `offset` on: about `max_bytes` bytes, but at least one batch. If there is none, the broker
    /// waits for `wait`.
    ///
    /// # Errors
    /// Fails with [`KafkaError::OffsetOutOfRange`] if the partition does not have the offset, and with
    /// [`KafkaError::Unreadable`] if the response cannot be decoded.
    pub async fn fetch(&self, offset: i64, max_bytes: i32, wait: Duration) -> Result<Fetched, KafkaError> {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let fetching = self.client.fetch_records(offset, 1..max_bytes.saturating_add(1), wait_ms);
        let (records, high_watermark) = within("send records", wait + RESPONSE_TIMEOUT, fetching).await?;
        Ok(Fetched { records, high_watermark })
    }

    /// Returns an offset. That of the latest record is the end of the committed records; some brokers return a smaller one.
    ///
    /// # Errors
    /// Fails if the leader does not respond.
    pub async fn offset(&self, at: OffsetAt) -> Result<i64, KafkaError> {
        within("report an offset", RESPONSE_TIMEOUT, self.client.get_offset(at)).await
    }

    /// Returns the offset after the newest record. The response to a fetch has it, because some brokers report a smaller
    /// "latest" offset.
    ///
    /// # Errors
    /// As [`Partition::fetch`].
    pub async fn end(&self) -> Result<i64, KafkaError> {
        let latest = self.offset(OffsetAt::Latest).await?;
        Ok(self.fetch(latest, 1, END_WAIT).await?.high_watermark.max(latest))
    }

    /// Appends records to the partition, in order, as one batch. Returns when all in-sync replicas have it (`acks=all`).
    ///
    /// # Errors
    /// Fails if the broker refuses the batch, or does not confirm it in time. The batch may be written nevertheless.
    pub async fn produce(&self, records: Vec<Record>, codec: Codec) -> Result<(), KafkaError> {
        let producing = self.client.produce(records, codec.compression());
        within("accept records", PRODUCE_TIMEOUT, producing).await.map(drop)
    }
}
