//! Readers of the partitions: each fetches from its leader, and passes messages on in order. All share one channel, which
//! has room for one fetch, so the readers stop fetching while messages cannot be written.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    MAX_PARTITIONS,
    lag::Lags,
    message::{Content, KafkaMessage},
    unreadable::end_of_unreadable,
};
use crate::kafka::{Cluster, Fetched, KafkaError, OffsetAt, Partition};

/// Time that a broker waits for records before it returns none.
const FETCH_WAIT: Duration = Duration::from_secs(1);

/// Wait after a response without records that arrived early.
const EARLY_WAIT: Duration = Duration::from_millis(100);

/// Wait after an offset was out of range.
const OUT_OF_RANGE_WAIT: Duration = Duration::from_secs(1);

/// Interval at which new partitions are searched for.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Number of fetches of a single batch each, after a fetch that could not be decoded.
const SINGLE_FETCHES: u32 = 1000;

/// A partition, and the offset from which it is read.
pub(super) struct OpenPartition {
    pub(super) partition: Partition,
    pub(super) next: i64,
}

/// Everything that the readers share.
pub(super) struct Readers {
    pub(super) cluster: Cluster,
    pub(super) topics: Vec<String>,
    /// Number of bytes to fetch from a partition at once.
    pub(super) partition_bytes: i32,
    pub(super) lags: Arc<Lags>,
    /// Shows a warning to administrators.
    pub(super) warn: watch::Sender<Option<String>>,
    pub(super) sender: mpsc::Sender<Result<Vec<KafkaMessage>, KafkaError>>,
}

/// Reason why one of the tasks has ended.
enum Ended {
    /// A reader has failed.
    Failed(KafkaError),
    /// The topics have new partitions, or none.
    Discovered(Vec<OpenPartition>),
    /// Nobody receives messages any more.
    Closed,
}

impl Readers {
    /// Reads until a reader fails or the receiver is closed.
    pub(super) async fn run(self, partitions: Vec<OpenPartition>) {
        let place = |open: &OpenPartition| (open.partition.topic().to_owned(), open.partition.number());
        let mut known: BTreeSet<_> = partitions.iter().map(place).collect();
        let mut tasks: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        tasks.push(Box::pin(self.discover(known.clone())));
        tasks.extend(partitions.into_iter().map(|open| Box::pin(self.read(open)) as BoxFuture<'_, _>));
        while let Some(ended) = tasks.next().await {
            match ended {
                Ended::Failed(error) => {
                    // A closed channel means that the session has ended.
                    let _ = self.sender.send(Err(error)).await;
                    return;
                }
                Ended::Closed => return,
                Ended::Discovered(partitions) => {
                    known.extend(partitions.iter().map(place));
                    tasks.push(Box::pin(self.discover(known.clone())));
                    tasks.extend(partitions.into_iter().map(|open| Box::pin(self.read(open)) as BoxFuture<'_, _>));
                }
            }
        }
    }

    /// Waits, and opens the partitions that have been added to the topics. They are read from their beginning.
    async fn discover(&self, known: BTreeSet<(String, i32)>) -> Ended {
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
        match self.open_new(known).await {
            Ok(partitions) => Ended::Discovered(partitions),
            Err(error) => Ended::Failed(error),
        }
    }

    async fn open_new(&self, known: BTreeSet<(String, i32)>) -> Result<Vec<OpenPartition>, KafkaError> {
        let mut new = Vec::new();
        for (topic, numbers) in self.cluster.partitions(&self.topics).await? {
            for number in numbers {
                if known.contains(&(topic.clone(), number)) || known.len() + new.len() >= MAX_PARTITIONS {
                    continue;
                }
                let partition = self.cluster.partition(&topic, number).await?;
                let next = partition.offset(OffsetAt::Earliest).await?;
                tracing::info!(topic, partition = number, next, "the topic has a new partition");
                new.push(OpenPartition { partition, next });
            }
        }
        Ok(new)
    }

    async fn read(&self, OpenPartition { partition, mut next }: OpenPartition) -> Ended {
        let topic: Arc<str> = partition.topic().into();
        self.lags.note_start((&topic, partition.number()), next);
        let mut single_fetches: u32 = 0;
        loop {
            let began = Instant::now();
            let max_bytes = if single_fetches > 0 { 1 } else { self.partition_bytes };
            let messages = match partition.fetch(next, max_bytes, FETCH_WAIT).await {
                Ok(fetched) => {
                    single_fetches = single_fetches.saturating_sub(1);
                    match self.messages(&partition, &topic, &mut next, fetched, began).await {
                        Ok(messages) => messages,
                        Err(error) => return Ended::Failed(error),
                    }
                }
                Err(KafkaError::OffsetOutOfRange(_)) => match self.earliest(&partition, next).await {
                    Ok(earliest) => {
                        next = earliest;
                        continue;
                    }
                    Err(error) => return Ended::Failed(error),
                },
                // The undecodable batch may be one after readable batches.
                Err(KafkaError::Unreadable(_)) if single_fetches == 0 => {
                    single_fetches = SINGLE_FETCHES;
                    continue;
                }
                Err(KafkaError::Unreadable(reason)) => match end_of_unreadable(&partition, next).await {
                    Ok(end) => {
                        single_fetches = 0;
                        let content = Content::Unreadable { end, reason };
                        let offset = std::mem::replace(&mut next, end);
                        self.lags.note_read((&topic, partition.number()), end, end, Some(end));
                        vec![KafkaMessage { topic: Arc::clone(&topic), partition: partition.number(), offset, content }]
                    }
                    Err(error) => return Ended::Failed(error),
                },
                Err(error) => return Ended::Failed(error),
            };
            if !messages.is_empty() && self.sender.send(Ok(messages)).await.is_err() {
                return Ended::Closed;
            }
        }
    }

    /// Returns the messages of a fetch, and moves `next` after its records. Records without a value are no messages: they
    /// mark deleted keys of a compacted topic.
    async fn messages(
        &self,
        partition: &Partition,
        topic: &Arc<str>,
        next: &mut i64,
        Fetched { records, high_watermark }: Fetched,
        began: Instant,
    ) -> Result<Vec<KafkaMessage>, KafkaError> {
        let number = partition.number();
        if records.is_empty() {
            let is_early = began.elapsed() < FETCH_WAIT / 2;
            if is_early && high_watermark > *next && partition.offset(OffsetAt::Latest).await? > *next {
                // The record is the end of a transaction, or compaction has removed it.
                *next += 1;
            } else if is_early {
                tokio::time::sleep(EARLY_WAIT).await;
            }
        }
        let mut messages = Vec::with_capacity(records.len());
        for found in records {
            *next = found.offset + 1;
            if found.record.value.is_some() {
                let (topic, content) = (Arc::clone(topic), Content::Record(found.record));
                messages.push(KafkaMessage { topic, partition: number, offset: found.offset, content });
            } else {
                tracing::debug!(topic = %topic, partition = number, offset = found.offset, "a record has no value");
            }
        }
        self.lags.note_read((topic, number), high_watermark, *next, messages.last().map(KafkaMessage::next));
        Ok(messages)
    }

    /// Returns the earliest offset of a partition that does not have the offset `next`, and warns about it.
    async fn earliest(&self, partition: &Partition, next: i64) -> Result<i64, KafkaError> {
        tokio::time::sleep(OUT_OF_RANGE_WAIT).await;
        let earliest = partition.offset(OffsetAt::Earliest).await?;
        let (topic, number) = (partition.topic(), partition.number());
        let warning = if earliest > next {
            let lost = earliest - next;
            format!(
                "the cluster has removed {lost} messages of partition {number} of {topic} before they were read (offsets \
                 {next} to {}); raise the retention of the topic, and send the messages again",
                earliest - 1
            )
        } else {
            format!(
                "partition {number} of {topic} ends before the offset {next} that was read: the topic was made again, or \
                 the cluster has lost messages; the partition is read from its beginning, offset {earliest}"
            )
        };
        self.warn.send_replace(Some(warning));
        Ok(earliest)
    }
}
