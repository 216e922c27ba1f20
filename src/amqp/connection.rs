//! A connection to a broker, its channels and its consumers, every wait of which ends.

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
    address::Address,
    error::{AmqpError, Step},
    frames::{Correction, Notes},
    socket,
};
use crate::broker::{Resolver, SocketGuard, system_resolver};

/// How long a connection may take to be made, from the name of the host to the virtual host.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the broker may take to do what it is asked.
const OPERATION: Duration = Duration::from_secs(10);

/// How long a channel or a connection may take to be closed in good order.
const CLOSE: Duration = Duration::from_secs(2);

/// How often either side says that it is there, in seconds. A broker that is frozen, or that the
/// network has swallowed, is found out after twice that.
pub(super) const HEARTBEAT_SECONDS: u16 = 5;

/// AMQP's reply code for an end in good order.
const GOODBYE: u16 = 200;

/// How connections to one broker are made.
#[derive(Clone)]
pub struct Connector {
    address: Address,
    name: String,
    ca: Option<PathBuf>,
    resolver: Resolver,
}

/// A connection. When it is dropped its socket is closed, whatever the broker does.
///
/// Its channels are to be closed before it: the library's own close hangs now and then where a channel
/// was only let go. Here such a close ends at its bound.
pub struct Connection {
    inner: lapin::Connection,
    notes: Notes,
    /// After `inner`, so that what is said last is said before.
    _guard: SocketGuard,
}

/// A channel of a connection.
///
/// After any error it is to be let go of, and its connection with it: on a channel that was opened
/// while a quorum queue had no leader, RabbitMQ answers nack for as long as the channel lives.
#[derive(Clone)]
pub struct Channel {
    inner: lapin::Channel,
    notes: Notes,
}

/// The messages of a queue, as they come.
pub struct Consumer {
    inner: lapin::Consumer,
    channel: u16,
    notes: Notes,
    /// Tells a stream from a queue, until that is known.
    stream_probe: Option<(Channel, ShortString)>,
    /// The message that came while the probe was being made.
    unverified: Option<Received>,
}

/// A message of a queue.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub delivery: Delivery,
    /// What had to be corrected in it before the library could parse it; its content is not as it was published then.
    pub corrections: Vec<Correction>,
}

/// The header that the broker gives each message of a stream.
const STREAM_OFFSET: &str = "x-stream-offset";

/// AMQP's reply code for what the broker does not do with a queue of that type.
const NOT_IMPLEMENTED: u16 = 540;

named_values! {
    /// How a queue is kept by the broker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum QueueType {
        /// On several nodes, where there are several; every message is on disk.
        Quorum = "quorum",
        /// On one node.
        Classic = "classic",
    }
}

impl Connector {
    /// For the broker at `address`. The broker shows its administrator the connections under `name`.
    /// With `ca`, certificates are checked against the authority in that PEM file, and else against those
    /// that the operating system trusts.
    #[must_use]
    pub fn new(address: Address, name: &str, ca: Option<PathBuf>) -> Self {
        Self { address, name: name.to_owned(), ca, resolver: system_resolver() }
    }

    /// The same, with connections to those addresses alone that `resolver` finds.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Where they go.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Makes a connection, within ten seconds.
    ///
    /// # Errors
    /// When there is none; nothing of the attempt stays behind.
    pub async fn connect(&self) -> Result<Connection, AmqpError> {
        let properties = ConnectionProperties::default()
            .with_connection_name(self.name.as_str().into())
            .with_client_property("product".into(), "tidings".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
        // The future holds the library's, which is large.
        let (ca, notes) = (self.ca.as_deref(), Notes::default());
        let connected = Box::pin(socket::connect(&self.address, ca, &self.resolver, properties, notes.clone()));
        let (inner, guard) = within(CONNECT, "let the gateway in", connected).await?;
        Ok(Connection { inner, notes, _guard: guard })
    }
}

impl Connection {
    /// Opens a channel.
    ///
    /// # Errors
    /// When the broker does not, or not in time.
    pub async fn channel(&self) -> Result<Channel, AmqpError> {
        asked(Step::Work, "open a channel", self.inner.create_channel()).await.map(|inner| {
            let notes = self.notes.clone();
            Channel { inner, notes }
        })
    }

    /// Whether the broker takes nothing at present, since it is short of memory or disk. It says so to
    /// those connections alone that publish.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.inner.status().blocked()
    }

    /// Whether it is there, as far as is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.inner.status().connected()
    }

    /// Says goodbye, for two seconds at most. The socket is closed when this is dropped.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE, self.inner.close(GOODBYE, "goodbye".into())).await;
    }
}

impl Channel {
    /// Declares a durable topic exchange, or with `passive` sees whether there is an exchange of that
    /// name, of any kind.
    ///
    /// # Errors
    /// When there is none, or one of another kind, or the user may not.
    pub async fn exchange(&self, name: &ShortString, passive: bool) -> Result<(), AmqpError> {
        let options = ExchangeDeclareOptions { passive, durable: true, ..ExchangeDeclareOptions::default() };
        let declared = self.inner.exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default());
        asked(Step::Declare, "declare an exchange", declared).await
    }

    /// Declares a durable queue, or with `passive` sees whether there is a queue of that name, of any
    /// type. Returns the number of its consumers.
    ///
    /// # Errors
    /// As [`Channel::exchange`].
    pub async fn queue(&self, name: &ShortString, kind: QueueType, passive: bool) -> Result<u32, AmqpError> {
        let options = QueueDeclareOptions { passive, durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.name().into()));
        let declared = self.inner.queue_declare(name.clone(), options, arguments);
        asked(Step::Declare, "declare a queue", declared).await.map(|queue| queue.consumer_count())
    }

    /// Has an exchange send the queue what has a routing key that fits `binding`.
    ///
    /// # Errors
    /// When either is not there, or the user may not.
    pub async fn bind(
        &self,
        queue: &ShortString,
        exchange: &ShortString,
        binding: &ShortString,
    ) -> Result<(), AmqpError> {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound = self.inner.queue_bind(queue.clone(), exchange.clone(), binding.clone(), options, none);
        asked(Step::Declare, "bind a queue", bound).await
    }

    /// Begins to take messages of a queue: up to `prefetch` of them come before one is acknowledged.
    ///
    /// # Errors
    /// When there is no such queue, or the user may not read it.
    pub async fn consume(&self, queue: &ShortString, prefetch: u16) -> Result<Consumer, AmqpError> {
        let bounded = self.inner.basic_qos(prefetch, BasicQosOptions::default());
        asked(Step::Work, "bound what it sends", bounded).await?;
        let options = BasicConsumeOptions::default();
        let consumed = self.inner.basic_consume(queue.clone(), ShortString::default(), options, FieldTable::default());
        let inner = asked(Step::Declare, "send the messages of a queue", consumed).await?;
        let (channel, notes) = (self.inner.id(), self.notes.clone());
        Ok(Consumer { inner, channel, notes, stream_probe: None, unverified: None })
    }

    /// Ends a consumer: no further message comes, but those that were on their way.
    ///
    /// # Errors
    /// When the broker does not, or not in time.
    pub async fn cancel(&self, consumer: &Consumer) -> Result<(), AmqpError> {
        let cancelled = self.inner.basic_cancel(consumer.inner.tag(), BasicCancelOptions::default());
        asked(Step::Work, "send no more messages", cancelled).await
    }

    /// Acknowledges the message with that delivery tag and all before it.
    ///
    /// # Errors
    /// When the connection is gone. Then the broker delivers them again.
    pub async fn acknowledge_up_to(&self, tag: u64) -> Result<(), AmqpError> {
        let acknowledged = self.inner.basic_ack(tag, BasicAckOptions { multiple: true });
        asked(Step::Work, "take an acknowledgement", acknowledged).await
    }

    /// Has the broker confirm what is published from now on.
    ///
    /// # Errors
    /// When the broker does not, or not in time.
    pub async fn confirm(&self) -> Result<(), AmqpError> {
        let options = ConfirmSelectOptions::default();
        asked(Step::Work, "confirm messages", self.inner.confirm_select(options)).await
    }

    /// Hands a message to the connection with the first poll, and waits until it is written: messages go out
    /// in the order of their first polls, and those that wait at once go together. Whether it arrived is told by the confirmation, whose wait is
    /// for the caller to bound. With `mandatory` a message that reaches no queue comes back with its
    /// confirmation, which is an acknowledgement too.
    ///
    /// # Errors
    /// When the connection is gone, or has not taken the message after `bound`, as while it is blocked.
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
        asked_within(bound, Step::Work, "take a message", sent).await
    }

    /// Whether the broker returned the message with that identifier, since it reached no queue. The answer is final
    /// once the message is confirmed, and is given once.
    #[must_use]
    pub fn take_return(&self, message_id: &str) -> bool {
        self.notes.take_return(self.inner.id(), message_id)
    }

    /// Asks for one message of a queue, which the broker does not give of a stream, and gives the message back.
    async fn refuse_stream(&self, queue: &ShortString) -> Result<(), AmqpError> {
        let got = self.inner.basic_get(queue.clone(), BasicGetOptions::default());
        let got = tokio::time::timeout(OPERATION, got).await;
        match got {
            Ok(Err(error)) => match error.kind() {
                ErrorKind::ProtocolError(told) if told.get_id() == NOT_IMPLEMENTED => Err(AmqpError::Stream),
                _ => Err(AmqpError::at(Step::Work, &error)),
            },
            Ok(Ok(Some(got))) => {
                let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                let given_back = self.inner.basic_nack(got.delivery.delivery_tag, options);
                asked(Step::Work, "take a message back", given_back).await
            }
            Ok(Ok(None)) => Ok(()),
            Err(_) => Err(AmqpError::Silent { asked: "give a message", after: OPERATION }),
        }
    }

    /// Says goodbye, for two seconds at most. It is to be called before the connection is closed.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE, self.inner.close(GOODBYE, "goodbye".into())).await;
    }
}

impl Consumer {
    /// Has the consumer end with an error where the queue turns out to be a stream, which it asks on `channel`, another
    /// one than its own.
    #[must_use]
    pub fn refusing_streams(mut self, channel: Channel, queue: &ShortString) -> Self {
        self.stream_probe = Some((channel, queue.clone()));
        self
    }

    /// The next message. This wait has no bound: a queue may be empty for ever. Dropping the future
    /// loses no message.
    ///
    /// # Errors
    /// When the consumer, its channel or its connection has ended, or the queue is a stream.
    pub async fn next(&mut self) -> Result<Received, AmqpError> {
        let received = match self.unverified.take() {
            Some(received) => received,
            None => self.receive().await?,
        };
        let probe = self.stream_probe.as_ref().filter(|_| has_stream_offset(&received.delivery));
        let Some((channel, queue)) = probe else { return Ok(received) };
        // The message is kept here, so that it is not lost where this future is dropped at the next line.
        self.unverified = Some(received);
        channel.refuse_stream(queue).await?;
        self.stream_probe = None;
        self.unverified.take().ok_or(AmqpError::Cancelled)
    }

    async fn receive(&mut self) -> Result<Received, AmqpError> {
        match pin!(&mut self.inner).next().await {
            Some(Ok(delivery)) => {
                let corrections = self.notes.take_corrections(self.channel, delivery.delivery_tag);
                Ok(Received { delivery, corrections })
            }
            Some(Err(error)) => Err(AmqpError::at(Step::Work, &error)),
            None => Err(AmqpError::Cancelled),
        }
    }
}

/// Whether a message has the header of those of a stream. A publisher can set it too.
fn has_stream_offset(delivery: &Delivery) -> bool {
    let headers = delivery.properties.headers().as_ref();
    headers.is_some_and(|headers| headers.contains_key(STREAM_OFFSET))
}

async fn asked<T>(
    step: Step,
    what: &'static str,
    answered: impl Future<Output = lapin::Result<T>>,
) -> Result<T, AmqpError> {
    asked_within(OPERATION, step, what, answered).await
}

async fn asked_within<T>(
    bound: Duration,
    step: Step,
    what: &'static str,
    answered: impl Future<Output = lapin::Result<T>>,
) -> Result<T, AmqpError> {
    let answered = async { answered.await.map_err(|error| AmqpError::at(step, &error)) };
    within(bound, what, answered).await
}

async fn within<T>(
    bound: Duration,
    asked: &'static str,
    answered: impl Future<Output = Result<T, AmqpError>>,
) -> Result<T, AmqpError> {
    let answered = tokio::time::timeout(bound, answered).await;
    answered.unwrap_or(Err(AmqpError::Silent { asked, after: bound }))
}
