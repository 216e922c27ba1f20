//! Connections to a cluster and to the leaders of its partitions, for publishing. Every wait has a timeout.

use std::{collections::BTreeMap, time::Duration};

use rskafka::{
    client::{
        Client,
        partition::{PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};

use super::{Codec, KafkaError, error::within};

/// Maximum time for the response to a request, beside the time that the request itself allows the broker.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum time for the leader of a partition to accept records. The library gives the broker 30 seconds.
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(45);

/// A connected publisher of a cluster. Dropping it closes its connections.
#[derive(Debug)]
pub struct Cluster {
    client: Client,
}

/// A publisher to the leader of one partition, with a connection of its own. It follows the partition to another leader.
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
    /// Appends records to the partition, in order, as one batch. Returns when all in-sync replicas have it (`acks=all`).
    ///
    /// # Errors
    /// Fails if the broker refuses the batch, or does not confirm it in time. The batch may be written nevertheless.
    pub async fn produce(&self, records: Vec<Record>, codec: Codec) -> Result<(), KafkaError> {
        let producing = self.client.produce(records, codec.compression());
        within("accept records", PRODUCE_TIMEOUT, producing).await.map(drop)
    }
}
