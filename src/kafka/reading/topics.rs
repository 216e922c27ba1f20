//! Reader of the topics of a cluster, and of one partition each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use super::{
    batches::Batches,
    connection::{Access, BrokerConnection, Budget, Call, RESPONSE_TIMEOUT, malformed},
    requests::{
        Address, FETCH, Fetch, LIST_OFFSETS, METADATA, Topic, check, read_list_offsets, read_metadata,
        write_list_offsets, write_metadata,
    },
    wire::Encoder,
};
use crate::kafka::KafkaError;

/// Maximum time for a connection to a broker, with TLS and SASL.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Least time for a connection to one of several bootstrap brokers.
const LEAST_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which a request is repeated. It bridges a change of the leader; afterwards the owner connects again.
const OWN_ATTEMPTS: Duration = Duration::from_secs(1);

/// Wait before a request is repeated.
const ATTEMPT_WAIT: Duration = Duration::from_millis(100);

/// Wait of the fetch that finds the end of a partition. Some brokers return no response without a wait.
const END_WAIT: Duration = Duration::from_millis(100);

/// A connected reader of a cluster.
pub struct TopicReader {
    access: Access,
    bootstrap: Vec<Address>,
    /// Connection for requests that any broker answers.
    any: Mutex<Option<BrokerConnection>>,
    /// Bytes that the responses of all partitions together may have.
    budget: Budget,
    /// Size of a value above which it can be unreadable, in bytes.
    max_value_bytes: usize,
}

/// Reader of one partition, with a connection of its own to the leader. It follows the partition to another leader.
pub struct PartitionReader {
    cluster: Arc<TopicReader>,
    topic: String,
    number: i32,
    leader: Option<BrokerConnection>,
}

/// Result of a fetch.
#[derive(Debug)]
pub struct Fetched {
    /// Records from the requested offset on.
    pub batches: Batches,
    /// Offset after the newest record that all replicas have.
    pub high_watermark: i64,
}

/// Place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The oldest record.
    Earliest,
    /// The end of the committed records. Some brokers return a smaller offset.
    Latest,
    /// The first record with this time or a later one.
    Timestamp(DateTime<Utc>),
}

impl TopicReader {
    /// Connects to the first of the bootstrap brokers that accepts it.
    pub(in crate::kafka) async fn connect(
        brokers: &[String],
        access: Access,
        max_fetched_bytes: usize,
        max_value_bytes: usize,
    ) -> Result<Arc<Self>, KafkaError> {
        let bootstrap: Vec<Address> = brokers.iter().filter_map(|broker| Address::parse(broker)).collect();
        let any = connect_any(&bootstrap, &access).await?;
        let budget = Budget::new(max_fetched_bytes);
        Ok(Arc::new(Self { access, bootstrap, any: Mutex::new(Some(any)), budget, max_value_bytes }))
    }

    /// Returns the numbers of the partitions of each topic.
    ///
    /// # Errors
    /// Fails if a topic does not exist, or the user may not read its description.
    pub async fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, Vec<i32>>, KafkaError> {
        let mut found: BTreeMap<String, Topic> = BTreeMap::new();
        for topic in self.metadata(topics).await? {
            found.insert(topic.name.clone(), topic);
        }
        let of_topic = |name: &String| match found.remove(name) {
            Some(topic) if topic.code == 0 && !topic.leaders.is_empty() => {
                Ok((name.clone(), topic.leaders.into_keys().collect()))
            }
            // Unknown, of an invalid name, or not to be described by this user.
            Some(Topic { code: 0 | 3 | 17 | 29, .. }) | None => Err(KafkaError::UnknownTopic(name.clone())),
            Some(topic) => match check(topic.code, &format!("topic {name}")) {
                Ok(()) => Err(KafkaError::UnknownTopic(name.clone())),
                Err(error) => Err(error),
            },
        };
        topics.iter().map(of_topic).collect()
    }

    /// Connects to the leader of a partition.
    ///
    /// # Errors
    /// Fails if the partition has no leader, or the leader does not accept the connection in time.
    pub async fn partition(self: &Arc<Self>, topic: &str, number: i32) -> Result<PartitionReader, KafkaError> {
        let leader = Some(self.connect_leader(topic, number).await?);
        Ok(PartitionReader { cluster: Arc::clone(self), topic: topic.to_owned(), number, leader })
    }

    async fn connect_leader(&self, topic: &str, number: i32) -> Result<BrokerConnection, KafkaError> {
        let metadata = self.metadata(&[topic.to_owned()]).await?;
        let leader = metadata.into_iter().find_map(|mut found| found.leaders.remove(&number).flatten());
        let missing = || KafkaError::Unavailable(format!("partition {number} of {topic} has no leader"));
        let leader = leader.ok_or_else(missing)?;
        let connecting = BrokerConnection::open(&leader, &self.access);
        within("connect to the leader of a partition", CONNECT_TIMEOUT, connecting).await
    }

    /// Requests the partitions of topics from any broker. A connection that broke while nobody used it is replaced.
    async fn metadata(&self, topics: &[String]) -> Result<Vec<Topic>, KafkaError> {
        let call = Call { api: METADATA, operation: "list its topics", wait: Duration::ZERO, budget: None };
        let mut any = self.any.lock().await;
        let is_fresh = any.is_none();
        let mut connection = match any.take() {
            Some(connection) => connection,
            None => connect_any(&self.bootstrap, &self.access).await?,
        };
        let write = |request: &mut Encoder, _: i16| write_metadata(request, topics);
        let mut response = connection.request(&call, write).await;
        if matches!(response, Err(KafkaError::ConnectionLost(_))) && !is_fresh {
            connection = connect_any(&self.bootstrap, &self.access).await?;
            response = connection.request(&call, write).await;
        }
        let (mut response, ..) = response?;
        let topics = read_metadata(&mut response).map_err(malformed)?;
        *any = Some(connection);
        Ok(topics)
    }
}

impl PartitionReader {
    /// Returns the topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the number of the partition.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Fetches the batches from `offset` on: about `max_bytes` bytes, but at least one batch. If there is none, the broker
    /// waits for `wait`. Waits also until the responses of other partitions leave room in the budget.
    ///
    /// # Errors
    /// Fails with [`KafkaError::OffsetOutOfRange`] if the partition does not have the offset.
    pub async fn fetch(&mut self, offset: i64, max_bytes: i32, wait: Duration) -> Result<Fetched, KafkaError> {
        let mut deadline = None;
        loop {
            match self.try_fetch(offset, max_bytes, wait).await {
                Err(error) => self.recover(error, &mut deadline).await?,
                fetched => return fetched,
            }
        }
    }

    async fn try_fetch(&mut self, offset: i64, max_bytes: i32, wait: Duration) -> Result<Fetched, KafkaError> {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let cluster = Arc::clone(&self.cluster);
        let call = Call { api: FETCH, operation: "send records", wait, budget: Some(&cluster.budget) };
        let mut leader = self.take_leader().await?;
        let fetch = Fetch { topic: &self.topic, partition: self.number, offset, max_bytes, wait_ms };
        let response = leader.request(&call, |request, version| fetch.write(request, version)).await;
        let (mut response, version, permit) = response?;
        let response = Fetch::read(&mut response, version).map_err(malformed)?;
        self.leader = Some(leader);
        check(response.code, &format!("offset {offset} of partition {} of {}", self.number, self.topic))?;
        let (high_watermark, aborted) = (response.high_watermark, response.aborted);
        let max_value_bytes = cluster.max_value_bytes;
        let batches = Batches::new(response.batches, offset, high_watermark, aborted, max_value_bytes, permit);
        Ok(Fetched { batches, high_watermark })
    }

    /// Returns an offset; -1 if no record is that new.
    ///
    /// # Errors
    /// Fails if the leader does not respond.
    pub async fn offset(&mut self, at: OffsetAt) -> Result<i64, KafkaError> {
        let time = match at {
            OffsetAt::Earliest => -2,
            OffsetAt::Latest => -1,
            OffsetAt::Timestamp(time) => time.timestamp_millis(),
        };
        let mut deadline = None;
        loop {
            match self.try_offset(time).await {
                Err(error) => self.recover(error, &mut deadline).await?,
                offset => return offset,
            }
        }
    }

    async fn try_offset(&mut self, time: i64) -> Result<i64, KafkaError> {
        let call = Call { api: LIST_OFFSETS, operation: "report an offset", wait: Duration::ZERO, budget: None };
        let mut leader = self.take_leader().await?;
        let (topic, number) = (&self.topic, self.number);
        let response = leader.request(&call, |request, _| write_list_offsets(request, topic, number, time)).await;
        let (mut response, ..) = response?;
        let (code, offset) = read_list_offsets(&mut response).map_err(malformed)?;
        check(code, &format!("partition {number} of {topic}"))?;
        self.leader = Some(leader);
        Ok(offset)
    }

    /// Returns the offset after the newest record. The response to a fetch has it, because some brokers report a smaller
    /// "latest" offset.
    ///
    /// # Errors
    /// As [`PartitionReader::fetch`].
    pub async fn end(&mut self) -> Result<i64, KafkaError> {
        let latest = self.offset(OffsetAt::Latest).await?;
        Ok(self.fetch(latest, 1, END_WAIT).await?.high_watermark.max(latest))
    }

    /// Takes the connection to the leader. It is put back after a response, because it is of no use after an error.
    async fn take_leader(&mut self) -> Result<BrokerConnection, KafkaError> {
        match self.leader.take() {
            Some(leader) => Ok(leader),
            None => self.cluster.connect_leader(&self.topic, self.number).await,
        }
    }

    /// Waits before the request is repeated at the leader of that moment, or returns the error. Transient errors are repeated
    /// until the `deadline`, which the first one sets.
    async fn recover(&mut self, error: KafkaError, deadline: &mut Option<Instant>) -> Result<(), KafkaError> {
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + OWN_ATTEMPTS);
        if !error.is_transient() || Instant::now() >= deadline {
            return Err(error);
        }
        self.leader = None;
        sleep(ATTEMPT_WAIT).await;
        Ok(())
    }
}

/// Connects to the first bootstrap broker that accepts it. Otherwise, the error is that of the last one.
async fn connect_any(bootstrap: &[Address], access: &Access) -> Result<BrokerConnection, KafkaError> {
    let count = u32::try_from(bootstrap.len()).unwrap_or(u32::MAX).max(1);
    let after = (CONNECT_TIMEOUT / count).max(LEAST_CONNECT_TIMEOUT);
    let mut failure = KafkaError::Unreachable("no broker is configured".to_owned());
    for address in bootstrap {
        match within("accept a connection", after, BrokerConnection::open(address, access)).await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn within<T>(
    operation: &'static str,
    after: Duration,
    call: impl Future<Output = Result<T, KafkaError>>,
) -> Result<T, KafkaError> {
    debug_assert!(after <= RESPONSE_TIMEOUT);
    timeout(after, call).await.unwrap_or(Err(KafkaError::Timeout { operation, after }))
}
