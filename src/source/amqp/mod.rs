//! Source transport `amqp`: a queue of a broker that speaks AMQP 0-9-1.

mod message;

use std::{convert::Infallible, fmt::Display, path::Path, pin::Pin, time::Duration};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::message::read_delivery;
use super::consumer::{Broker, BrokerSettings, OpenConnection, SourceConsumer};
use crate::{
    amqp::{
        AmqpError, Channel, Connection, ConsumedMessage, Consumer, OpenQueue, QueueSettings, QueueType, ShortString,
    },
    intake::{ReceivedMessage, SourceName},
};

/// Reads the messages of a queue: the consumer, and the channel that cancels it.
pub struct QueueReader {
    channel: Channel,
    consumer: Consumer,
}

/// Acknowledges messages: the channel of the consumer, a channel for queries, their connection, and the queue.
pub struct QueueAcker {
    channel: Channel,
    questions: Channel,
    connection: Connection,
    queue: ShortString,
}

/// Interval at which the consumers of the queue are counted.
const COUNT_CONSUMERS: Duration = Duration::from_secs(10);

/// Returns the warning that the queue has other consumers, if it has any.
fn shared_queue_warning(others: u32) -> Option<String> {
    (others > 0).then(|| {
        format!(
            "the queue has other consumers ({others}): each of them receives a part of the messages, which this \
             gateway never sees; give each consumer a queue of its own"
        )
    })
}

impl BrokerSettings for QueueSettings {
    fn describe(&self) -> String {
        format!("the queue {} of {}", self.queue, self.broker_url)
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn probe<'s>(&'s self, name: &'s str) -> BoxFuture<'s, Result<(), String>> {
        Box::pin(async move { QueueSettings::probe(self, name).await.map_err(|error| error.to_string()) })
    }

    fn read(&self, source: SourceConsumer<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(source.read(self.clone(), stop))
    }
}

impl Broker for QueueSettings {
    type Error = AmqpError;
    type Message = ConsumedMessage;
    /// The delivery tag.
    type AckToken = u64;
    type Reader = QueueReader;
    type Acker = QueueAcker;

    fn queue_name(&self) -> impl Display {
        &self.queue
    }

    fn broker_url(&self) -> impl Display {
        &self.broker_url
    }

    fn prefetch(&self) -> u16 {
        self.prefetch
    }

    async fn open(&self, name: &str, prefetch: u16) -> Result<OpenConnection<QueueReader, QueueAcker>, AmqpError> {
        let OpenQueue { connection, channel, questions, consumer, others } =
            QueueSettings::open(self, name, prefetch).await?;
        let reader = QueueReader { channel: channel.clone(), consumer };
        let acker = QueueAcker { channel, questions, connection, queue: self.queue.clone() };
        Ok(OpenConnection { reader, acker, warning: shared_queue_warning(others) })
    }

    async fn next(reader: &mut QueueReader) -> Result<(u64, ConsumedMessage), AmqpError> {
        let message = reader.consumer.next().await?;
        Ok((message.delivery.delivery_tag, message))
    }

    fn size(message: &ConsumedMessage) -> usize {
        message.delivery.data.len()
    }

    fn receive(message: ConsumedMessage, max_body_bytes: usize, source: &SourceName) -> ReceivedMessage {
        read_delivery(message, max_body_bytes, source)
    }

    async fn acknowledge(acker: &QueueAcker, tags: &[u64]) -> Result<(), AmqpError> {
        match tags.last() {
            Some(last) => acker.channel.acknowledge_up_to(*last).await,
            None => Ok(()),
        }
    }

    /// Counts the consumers of the queue from time to time. The library sends the heartbeats.
    async fn keep_alive(acker: &QueueAcker, warn: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        loop {
            tokio::time::sleep(COUNT_CONSUMERS).await;
            // A passive declaration ignores the type.
            match acker.questions.queue(&acker.queue, QueueType::Quorum, true).await {
                Ok(consumers) => warn(shared_queue_warning(consumers.saturating_sub(1))),
                Err(_) => return std::future::pending().await,
            }
        }
    }

    async fn end(reader: &mut QueueReader) -> Result<(), AmqpError> {
        reader.channel.cancel(&reader.consumer).await
    }

    async fn close(QueueReader { consumer, .. }: QueueReader, acker: QueueAcker) {
        let QueueAcker { channel, questions, connection, .. } = acker;
        OpenQueue { connection, channel, questions, consumer, others: 0 }.close().await;
    }

    fn is_transient(error: &AmqpError) -> bool {
        error.is_transient()
    }

    fn is_unexplained(error: &AmqpError) -> bool {
        matches!(error, AmqpError::ConnectionLost(_))
    }
}
