//! A queue of a broker that speaks AMQP 0-9-1, as a source.

mod arrival;

use std::{convert::Infallible, fmt::Display, path::Path, pin::Pin, time::Duration};

use tokio_util::sync::CancellationToken;

use self::arrival::arrived;
use super::brokered::{Acknowledging, Arrivals, Broker, BrokerSettings, BrokeredSource, Failed, Message, Opened};
use crate::{
    amqp::{AmqpError, Channel, Connection, Consumer, OpenQueue, QueueSettings, QueueType, Received, ShortString},
    intake::{Arrived, SourceName},
};

/// A consumer, and the channel that ends it.
pub struct Consuming {
    channel: Channel,
    consumer: Consumer,
}

/// The channel on which messages are acknowledged, one for questions, their connection, and the queue.
pub struct Acknowledged {
    channel: Channel,
    questions: Channel,
    connection: Connection,
    queue: ShortString,
}

/// How often the broker is asked for the number of consumers.
const COUNT_CONSUMERS: Duration = Duration::from_secs(10);

/// The warning that a queue has other consumers, if it has.
fn shared(others: u32) -> Option<String> {
    (others > 0).then(|| {
        format!(
            "the queue has other consumers ({others}): the broker gives each of them a part of the messages, and this \
             gateway never sees the rest; give each reader a queue of its own"
        )
    })
}

impl BrokerSettings for QueueSettings {
    fn describe(&self) -> String {
        format!("the queue {} of {}", self.queue, self.address)
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn read(&self, source: BrokeredSource<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(source.read(self.clone(), stop))
    }
}

impl Broker for QueueSettings {
    type Error = AmqpError;
    type Arrivals = Consuming;
    type Acknowledging = Acknowledged;

    fn place(&self) -> impl Display {
        &self.queue
    }

    fn address(&self) -> impl Display {
        &self.address
    }

    fn prefetch(&self) -> u16 {
        self.prefetch
    }

    async fn open(&self, name: &str, prefetch: u16) -> Result<Opened<Consuming, Acknowledged>, AmqpError> {
        let OpenQueue { connection, channel, questions, consumer, others } =
            QueueSettings::open(self, name, prefetch).await?;
        let arrivals = Consuming { channel: channel.clone(), consumer };
        let acknowledging = Acknowledged { channel, questions, connection, queue: self.queue.clone() };
        Ok(Opened { arrivals, acknowledging, warning: shared(others) })
    }

    async fn close(Consuming { consumer, .. }: Consuming, acknowledged: Acknowledged) {
        let Acknowledged { channel, questions, connection, .. } = acknowledged;
        OpenQueue { connection, channel, questions, consumer, others: 0 }.close().await;
    }
}

impl Failed for AmqpError {
    fn is_transient(&self) -> bool {
        AmqpError::is_transient(self)
    }

    fn is_unexplained(&self) -> bool {
        matches!(self, AmqpError::Broken(_))
    }
}

impl Arrivals for Consuming {
    type Message = Received;
    type Error = AmqpError;

    async fn next(&mut self) -> Result<Received, AmqpError> {
        self.consumer.next().await
    }

    async fn end(&mut self) -> Result<(), AmqpError> {
        self.channel.cancel(&self.consumer).await
    }
}

impl Message for Received {
    /// The delivery tag.
    type Mark = u64;

    fn mark(&self) -> u64 {
        self.delivery.delivery_tag
    }

    fn size(&self) -> usize {
        self.delivery.data.len()
    }

    fn arrived(self, largest: usize, source: &SourceName) -> Arrived {
        arrived(self, largest, source)
    }
}

impl Acknowledging for Acknowledged {
    type Mark = u64;
    type Error = AmqpError;

    async fn acknowledge(&self, tags: &[u64]) -> Result<(), AmqpError> {
        match tags.last() {
            Some(last) => self.channel.acknowledge_up_to(*last).await,
            None => Ok(()),
        }
    }

    /// The library sends the heartbeats. The consumers of the queue are counted here.
    async fn keep_alive(&self, warn: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        loop {
            tokio::time::sleep(COUNT_CONSUMERS).await;
            // The type does not matter where the queue is only looked for.
            match self.questions.queue(&self.queue, QueueType::Quorum, true).await {
                Ok(consumers) => warn(shared(consumers.saturating_sub(1))),
                Err(_) => return std::future::pending().await,
            }
        }
    }
}
