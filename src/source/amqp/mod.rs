//! A queue of a broker that speaks AMQP 0-9-1, as a source.

mod arrival;

use std::{convert::Infallible, fmt::Display};

use self::arrival::arrived;
use super::brokered::{Acknowledging, Arrivals, Broker, Failed, Message};
use crate::{
    amqp::{AmqpError, Channel, Connection, Consumer, Delivery, OpenQueue, QueueSettings},
    intake::{Arrived, SourceName},
};

/// A consumer, and the channel that ends it.
pub struct Consuming {
    channel: Channel,
    consumer: Consumer,
}

/// The channel on which messages are acknowledged, and its connection.
pub struct Acknowledged {
    channel: Channel,
    connection: Connection,
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

    async fn open(&self, name: &str) -> Result<(Consuming, Acknowledged), AmqpError> {
        let OpenQueue { connection, channel, consumer } = QueueSettings::open(self, name).await?;
        Ok((Consuming { channel: channel.clone(), consumer }, Acknowledged { channel, connection }))
    }

    async fn close(Consuming { consumer, .. }: Consuming, Acknowledged { channel, connection }: Acknowledged) {
        OpenQueue { connection, channel, consumer }.close().await;
    }
}

impl Failed for AmqpError {
    fn is_transient(&self) -> bool {
        AmqpError::is_transient(self)
    }
}

impl Arrivals for Consuming {
    type Message = Delivery;
    type Error = AmqpError;

    async fn next(&mut self) -> Result<Delivery, AmqpError> {
        self.consumer.next().await
    }

    async fn end(&mut self) -> Result<(), AmqpError> {
        self.channel.cancel(&self.consumer).await
    }
}

impl Message for Delivery {
    /// The delivery tag.
    type Mark = u64;

    fn mark(&self) -> u64 {
        self.delivery_tag
    }

    fn size(&self) -> usize {
        self.data.len()
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

    /// The library does that.
    async fn keep_alive(&self) -> Infallible {
        std::future::pending().await
    }
}
