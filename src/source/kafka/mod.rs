//! Source transport `kafka`: all partitions of some topics of a Kafka cluster.
//!
//! One reader reads all partitions, without a consumer group. The journal records the next offset of each partition in the
//! transaction of the changes, so each message is in the journal once, whatever fails in between.

mod lag;
mod message;
mod offsets;
mod reader;

use std::{convert::Infallible, fmt::Display, path::Path, pin::Pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{
    lag::Lags,
    message::KafkaMessage,
    offsets::Offsets,
    reader::{MAX_DECODING, OpenPartition, Readers},
};
use super::consumer::{Broker, BrokerSettings, OpenConnection, SourceConsumer};
use crate::{
    broker::ConnectionStatus,
    intake::{Intake, ReceivedMessage, Source, SourceName},
    kafka::{ClusterSettings, KafkaError, OffsetAt, PartitionReader, TopicReader},
};

/// Maximum number of partitions of a source. The reader has one connection for each of them.
const MAX_PARTITIONS: usize = 512;

/// Number of partitions whose leaders are connected to at the same time.
const CONCURRENT_CONNECTS: usize = 8;

/// Interval at which the lag is updated while no message arrives.
const LAG_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of a source that reads topics.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// Connection to the cluster.
    pub cluster: ClusterSettings,
    /// Topics, without repetitions.
    pub topics: Vec<String>,
    /// Position at which the first reading of a topic begins.
    pub start: Start,
    /// Maximum number of messages that are being parsed and written, 1 to 65535.
    pub prefetch: u16,
    /// Approximate maximum number of bytes that all partitions together have fetched and not yet passed on.
    pub fetch_bytes: usize,
}

/// Position at which the first reading of a topic begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The oldest message that the cluster has.
    Earliest,
    /// The next message.
    Latest,
    /// The first message with this time or a later one.
    At(chrono::DateTime<chrono::Utc>),
}

/// Reason why topics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KafkaSourceError {
    /// The cluster.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// The offsets in the journal cannot be read or written.
    #[error("the offsets in the journal cannot be read or written: {0}")]
    Journal(String),
    /// The topics have too many partitions.
    #[error(
        "the topics have {0} partitions, and a source reads at most {MAX_PARTITIONS}; read the topics in several sources"
    )]
    TooManyPartitions(usize),
    /// The readers have ended without an error.
    #[error("the readers of the partitions have ended")]
    Ended,
}

/// The topics to read, with the parts of the gateway that their reader uses.
struct KafkaTopics {
    settings: TopicSettings,
    intake: Intake,
    source: Arc<Source>,
    status: Arc<ConnectionStatus>,
    max_body_bytes: usize,
}

impl BrokerSettings for TopicSettings {
    fn describe(&self) -> String {
        format!("{} of {}", self.topics.join(", "), self.cluster.address())
    }

    fn ca(&self) -> Option<&Path> {
        self.cluster.ca.as_deref()
    }

    fn warning(&self) -> Option<&'static str> {
        self.cluster.warning()
    }

    fn probe<'s>(&'s self, name: &'s str) -> BoxFuture<'s, Result<(), String>> {
        Box::pin(async move {
            let checked = async { self.cluster.connect(name).await?.partitions(&self.topics).await };
            checked.await.map(drop).map_err(|error| error.to_string())
        })
    }

    fn read(&self, source: SourceConsumer<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let topics = KafkaTopics {
            settings: self.clone(),
            intake: source.intake.clone(),
            source: Arc::clone(&source.source),
            status: Arc::clone(&source.status),
            max_body_bytes: source.max_body_bytes,
        };
        Box::pin(source.read(topics, stop))
    }
}

impl Broker for KafkaTopics {
    type Error = KafkaSourceError;
    type Message = KafkaMessage;
    type AckToken = OffsetToken;
    type Reader = MessageReader;
    type Acker = OffsetAcker;

    fn queue_name(&self) -> impl Display {
        self.settings.topics.join(", ")
    }

    fn broker_url(&self) -> impl Display {
        self.settings.cluster.address()
    }

    fn prefetch(&self) -> u16 {
        self.settings.prefetch
    }

    async fn open(
        &self,
        name: &str,
        _prefetch: u16,
    ) -> Result<OpenConnection<MessageReader, OffsetAcker>, KafkaSourceError> {
        let TopicSettings { cluster, fetch_bytes, .. } = &self.settings;
        let cluster = cluster.connect_reader(name, *fetch_bytes, self.max_body_bytes).await?;
        let stored = self.stored_offsets().await?;
        let partitions = self.open_partitions(&cluster, &stored).await?;
        let mut offsets = stored.clone();
        for OpenPartition { partition, next } in &partitions {
            offsets.set(partition.topic(), partition.number(), *next);
        }
        if offsets != stored {
            // Otherwise, after a crash, "latest" would skip the messages that arrive from now on.
            let written = self.intake.write_position(&self.source, offsets.to_text()).await;
            written.map_err(|error| KafkaSourceError::Journal(error.to_string()))?;
        }
        let (lags, (warn, warnings)) = (Arc::new(Lags::default()), watch::channel(None));
        let (sender, receiver) = mpsc::channel(1);
        let readers = Readers {
            cluster,
            topics: self.settings.topics.clone(),
            partition_bytes: self.settings.partition_bytes(partitions.len()),
            decoding: Semaphore::new(MAX_DECODING),
            lags: Arc::clone(&lags),
            warn,
            sender,
        };
        let reading = AbortOnDropHandle::new(tokio::spawn(readers.run(partitions)));
        let reader = MessageReader { receiver, ready: Vec::new().into_iter(), _reading: reading };
        let offsets = std::sync::Mutex::new(offsets);
        let acker = OffsetAcker { offsets, lags, status: Arc::clone(&self.status), warnings };
        Ok(OpenConnection { reader, acker, warning: None })
    }

    async fn next(reader: &mut MessageReader) -> Result<(OffsetToken, KafkaMessage), KafkaSourceError> {
        loop {
            if let Some(message) = reader.ready.next() {
                return Ok((OffsetToken::of(&message), message));
            }
            reader.ready = reader.receiver.recv().await.ok_or(KafkaSourceError::Ended)??.into_iter();
        }
    }

    fn size(message: &KafkaMessage) -> usize {
        message.size_in_memory()
    }

    fn receive(message: KafkaMessage, max_body_bytes: usize, _: &SourceName) -> ReceivedMessage {
        message.read(max_body_bytes)
    }

    fn position(acker: &OffsetAcker, tokens: &[OffsetToken]) -> Option<Arc<str>> {
        // Every change is complete before the lock is released, even if a thread panics.
        let mut offsets = acker.offsets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for OffsetToken { topic, partition, next } in tokens {
            offsets.set(topic, *partition, *next);
        }
        Some(offsets.to_text())
    }

    /// The journal has the offsets already. Only the lag changes.
    async fn acknowledge(acker: &OffsetAcker, tokens: &[OffsetToken]) -> Result<(), KafkaSourceError> {
        acker.lags.note_written(tokens);
        acker.status.set_lag(acker.lags.total());
        Ok(())
    }

    async fn keep_alive(acker: &OffsetAcker, warn: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        let mut warnings = acker.warnings.clone();
        loop {
            tokio::select! {
                changed = warnings.changed() => match changed {
                    Ok(()) => warn(warnings.borrow_and_update().clone()),
                    Err(_) => return std::future::pending().await,
                },
                () = tokio::time::sleep(LAG_INTERVAL) => {}
            }
            acker.status.set_lag(acker.lags.total());
        }
    }

    async fn end(reader: &mut MessageReader) -> Result<(), KafkaSourceError> {
        reader.receiver.close();
        Ok(())
    }

    /// Drops the connections. A broker needs no notice.
    async fn close(reader: MessageReader, acker: OffsetAcker) {
        drop((reader, acker));
    }

    fn is_transient(error: &KafkaSourceError) -> bool {
        match error {
            KafkaSourceError::Kafka(error) => error.is_transient(),
            KafkaSourceError::Journal(_) | KafkaSourceError::Ended => true,
            KafkaSourceError::TooManyPartitions(_) => false,
        }
    }

    /// No message breaks the connection, because the broker does not look into messages.
    fn is_unexplained(_: &KafkaSourceError) -> bool {
        false
    }
}

impl TopicSettings {
    /// Returns the number of bytes to fetch from each of so many partitions at once.
    fn partition_bytes(&self, partitions: usize) -> i32 {
        const LEAST: usize = 64 * 1024;
        i32::try_from((self.fetch_bytes / partitions.max(1)).max(LEAST)).unwrap_or(i32::MAX)
    }
}

impl KafkaTopics {
    async fn stored_offsets(&self) -> Result<Offsets, KafkaSourceError> {
        let stored = self.intake.position(&self.source).await;
        let stored = stored.map_err(|error| KafkaSourceError::Journal(error.to_string()))?;
        Ok(stored.map_or_else(Offsets::default, |text| {
            Offsets::parse(&text).unwrap_or_else(|| {
                tracing::warn!(source = %self.source.name(), "the stored position of the source is not from Kafka; reading from `start`");
                Offsets::default()
            })
        }))
    }

    /// Connects to the leaders of all partitions, and finds the offsets at which they are read.
    async fn open_partitions(
        &self,
        cluster: &Arc<TopicReader>,
        stored: &Offsets,
    ) -> Result<Vec<OpenPartition>, KafkaSourceError> {
        let listed = cluster.partitions(&self.settings.topics).await?;
        let all: Vec<(&String, i32)> =
            listed.iter().flat_map(|(topic, numbers)| numbers.iter().map(move |number| (topic, *number))).collect();
        if all.len() > MAX_PARTITIONS {
            return Err(KafkaSourceError::TooManyPartitions(all.len()));
        }
        let open = async |(topic, number): (&String, i32)| {
            let mut partition = cluster.partition(topic, number).await?;
            let next = match stored.get(topic, number) {
                Some(next) => next,
                // The topic got this partition after it was read first.
                None if stored.has(topic) => partition.offset(OffsetAt::Earliest).await?,
                None => self.settings.start.offset(&mut partition).await?,
            };
            Ok(OpenPartition { partition, next })
        };
        stream::iter(all).map(open).buffered(CONCURRENT_CONNECTS).try_collect().await
    }
}

impl Start {
    async fn offset(self, partition: &mut PartitionReader) -> Result<i64, KafkaError> {
        match self {
            Self::Earliest => partition.offset(OffsetAt::Earliest).await,
            Self::Latest => partition.end().await,
            Self::At(time) => match partition.offset(OffsetAt::Timestamp(time)).await? {
                // No message is that new.
                -1 => partition.end().await,
                offset => Ok(offset),
            },
        }
    }
}

/// Reads the messages of all partitions.
struct MessageReader {
    receiver: mpsc::Receiver<Result<Vec<KafkaMessage>, KafkaError>>,
    ready: std::vec::IntoIter<KafkaMessage>,
    _reading: AbortOnDropHandle<()>,
}

/// Keeps the next offset of each partition for the journal.
struct OffsetAcker {
    offsets: std::sync::Mutex<Offsets>,
    lags: Arc<Lags>,
    status: Arc<ConnectionStatus>,
    warnings: watch::Receiver<Option<String>>,
}

/// Token of a message: its partition, and the offset after it.
#[derive(Clone, Debug)]
struct OffsetToken {
    topic: Arc<str>,
    partition: i32,
    next: i64,
}

impl OffsetToken {
    fn of(message: &KafkaMessage) -> Self {
        Self { topic: Arc::clone(&message.topic), partition: message.partition, next: message.next() }
    }
}
