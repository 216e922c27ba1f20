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

    /// Connects, and checks that the user may see the exchange and the queue. It declares and consumes nothing, so what
    /// [`QueueSettings::open`] declares may be missing.
    ///
    /// # Errors
    /// Returns the error of the step that failed.
    pub async fn probe(&self, name: &str) -> Result<(), AmqpError> {
        let connection = Connector::new(self.broker_url.clone(), name, self.ca.clone()).connect().await?;
        let checked = async {
            if let Some(exchange) = &self.exchange {
                probed(connection.channel().await?.exchange(exchange, true).await, self.declare)?;
            }
            // A channel of its own, because the broker closes a channel after an error.
            let queue = connection.channel().await?.queue(&self.queue, self.queue_type, true).await;
            probed(queue.map(drop), self.declare)
        };
        let checked = checked.await;
        connection.close().await;
        checked
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

/// Returns the result of a passive declaration. A missing exchange or queue is no error if the gateway declares it.
pub fn probed(checked: Result<(), AmqpError>, is_declared: bool) -> Result<(), AmqpError> {
    match checked {
        Err(AmqpError::NotFound(_)) if is_declared => Ok(()),
        checked => checked,
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
