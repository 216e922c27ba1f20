//! Publisher of one partition: joins the waiting messages into batches, and has one batch in flight, so that a repeat of the
//! batch cannot overtake it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::{DeliveryOutcome, settings::KafkaSettings, size};
use crate::kafka::{Cluster, KafkaError, Partition, Record};

/// Maximum number of messages in a batch.
const BATCH_MESSAGES: usize = 1000;

/// Queue of a publisher. The engine's window bounds the messages in all queues.
pub(super) type PublisherQueue = mpsc::UnboundedSender<Queued>;

/// A message that waits for its publisher.
pub(super) struct Queued {
    record: Record,
    outcome: oneshot::Sender<DeliveryOutcome>,
}

impl Queued {
    /// Returns a message, and the receiver of its outcome.
    pub(super) fn new(record: Record) -> (Self, oneshot::Receiver<DeliveryOutcome>) {
        let (outcome, receiver) = oneshot::channel();
        (Self { record, outcome }, receiver)
    }
}

/// Publisher of one partition.
pub(super) struct Publisher {
    cluster: Arc<Cluster>,
    settings: Arc<KafkaSettings>,
    partition: i32,
    failed: watch::Sender<Option<KafkaError>>,
    queue: mpsc::UnboundedReceiver<Queued>,
}

impl Publisher {
    /// Creates a publisher. It connects when it has the first message.
    pub(super) fn new(
        cluster: Arc<Cluster>,
        settings: Arc<KafkaSettings>,
        partition: i32,
        failed: watch::Sender<Option<KafkaError>>,
    ) -> (PublisherQueue, Self) {
        let (sender, queue) = mpsc::unbounded_channel();
        (sender, Self { cluster, settings, partition, failed, queue })
    }

    /// Publishes messages until the queue is closed, or a batch fails. All messages after a failed batch are dropped.
    pub(super) async fn run(mut self) {
        let mut leader = None;
        let mut next = self.queue.recv().await;
        while let Some(first) = next.take() {
            let mut bytes = size(&first.record);
            let (mut records, mut outcomes) = (vec![first.record], vec![first.outcome]);
            while records.len() < BATCH_MESSAGES
                && let Ok(Queued { record, outcome }) = self.queue.try_recv()
            {
                let size = size(&record);
                if bytes + size > self.settings.table.max_message_bytes {
                    next = Some(Queued { record, outcome });
                    break;
                }
                bytes += size;
                records.push(record);
                outcomes.push(outcome);
            }
            let published = match self.leader(&mut leader).await {
                Ok(leader) => self.publish(leader, records, &mut outcomes).await,
                Err(error) => Err(error),
            };
            if let Err(error) = published {
                let reason = error.to_string();
                for outcome in outcomes {
                    let _ = outcome.send(DeliveryOutcome::Retry { reason: reason.clone(), after: None });
                }
                self.failed.send_replace(Some(error));
                return;
            }
            if next.is_none() {
                next = self.queue.recv().await;
            }
        }
    }

    async fn leader<'l>(&self, leader: &'l mut Option<Partition>) -> Result<&'l Partition, KafkaError> {
        match leader {
            Some(leader) => Ok(leader),
            None => Ok(leader.insert(self.cluster.partition(&self.settings.table.topic, self.partition).await?)),
        }
    }

    /// Publishes a batch, and reports the outcomes of its messages. If the broker refuses the batch, the publisher sends
    /// each message alone to find the refused one. After an error, `outcomes` has the messages that are not delivered.
    async fn publish(
        &self,
        leader: &Partition,
        records: Vec<Record>,
        outcomes: &mut Vec<oneshot::Sender<DeliveryOutcome>>,
    ) -> Result<(), KafkaError> {
        let codec = self.settings.table.compression;
        let batch = if records.len() > 1 { records.clone() } else { Vec::new() };
        match leader.produce(records, codec).await {
            Ok(()) => {
                for outcome in outcomes.drain(..) {
                    let _ = outcome.send(DeliveryOutcome::Delivered);
                }
                return Ok(());
            }
            Err(error) if !is_refusal(&error) => return Err(error),
            Err(error) if batch.is_empty() => {
                for outcome in outcomes.drain(..) {
                    let _ = outcome.send(refused(&error));
                }
                return Ok(());
            }
            Err(_) => {}
        }
        for record in batch {
            let outcome = match leader.produce(vec![record], codec).await {
                Ok(()) => DeliveryOutcome::Delivered,
                Err(error) if is_refusal(&error) => refused(&error),
                Err(error) => return Err(error),
            };
            if !outcomes.is_empty() {
                let _ = outcomes.remove(0).send(outcome);
            }
        }
        Ok(())
    }
}

/// Returns whether the broker refuses one of the records for good.
fn is_refusal(error: &KafkaError) -> bool {
    matches!(error, KafkaError::TooLarge | KafkaError::InvalidRecords(_))
}

fn refused(error: &KafkaError) -> DeliveryOutcome {
    let advice = match error {
        KafkaError::TooLarge => {
            "; raise max.message.bytes of the topic, or lower max_message_bytes of the subscription"
        }
        _ => "",
    };
    DeliveryOutcome::Refused { reason: format!("{error}{advice}") }
}
