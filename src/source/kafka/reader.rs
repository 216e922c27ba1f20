//! Readers of the partitions: each fetches from its leader, and passes messages on in order. All share one channel, which
//! has room for one fetch, so the readers stop fetching while messages cannot be written.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::Instant,
};

use super::{
    MAX_PARTITIONS,
    lag::Lags,
    message::{Content, KafkaMessage},
};
use crate::kafka::{Batches, Entry, Fetched, KafkaError, OffsetAt, PartitionReader, Piece, TopicReader};

/// Time that a broker waits for records before it returns none.
const FETCH_WAIT: Duration = Duration::from_secs(1);

/// Wait after a response without records that arrived early.
const EARLY_WAIT: Duration = Duration::from_millis(100);

/// Wait after an offset was out of range.
const OUT_OF_RANGE_WAIT: Duration = Duration::from_secs(1);

/// Interval at which new partitions are searched for.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Number of responses that are decoded at the same time. A decompressor has up to 32 MiB.
pub(super) const MAX_DECODING: usize = 4;

/// A partition, and the offset from which it is read.
pub(super) struct OpenPartition {
    pub(super) partition: PartitionReader,
    pub(super) next: i64,
}

/// Everything that the readers share.
pub(super) struct Readers {
    pub(super) cluster: Arc<TopicReader>,
    pub(super) topics: Vec<String>,
    /// Number of bytes to fetch from a partition at once.
    pub(super) partition_bytes: i32,
    /// Places for responses that are being decoded.
    pub(super) decoding: Semaphore,
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
                Ended::Failed(error) => return report(tasks, &self.sender, error).await,
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
                let mut partition = self.cluster.partition(&topic, number).await?;
                let next = partition.offset(OffsetAt::Earliest).await?;
                tracing::info!(topic, partition = number, next, "the topic has a new partition");
                new.push(OpenPartition { partition, next });
            }
        }
        Ok(new)
    }

    async fn read(&self, OpenPartition { mut partition, mut next }: OpenPartition) -> Ended {
        let topic: Arc<str> = partition.topic().into();
        self.lags.note_start(&topic, partition.number(), next);
        loop {
            let began = Instant::now();
            match partition.fetch(next, self.partition_bytes, FETCH_WAIT).await {
                Ok(fetched) if fetched.batches.is_empty() => {
                    self.lags.note_read(&topic, partition.number(), fetched.high_watermark, next, None);
                    if began.elapsed() < FETCH_WAIT / 2 {
                        tokio::time::sleep(EARLY_WAIT).await;
                    }
                }
                Ok(fetched) => match self.pass_on(&topic, partition.number(), next, fetched).await {
                    // Nothing in the response was new, so the same request would return the same.
                    Ok(end) if end <= next => tokio::time::sleep(EARLY_WAIT).await,
                    Ok(end) => next = end,
                    Err(ended) => return ended,
                },
                Err(KafkaError::OffsetOutOfRange(_)) => match self.earliest(&mut partition, next).await {
                    Ok(earliest) => next = earliest,
                    Err(error) => return Ended::Failed(error),
                },
                Err(error) => return Ended::Failed(error),
            }
        }
    }

    /// Decodes a response in pieces, and passes their messages on. Returns the offset after them.
    async fn pass_on(&self, topic: &Arc<str>, number: i32, mut next: i64, fetched: Fetched) -> Result<i64, Ended> {
        let Fetched { mut batches, high_watermark } = fetched;
        let _place = self.decoding.acquire().await.map_err(|_| Ended::Closed)?;
        loop {
            let (rest, piece) = decode(batches).await.map_err(Ended::Failed)?;
            batches = rest;
            let Piece { entries, next: end, is_last } = piece;
            next = next.max(end);
            let messages: Vec<_> = entries.into_iter().filter_map(|entry| message(topic, number, entry)).collect();
            self.lags.note_read(topic, number, high_watermark, next, messages.last().map(KafkaMessage::next));
            if !messages.is_empty() && self.sender.send(Ok(messages)).await.is_err() {
                return Err(Ended::Closed);
            }
            if is_last {
                return Ok(next);
            }
        }
    }

    /// Returns the earliest offset of a partition that does not have the offset `next`, and warns about it.
    async fn earliest(&self, partition: &mut PartitionReader, next: i64) -> Result<i64, KafkaError> {
        tokio::time::sleep(OUT_OF_RANGE_WAIT).await;
        let earliest = partition.offset(OffsetAt::Earliest).await?;
        let (topic, number) = (partition.topic(), partition.number());
        let warning = if earliest > next {
            let lost = earliest.saturating_sub(next);
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

/// Ends the tasks, and passes the error of one of them on.
///
/// A reader that waits for a place in the channel is before the error in its queue, and nobody polls it any more: without its
/// end, the place would be its own for ever.
async fn report<T>(
    tasks: FuturesUnordered<BoxFuture<'_, Ended>>,
    sender: &mpsc::Sender<Result<T, KafkaError>>,
    error: KafkaError,
) {
    drop(tasks);
    // A closed channel means that the session has ended.
    let _ = sender.send(Err(error)).await;
}

/// Decodes the next piece of a response on a blocking thread.
async fn decode(mut batches: Batches) -> Result<(Batches, Piece), KafkaError> {
    let decoding = tokio::task::spawn_blocking(move || {
        let piece = batches.next_piece();
        (batches, piece)
    });
    decoding.await.map_err(|error| KafkaError::Unavailable(format!("records cannot be decoded: {error}")))
}

/// Returns the message of an entry. Records without a value are no messages: they mark deleted keys of a compacted topic.
fn message(topic: &Arc<str>, partition: i32, entry: Entry) -> Option<KafkaMessage> {
    let (offset, batch, content) = match entry {
        Entry::Record { offset, record, .. } if record.value.is_none() => {
            tracing::debug!(topic = %topic, partition, offset, "a record has no value");
            return None;
        }
        Entry::Record { offset, batch, record } => (offset, batch, Content::Record(record)),
        Entry::Unreadable { offset, end, reason } => (offset, offset..end, Content::Unreadable { end, reason }),
    };
    Some(KafkaMessage { topic: Arc::clone(topic), partition, offset, batch, content })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{BoxFuture, Ended, FuturesUnordered, KafkaError, StreamExt, mpsc, report};

    #[tokio::test]
    async fn error_arrives_although_another_reader_waits_for_a_place() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut tasks: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        for message in 1..=2 {
            let sender = sender.clone();
            tasks.push(Box::pin(async move {
                let _ = sender.send(Ok(message)).await;
                std::future::pending().await
            }));
        }
        // The first message takes the place, and the second one waits.
        assert!(tasks.next().now_or_never().is_none());
        let receive = async {
            assert_eq!(receiver.recv().await.unwrap().unwrap(), 1);
            receiver.recv().await.unwrap()
        };
        let error = KafkaError::Unavailable("lost".to_owned());
        let both = async { tokio::join!(report(tasks, &sender, error), receive) };
        let ((), received) = tokio::time::timeout(std::time::Duration::from_secs(10), both).await.unwrap();
        assert_eq!(received.unwrap_err().to_string(), KafkaError::Unavailable("lost".to_owned()).to_string());
    }
}
