//! Setup of a queue for reading.

use std::path::PathBuf;

use lapin::types::ShortString;

use super::{AmqpError, BrokerUrl, Channel, Connection, Connector, Consumer, QueueType};

/// Settings of a queue.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// URL of the broker.
    pub broker_url: BrokerUrl,
    /// PEM file of the CA certificates that the broker's certificate is checked against; `None` for those of
    /// the operating system.
    pub ca: Option<PathBuf>,
    /// Exchange that the queue is bound to. If it is declared here, it is a durable topic exchange.
    pub exchange: Option<ShortString>,
    /// Name of the queue.
    pub queue: ShortString,
    /// Type of the queue, if it is declared here.
    pub queue_type: QueueType,
    /// Patterns of routing keys for the bindings.
    pub bindings: Vec<ShortString>,
    /// Maximum number of unacknowledged messages, 1 to 65535.
    pub prefetch: u16,
    /// True to declare the exchange, the queue and the bindings. Otherwise they must exist.
    pub declare: bool,
}

/// A queue with a running consumer.
pub struct OpenQueue {
    /// Connection, used by nothing else.
    pub connection: Connection,
    /// Channel of the consumer and of acknowledgements.
    pub channel: Channel,
    /// Channel for queries about the queue. It is separate because the broker closes a channel after an error.
    pub questions: Channel,
    /// The messages of the queue.
    pub consumer: Consumer,
    /// Number of other consumers of the queue.
    pub others: u32,
}

impl QueueSettings {
    /// Connects under a name that the broker shows, declares or checks the queue, and starts a consumer with
    /// up to `prefetch` unacknowledged messages. Every step has a timeout.
    ///
    /// # Errors
    /// Returns the error of the step that failed. The connection is closed then.
    pub async fn open(&self, name: &str, prefetch: u16) -> Result<OpenQueue, AmqpError> {
        let connection = Connector::new(self.broker_url.clone(), name, self.ca.clone()).connect().await?;
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
        // Declaring fails for a stream, so only a passive check needs the probe.
        let consumer = if passive { consumer.refusing_streams(questions.clone(), &self.queue) } else { consumer };
        Ok((consumer, others))
    }
}

impl OpenQueue {
    /// Closes the channels and the connection gracefully, within six seconds.
    pub async fn close(self) {
        let Self { connection, channel, questions, consumer, .. } = self;
        questions.close().await;
        channel.close().await;
        drop(consumer);
        connection.close().await;
    }
}
