//! A queue to read: where it is, and what must be there before it can be.

use std::path::PathBuf;

use lapin::types::ShortString;

use super::{Address, AmqpError, Channel, Connection, Connector, Consumer, QueueType};

/// A queue as the configuration names it.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// The broker.
    pub address: Address,
    /// A PEM file with the authority that the broker's certificate is checked against; what the operating
    /// system trusts, where there is none.
    pub ca: Option<PathBuf>,
    /// The exchange that it is bound to; a durable topic exchange, where it is declared here.
    pub exchange: Option<ShortString>,
    /// Its name.
    pub queue: ShortString,
    /// How the broker keeps it, where it is declared here.
    pub queue_type: QueueType,
    /// The patterns of routing keys by which it is bound.
    pub bindings: Vec<ShortString>,
    /// How many messages come before one is acknowledged, 1 to 65535.
    pub prefetch: u16,
    /// Whether exchange, queue and bindings are declared; else they must be there.
    pub declare: bool,
}

/// A queue that is being read.
pub struct OpenQueue {
    /// Its connection, which nothing else uses.
    pub connection: Connection,
    /// The channel on which messages are acknowledged.
    pub channel: Channel,
    /// A channel for questions about the queue: one that the broker answers with an error ends the channel.
    pub questions: Channel,
    /// Its messages.
    pub consumer: Consumer,
    /// The number of other consumers of the queue.
    pub others: u32,
}

impl QueueSettings {
    /// Connects, under a name that the broker shows, declares or looks for what must be there, and begins
    /// to read, with up to `prefetch` messages before one is acknowledged. Every step is bounded in time.
    ///
    /// # Errors
    /// When any of it fails; nothing stays behind.
    pub async fn open(&self, name: &str, prefetch: u16) -> Result<OpenQueue, AmqpError> {
        let connection = Connector::new(self.address.clone(), name, self.ca.clone()).connect().await?;
        let channel = connection.channel().await?;
        let questions = connection.channel().await?;
        match self.consume(&channel, &questions, prefetch).await {
            Ok((consumer, others)) => Ok(OpenQueue { connection, channel, questions, consumer, others }),
            Err(error) => {
                questions.close().await;
                channel.close().await;
                connection.close().await;
                Err(error)
            }
        }
    }

    async fn consume(
        &self,
        channel: &Channel,
        questions: &Channel,
        prefetch: u16,
    ) -> Result<(Consumer, u32), AmqpError> {
        let passive = !self.declare;
        if let Some(exchange) = &self.exchange {
            channel.exchange(exchange, passive).await?;
        }
        let others = channel.queue(&self.queue, self.queue_type, passive).await?;
        if let (Some(exchange), true) = (&self.exchange, self.declare) {
            for binding in &self.bindings {
                channel.bind(&self.queue, exchange, binding).await?;
            }
        }
        let consumer = channel.consume(&self.queue, prefetch).await?;
        // A stream cannot be declared as one of the other types.
        let consumer = if passive { consumer.refusing_streams(questions.clone(), &self.queue) } else { consumer };
        Ok((consumer, others))
    }
}

impl OpenQueue {
    /// Closes channel and connection in good order, for six seconds at most.
    pub async fn close(self) {
        let Self { connection, channel, questions, consumer, .. } = self;
        questions.close().await;
        channel.close().await;
        drop(consumer);
        connection.close().await;
    }
}
