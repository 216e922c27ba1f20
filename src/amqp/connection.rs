//! Connection to a broker, with its channels and consumers. Every operation has a timeout.

use std::{path::PathBuf, pin::pin, time::Duration};

use futures_util::StreamExt;
use lapin::{
    BasicProperties, ConnectionProperties, ErrorKind, ExchangeKind, PublisherConfirm,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
        BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{
    broker_url::BrokerUrl,
    error::{AmqpError, Step},
    frames::{Correction, Notes},
    socket,
};
use crate::broker::{Resolver, SocketGuard, system_resolver};

/// Timeout of a connection attempt, from name resolution to the opening of the virtual host.
const CONNECT: Duration = Duration::from_secs(10);

/// Timeout of an operation of the broker.
const OPERATION: Duration = Duration::from_secs(10);

/// Timeout of closing a channel or a connection gracefully.
const CLOSE: Duration = Duration::from_secs(2);

/// AMQP's reply code for a normal close.
const GOODBYE: u16 = 200;

/// Opens connections to one broker.
#[derive(Clone)]
pub struct Connector {
    broker_url: BrokerUrl,
    name: String,
    ca: Option<PathBuf>,
    resolver: Resolver,
}

/// A connection. Dropping it closes the socket, whatever the broker does.
///
/// Close its channels before it, because the library's close sometimes hangs after a channel was only dropped.
/// [`Connection::close`] has a timeout for that case.
pub struct Connection {
    inner: lapin::Connection,
    notes: Notes,
    /// Declared after `inner`, so that the library can send its last frames before the socket is shut down.
    _guard: SocketGuard,
}

/// A channel of a connection.
///
/// Drop the channel and its connection after any error: on a channel that was opened while a quorum queue had
/// no leader, RabbitMQ answers nack for the lifetime of the channel.
#[derive(Clone)]
pub struct Channel {
    inner: lapin::Channel,
    notes: Notes,
}

/// A consumer: the messages of a queue.
pub struct Consumer {
    inner: lapin::Consumer,
    channel: u16,
    notes: Notes,
    /// Channel and queue for detecting a stream, until the type of the queue is known.
    stream_probe: Option<(Channel, ShortString)>,
    /// The message that arrived before the type of the queue was known.
    unverified: Option<ConsumedMessage>,
}

/// A message of a queue.
#[derive(Debug)]
pub struct ConsumedMessage {
    /// The delivery.
    pub delivery: Delivery,
    /// Corrections by the frame scanner. If there are any, the content differs from what the sender published.
    pub corrections: Vec<Correction>,
}

/// Header that the broker adds to each message of a stream.
const STREAM_OFFSET: &str = "x-stream-offset";

/// AMQP's reply code for an operation that the queue type does not support.
const NOT_IMPLEMENTED: u16 = 540;

named_values! {
    /// Type of a queue.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum QueueType {
        /// Replicated queue; every message is on disk.
        Quorum = "quorum",
        /// Queue on a single node.
        Classic = "classic",
    }
}

impl Connector {
    /// Creates a connector for the broker at `broker_url`. The broker shows connections under `name`.
    /// Certificates are checked against the CA certificates in the PEM file `ca`, or against those of the
    /// operating system.
    #[must_use]
    pub fn new(broker_url: BrokerUrl, name: &str, ca: Option<PathBuf>) -> Self {
        Self { broker_url, name: name.to_owned(), ca, resolver: system_resolver() }
    }

    /// Restricts connections to the socket addresses that `resolver` returns.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Returns the URL of the broker.
    #[must_use]
    pub fn broker_url(&self) -> &BrokerUrl {
        &self.broker_url
    }

    /// Opens a connection within ten seconds.
    ///
    /// # Errors
    /// Returns the error of the attempt, whose socket is closed then.
    pub async fn connect(&self) -> Result<Connection, AmqpError> {
        let properties = ConnectionProperties::default()
            .with_connection_name(self.name.as_str().into())
            .with_client_property("product".into(), "tidings".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        // Boxed because the library's future is large.
        let (ca, notes) = (self.ca.as_deref(), Notes::default());
        let connected = Box::pin(socket::connect(&self.broker_url, ca, &self.resolver, properties, notes.clone()));
        let (inner, guard) = with_timeout(CONNECT, "open the connection", connected).await?;
        Ok(Connection { inner, notes, _guard: guard })
    }
}

impl Connection {
    /// Opens a channel.
    ///
    /// # Errors
    /// Fails if the broker refuses or does not respond in time.
    pub async fn channel(&self) -> Result<Channel, AmqpError> {
        request(Step::Work, "open a channel", self.inner.create_channel()).await.map(|inner| {
            let notes = self.notes.clone();
            Channel { inner, notes }
        })
    }

    /// Returns the reason for which the broker accepts no messages at present, in its own words, such as `low on
    /// memory`. The broker informs only connections that publish.
    #[must_use]
    pub fn block(&self) -> Option<String> {
        self.notes.block()
    }

    /// True if the connection is open, as far as the library knows.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.inner.status().connected()
    }

    /// Closes the connection gracefully, within two seconds. Dropping the connection closes the socket.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE, self.inner.close(GOODBYE, "goodbye".into())).await;
    }
}

impl Channel {
    /// Declares a durable topic exchange. With `passive`, only checks that an exchange of that name exists.
    ///
    /// # Errors
    /// Fails if the exchange does not exist or is of another type, or the user lacks the permission.
    pub async fn exchange(&self, name: &ShortString, passive: bool) -> Result<(), AmqpError> {
        let options = ExchangeDeclareOptions { passive, durable: true, ..ExchangeDeclareOptions::default() };
        let declared = self.inner.exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default());
        request(Step::Declare, "declare an exchange", declared).await
    }

    /// Declares a durable queue. With `passive`, only checks that a queue of that name exists. Returns the
    /// number of its consumers.
    ///
    /// # Errors
    /// In the cases of [`Channel::exchange`].
    pub async fn queue(&self, name: &ShortString, kind: QueueType, passive: bool) -> Result<u32, AmqpError> {
        let options = QueueDeclareOptions { passive, durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.name().into()));
        let declared = self.inner.queue_declare(name.clone(), options, arguments);
        request(Step::Declare, "declare a queue", declared).await.map(|queue| queue.consumer_count())
    }

    /// Binds a queue to an exchange. `binding` is a pattern for routing keys.
    ///
    /// # Errors
    /// Fails if the queue or the exchange does not exist, or the user lacks the permission.
    pub async fn bind(
        &self,
        queue: &ShortString,
        exchange: &ShortString,
        binding: &ShortString,
    ) -> Result<(), AmqpError> {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound = self.inner.queue_bind(queue.clone(), exchange.clone(), binding.clone(), options, none);
        request(Step::Declare, "bind a queue", bound).await
    }

    /// Starts a consumer with up to `prefetch` unacknowledged messages.
    ///
    /// # Errors
    /// Fails if the queue does not exist, or the user lacks the permission.
    pub async fn consume(&self, queue: &ShortString, prefetch: u16) -> Result<Consumer, AmqpError> {
        let bounded = self.inner.basic_qos(prefetch, BasicQosOptions::default());
        request(Step::Work, "set the prefetch", bounded).await?;
        let options = BasicConsumeOptions::default();
        let consumed = self.inner.basic_consume(queue.clone(), ShortString::default(), options, FieldTable::default());
        let inner = request(Step::Declare, "start a consumer", consumed).await?;
        let (channel, notes) = (self.inner.id(), self.notes.clone());
        Ok(Consumer { inner, channel, notes, stream_probe: None, unverified: None })
    }

    /// Cancels a consumer. Messages that are already in flight still arrive.
    ///
    /// # Errors
    /// Fails if the broker does not respond in time.
    pub async fn cancel(&self, consumer: &Consumer) -> Result<(), AmqpError> {
        let cancelled = self.inner.basic_cancel(consumer.inner.tag(), BasicCancelOptions::default());
        request(Step::Work, "cancel the consumer", cancelled).await
    }

    /// Acknowledges the message with that delivery tag and all earlier ones.
    ///
    /// # Errors
    /// Fails if the connection is lost. The broker delivers the messages again then.
    pub async fn acknowledge_up_to(&self, tag: u64) -> Result<(), AmqpError> {
        let acknowledged = self.inner.basic_ack(tag, BasicAckOptions { multiple: true });
        request(Step::Work, "accept an acknowledgement", acknowledged).await
    }

    /// Enables publisher confirms on the channel.
    ///
    /// # Errors
    /// Fails if the broker does not respond in time.
    pub async fn confirm(&self) -> Result<(), AmqpError> {
        let options = ConfirmSelectOptions::default();
        request(Step::Work, "confirm messages", self.inner.confirm_select(options)).await
    }

    /// Publishes a message and waits until the library has written it. Messages are sent in the order of the
    /// first polls of these futures, and messages that wait at the same time are sent together. The returned
    /// confirmation reports whether the broker accepted the message; the caller sets a timeout for it. With
    /// `mandatory`, a message that reaches no queue is returned and confirmed as well.
    ///
    /// # Errors
    /// Fails if the connection is lost, or the message was not written within `bound`, for example because the
    /// connection is blocked.
    pub async fn publish(
        &self,
        exchange: &ShortString,
        routing_key: &ShortString,
        mandatory: bool,
        body: &[u8],
        properties: BasicProperties,
        bound: Duration,
    ) -> Result<PublisherConfirm, AmqpError> {
        let options = BasicPublishOptions { mandatory, immediate: false };
        let sent = self.inner.basic_publish(exchange.clone(), routing_key.clone(), options, body, properties);
        request_within(bound, Step::Work, "accept a message", sent).await
    }

    /// True if the broker returned the message because it reached no queue. The result is final once the
    /// message is confirmed. The note is removed, so a second call returns false.
    #[must_use]
    pub fn take_return(&self, message_id: &str) -> bool {
        self.notes.take_return(self.inner.id(), message_id)
    }

    /// Requests one message of a queue, which fails for a stream, and requeues the message.
    async fn refuse_stream(&self, queue: &ShortString) -> Result<(), AmqpError> {
        let fetched = self.inner.basic_get(queue.clone(), BasicGetOptions::default());
        let fetched = tokio::time::timeout(OPERATION, fetched).await;
        match fetched {
            Ok(Err(error)) => match error.kind() {
                ErrorKind::ProtocolError(protocol_error) if protocol_error.get_id() == NOT_IMPLEMENTED => {
                    Err(AmqpError::Stream)
                }
                _ => Err(AmqpError::at(Step::Work, &error)),
            },
            Ok(Ok(Some(fetched))) => {
                let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                let given_back = self.inner.basic_nack(fetched.delivery.delivery_tag, options);
                request(Step::Work, "requeue a message", given_back).await
            }
            Ok(Ok(None)) => Ok(()),
            Err(_) => Err(AmqpError::Timeout { operation: "return a message", after: OPERATION }),
        }
    }

    /// Closes the channel gracefully, within two seconds. Call this before the connection is closed.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE, self.inner.close(GOODBYE, "goodbye".into())).await;
    }
}

impl Consumer {
    /// Makes the consumer end with an error if the queue is a stream. The check uses `channel`, which must not
    /// be the consumer's channel.
    #[must_use]
    pub fn refusing_streams(mut self, channel: Channel, queue: &ShortString) -> Self {
        self.stream_probe = Some((channel, queue.clone()));
        self
    }

    /// Waits for the next message, without a timeout, because a queue may stay empty. Dropping the future
    /// loses no message.
    ///
    /// # Errors
    /// Fails if the consumer, its channel or its connection has ended, or the queue is a stream.
    pub async fn next(&mut self) -> Result<ConsumedMessage, AmqpError> {
        let received = match self.unverified.take() {
            Some(received) => received,
            None => self.receive().await?,
        };
        let probe = self.stream_probe.as_ref().filter(|_| has_stream_offset(&received.delivery));
        let Some((channel, queue)) = probe else { return Ok(received) };
        // Store the message, because the caller may drop this future at the next await.
        self.unverified = Some(received);
        channel.refuse_stream(queue).await?;
        self.stream_probe = None;
        self.unverified.take().ok_or(AmqpError::Cancelled)
    }

    async fn receive(&mut self) -> Result<ConsumedMessage, AmqpError> {
        match pin!(&mut self.inner).next().await {
            Some(Ok(delivery)) => {
                let corrections = self.notes.take_corrections(self.channel, delivery.delivery_tag);
                Ok(ConsumedMessage { delivery, corrections })
            }
            Some(Err(error)) => Err(AmqpError::at(Step::Work, &error)),
            None => Err(AmqpError::Cancelled),
        }
    }
}

/// True if a message has the header of a stream's messages. A publisher can set this header too.
fn has_stream_offset(delivery: &Delivery) -> bool {
    let headers = delivery.properties.headers().as_ref();
    headers.is_some_and(|headers| headers.contains_key(STREAM_OFFSET))
}

async fn request<T>(
    step: Step,
    operation: &'static str,
    future: impl Future<Output = lapin::Result<T>>,
) -> Result<T, AmqpError> {
    request_within(OPERATION, step, operation, future).await
}

async fn request_within<T>(
    bound: Duration,
    step: Step,
    operation: &'static str,
    future: impl Future<Output = lapin::Result<T>>,
) -> Result<T, AmqpError> {
    let future = async { future.await.map_err(|error| AmqpError::at(step, &error)) };
    with_timeout(bound, operation, future).await
}

async fn with_timeout<T>(
    bound: Duration,
    operation: &'static str,
    future: impl Future<Output = Result<T, AmqpError>>,
) -> Result<T, AmqpError> {
    let result = tokio::time::timeout(bound, future).await;
    result.unwrap_or(Err(AmqpError::Timeout { operation, after: bound }))
}
