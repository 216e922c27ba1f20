//! Publishes to a topic of a Kafka cluster. A message is delivered when all in-sync replicas have it (`acks=all`).
//!
//! The key of a message is the URI of its object, so all messages about an object are in one partition, in order. Each
//! partition has a publisher with one batch in flight. After a failure all unconfirmed messages are sent again in order on
//! new connections. A batch whose confirmation was lost is then in the topic twice.

mod publisher;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use self::{
    publisher::{Publisher, PublisherQueue, Queued},
    settings::KafkaSettings,
};
use super::{
    BoxFuture, Delivery, DeliveryError, DeliveryFuture, DeliveryKind, DeliveryOutcome, Outgoing, REPEAT_HEADER, Window,
};
use crate::{
    format::{Header, HeaderProtocol},
    kafka::{Cluster, KafkaError, Record, partition_of},
    model::{Change, ItemChangeKind, SubscriptionName},
};

/// Kafka as a kind of delivery.
pub(super) static KAFKA: DeliveryKind = DeliveryKind {
    name: "kafka",
    about: "publishes to a topic of a Kafka cluster; only in the configuration file",
    has_routing_keys: true,
    settings: &settings::KEYS,
    parse: settings::parse,
};

/// Header `type`, for consumers that read several kinds of messages.
const MESSAGE_TYPE: &str = "content-change";

/// Interval at which the number of partitions is checked, because keys belong to other partitions when it has changed.
const PARTITIONS_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes that a record has beside its key, value and headers, at most.
const RECORD_OVERHEAD: usize = 64;

struct Kafka {
    settings: Arc<KafkaSettings>,
    name: String,
    session: Option<ClusterSession>,
}

/// Connections to the cluster.
struct ClusterSession {
    cluster: Arc<Cluster>,
    /// Queue of each partition's publisher, in order of the partitions.
    queues: Vec<PublisherQueue>,
    /// Reason why a publisher has failed.
    failure: watch::Receiver<Option<KafkaError>>,
    /// The publishers, which end when the session is dropped.
    _publishers: JoinSet<()>,
}

impl Kafka {
    fn new(settings: Arc<KafkaSettings>, subscription: &SubscriptionName) -> Self {
        Self { settings, name: format!("tidings subscription {subscription}"), session: None }
    }

    async fn open(&mut self) -> Result<(), KafkaError> {
        self.session = None;
        let cluster = Arc::new(self.settings.cluster.connect(&self.name).await?);
        let partitions = number_of_partitions(&cluster, &self.settings.table.topic).await?;
        let (failed, failure) = watch::channel(None);
        let (mut publishers, mut queues) = (JoinSet::new(), Vec::new());
        for partition in 0..partitions {
            let (queue, publisher) =
                Publisher::new(Arc::clone(&cluster), Arc::clone(&self.settings), partition, failed.clone());
            publishers.spawn(publisher.run());
            queues.push(queue);
        }
        self.session = Some(ClusterSession { cluster, queues, failure, _publishers: publishers });
        Ok(())
    }

    /// Hands the messages of a change to the publisher of their partition. The change is delivered when all its messages
    /// are.
    fn publish(&self, message: Outgoing) -> Result<DeliveryFuture, DeliveryError> {
        let Outgoing { change, format, body, is_repeat, .. } = message;
        let session = self.session.as_ref().ok_or_else(|| DeliveryError("no connection is open".to_owned()))?;
        let change = change.change().map_err(|error| DeliveryError(error.to_string()))?;
        let key = change.modification.object.as_str().as_bytes();
        let partitions = u32::try_from(session.queues.len()).unwrap_or(u32::MAX);
        let queue = session.queues.get(partition_of(key, partitions) as usize);
        let queue = queue.ok_or_else(|| DeliveryError("the topic has no partition".to_owned()))?;
        let headers = || {
            let mut headers = headers(change, format.media_type);
            headers.extend(is_repeat.then(|| (REPEAT_HEADER.to_owned(), b"true".to_vec())));
            headers.extend(format.headers(change, HeaderProtocol::Kafka).into_iter().map(text_header));
            headers
        };
        let id = change.modification.id;
        let record = |id: String, value: Vec<u8>, mut headers: BTreeMap<String, Vec<u8>>| {
            headers.insert("message-id".to_owned(), id.into_bytes());
            // The time of sending, because the retention of a topic removes messages by their times.
            Record { key: Some(key.to_vec()), value: Some(value), headers, timestamp: chrono::Utc::now() }
        };
        let records: Vec<Record> = match format.routed {
            None => vec![record(id.to_string(), body.to_vec(), headers())],
            Some(routed) => {
                let messages = routed(change).into_iter().enumerate();
                let messages = messages.map(|(index, message)| {
                    let mut headers = headers();
                    headers.insert("routing-key".to_owned(), message.routing_key.as_bytes().to_vec());
                    headers.insert("resource".to_owned(), message.resource.as_str().as_bytes().to_vec());
                    // A repeat of the change has the same identifiers.
                    record(format!("{id}#{index}"), message.body.into_bytes(), headers)
                });
                messages.collect()
            }
        };
        if let Some(reason) = records.iter().find_map(|record| self.refusal(record)) {
            return Ok(Box::pin(std::future::ready(DeliveryOutcome::Refused { reason })));
        }
        let mut outcomes = Vec::with_capacity(records.len());
        for record in records {
            let (queued, outcome) = Queued::new(record);
            // A publisher that has ended drops the message, and its outcome is another attempt.
            let _ = queue.send(queued);
            outcomes.push(outcome);
        }
        Ok(Box::pin(async move {
            for outcome in outcomes {
                match outcome.await {
                    Ok(DeliveryOutcome::Delivered) => {}
                    Ok(failure) => return failure,
                    Err(_) => {
                        let reason = "the connection to the cluster is lost".to_owned();
                        return DeliveryOutcome::Retry { reason, after: None };
                    }
                }
            }
            DeliveryOutcome::Delivered
        }))
    }

    /// Returns the reason why a record is too large to be sent.
    fn refusal(&self, record: &Record) -> Option<String> {
        let (bytes, max) = (size(record), self.settings.table.max_message_bytes);
        (bytes > max).then(|| {
            format!(
                "the message has {bytes} bytes with its headers; the maximum is {max} (max_message_bytes, which must not \
                 exceed max.message.bytes of the topic)"
            )
        })
    }
}

/// Returns the number of partitions of a topic.
async fn number_of_partitions(cluster: &Cluster, topic: &str) -> Result<i32, KafkaError> {
    let listed = cluster.partitions(&[topic.to_owned()]).await?;
    let last = listed.values().flatten().max().copied();
    Ok(last.map_or(0, |last| last + 1))
}

/// Returns the size of a record in a batch, at most.
fn size(record: &Record) -> usize {
    record.approximate_size() + RECORD_OVERHEAD + 8 * record.headers.len()
}

fn headers(change: &Change, media_type: &str) -> BTreeMap<String, Vec<u8>> {
    let modification = &change.modification;
    let kinds = ItemChangeKind::among(change).into_iter().map(ItemChangeKind::as_str);
    let headers = [
        ("content-type", media_type.to_owned()),
        ("type", MESSAGE_TYPE.to_owned()),
        ("seq", change.seq.0.to_string()),
        ("object", modification.object.as_str().to_owned()),
        ("source", modification.origin.source.to_string()),
        ("changes", kinds.collect::<Vec<_>>().join(",")),
    ];
    let late = change.settlement.is_late().then(|| ("late", "true".to_owned()));
    headers.into_iter().chain(late).map(|(name, value)| (name.to_owned(), value.into_bytes())).collect()
}

fn text_header(Header { name, value }: Header) -> (String, Vec<u8>) {
    (name.into_owned(), value.into_bytes())
}

impl Delivery for Kafka {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        Box::pin(async { self.open().await.map_err(|error| DeliveryError(error.to_string())) })
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        Box::pin(std::future::ready(self.publish(message)))
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        Box::pin(async {
            let Some(session) = &mut self.session else { return DeliveryError("no connection is open".to_owned()) };
            loop {
                tokio::select! {
                    failed = session.failure.wait_for(Option::is_some) => {
                        let reason = failed.ok().and_then(|failure| failure.clone());
                        let reason = reason.map_or_else(|| "the publishers have ended".to_owned(), |error| error.to_string());
                        return DeliveryError(reason);
                    }
                    () = tokio::time::sleep(PARTITIONS_INTERVAL) => {}
                }
                match number_of_partitions(&session.cluster, &self.settings.table.topic).await {
                    Ok(partitions) if usize::try_from(partitions).is_ok_and(|now| now == session.queues.len()) => {}
                    Ok(partitions) => return DeliveryError(format!("the topic has {partitions} partitions now")),
                    Err(error) => return DeliveryError(error.to_string()),
                }
            }
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.session = None;
        Box::pin(std::future::ready(()))
    }

    fn window(&self) -> Window {
        self.settings.window
    }

    /// The record copies the body.
    fn extra_bytes(&self, size: usize) -> usize {
        size
    }
}
