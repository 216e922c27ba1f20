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
    /// Its messages.
    pub consumer: Consumer,
}

impl QueueSettings {
    /// Connects, under a name that the broker shows, declares or looks for what must be there, and begins
    /// to read. Every step is bounded in time.
    ///
    /// # Errors
    /// When any of it fails; nothing stays behind.
    pub async fn open(&self, name: &str) -> Result<OpenQueue, AmqpError> {
        let connection = Connector::new(self.address.clone(), name, self.ca.clone()).connect().await?;
        let channel = connection.channel().await?;
        match self.consume(&channel).await {
            Ok(consumer) => Ok(OpenQueue { connection, channel, consumer }),
            Err(error) => {
                channel.close().await;
                connection.close().await;
                Err(error)
            }
        }
    }

    async fn consume(&self, channel: &Channel) -> Result<Consumer, AmqpError> {
        let passive = !self.declare;
        if let Some(exchange) = &self.exchange {
            channel.exchange(exchange, passive).await?;
        }
        channel.queue(&self.queue, self.queue_type, passive).await?;
        if let (Some(exchange), true) = (&self.exchange, self.declare) {
            for binding in &self.bindings {
                channel.bind(&self.queue, exchange, binding).await?;
            }
        }
        channel.consume(&self.queue, self.prefetch).await
    }
}

impl OpenQueue {
    /// Closes channel and connection in good order, for four seconds at most.
    pub async fn close(self) {
        let Self { connection, channel, consumer } = self;
        channel.close().await;
        drop(consumer);
        connection.close().await;
    }
}
