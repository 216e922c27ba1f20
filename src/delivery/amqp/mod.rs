//! Publishes to an exchange of RabbitMQ, or of another AMQP 0-9-1 broker, with publisher confirms.
//!
//! A message is delivered when the broker has confirmed it and it has reached a queue. Messages are published
//! as `mandatory`. The broker also acknowledges returned messages, so an acknowledgement alone is not enough.
//!
//! Confirmations are awaited while more messages are sent, up to the window. After a nack, a lost connection or
//! a missing confirmation, all unconfirmed messages are sent again in order on a new connection. A new
//! connection is needed because a channel opened while a quorum queue had no leader receives nacks for its
//! whole life.

mod routing;
mod settings;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use lapin::{
    BasicProperties, Confirmation, PublisherConfirm,
    types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString},
};

use self::settings::{AmqpSettings, AmqpTable, Unroutable};
use super::{
    BoxFuture, Delivery, DeliveryError, DeliveryFuture, DeliveryKind, DeliveryOutcome, Outgoing, REPEAT_HEADER, Window,
};
use crate::{
    amqp::{AmqpError, Channel, Connection, Connector},
    format::{FormatKind, Header, HeaderProtocol, RoutedMessage},
    model::{Change, ItemChangeKind, SubscriptionName},
    text,
};

/// AMQP as a kind of delivery.
pub(super) static AMQP: DeliveryKind = DeliveryKind {
    name: "amqp",
    about: "publishes to an exchange of a RabbitMQ, or another AMQP 0-9-1 broker",
    has_routing_keys: true,
    settings: &settings::KEYS,
    parse: settings::parse,
};

/// Property `type`, for consumers that read several kinds of messages.
const MESSAGE_TYPE: &str = "content-change";

/// Property `app-id`, which names the publisher.
const APP_ID: &str = "tidings";

/// Header with the URI of the object or item, for messages whose format names it otherwise.
const RESOURCE: &str = "resource";

/// Delivery mode of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;

/// Interval of connection checks while nothing is sent.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time that a message waits for a blocked broker.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the broker's reason for a block, in characters.
const MAX_BLOCK_REASON: usize = 255;

struct Amqp {
    settings: Arc<AmqpSettings>,
    connector: Connector,
    session: Option<Arc<BrokerSession>>,
    /// Maximum body size of the broker, as far as it is known.
    max_body_bytes: Arc<AtomicUsize>,
}

/// A connection and the channel for publishing. Nothing else uses either of them.
struct BrokerSession {
    connection: Connection,
    channel: Channel,
}

/// A message for the broker.
struct Publication {
    /// Property `message-id`, the same in each repeat.
    id: String,
    key: ShortString,
    body: Bytes,
    properties: BasicProperties,
}

impl BrokerSession {
    /// Waits until the broker has been blocked for a while, because it is short of memory or disk. An unblocked
    /// broker has `confirm_seconds` to accept a large message.
    async fn blocked(&self) -> AmqpError {
        loop {
            tokio::time::sleep(BLOCKED_TIMEOUT).await;
            if self.connection.block().is_some() {
                return AmqpError::Timeout { operation: "accept a message", after: BLOCKED_TIMEOUT };
            }
        }
    }
}

impl Amqp {
    fn new(settings: Arc<AmqpSettings>, subscription: &SubscriptionName) -> Self {
        let name = format!("tidings subscription {subscription}");
        let connector = Connector::new(settings.address.clone(), &name, settings.ca.clone())
            .with_resolver(Arc::clone(&settings.resolver));
        let max_body_bytes = Arc::new(AtomicUsize::new(settings.table.max_message_bytes));
        Self { settings, connector, session: None, max_body_bytes }
    }

    async fn connect_and_declare(&mut self) -> Result<(), DeliveryError> {
        self.disconnect().await;
        let connection = self.connector.connect().await.map_err(delivery_error)?;
        let channel = connection.channel().await.map_err(delivery_error)?;
        let session = self.session.insert(Arc::new(BrokerSession { connection, channel }));
        let AmqpTable { exchange, queues, declare, .. } = &self.settings.table;
        session.channel.exchange(exchange, !declare).await.map_err(delivery_error)?;
        for queue in queues {
            session.channel.queue(&queue.name, queue.kind, !declare).await.map_err(delivery_error)?;
            for binding in queue.bindings.iter().filter(|_| *declare) {
                session.channel.bind(&queue.name, exchange, binding).await.map_err(delivery_error)?;
            }
        }
        session.channel.confirm().await.map_err(delivery_error)
    }

    /// Hands the messages of a change to the connection without waiting for the write or the confirmation, so that
    /// one system call can write many messages. The change is delivered when all its messages are.
    fn publish(&self, message: Outgoing) -> Result<DeliveryFuture, DeliveryError> {
        let Outgoing { change, format, body, is_repeat, .. } = message;
        let session = self.session.clone().ok_or_else(connection_lost)?;
        let change = change.change().map_err(delivery_error)?;
        let (properties, id) = (properties(change, format, is_repeat), change.modification.id);
        let Some(routed) = format.routed else {
            let key = self.settings.routing_key.fill(change);
            return Ok(self.publish_one(session, Publication { id: id.to_string(), key, body, properties }));
        };
        let publication = |(index, message): (usize, RoutedMessage)| {
            let RoutedMessage { routing_key, body, resource } = message;
            let mut headers = properties.headers().clone().unwrap_or_default();
            headers.insert(RESOURCE.into(), AMQPValue::LongString(resource.as_str().into()));
            let properties = properties.clone().with_headers(headers);
            // A repeat of the change has the same identifiers.
            Publication { id: format!("{id}#{index}"), key: routing_key.into(), body: body.into(), properties }
        };
        let publications = routed(change).into_iter().enumerate().map(publication);
        let pending: Vec<_> = publications.map(|message| self.publish_one(Arc::clone(&session), message)).collect();
        Ok(Box::pin(outcome_of_all(pending)))
    }

    /// Hands one message to the connection.
    fn publish_one(&self, session: Arc<BrokerSession>, publication: Publication) -> DeliveryFuture {
        let Publication { id, key, body, properties } = publication;
        let max_body_bytes = self.max_body_bytes.load(Ordering::Relaxed);
        if body.len() > max_body_bytes {
            let reason = format!(
                "the message has {} bytes; the maximum is {max_body_bytes} (max_message_bytes, or less if the broker \
                 refused a smaller message)",
                body.len()
            );
            return Box::pin(std::future::ready(DeliveryOutcome::Refused { reason }));
        }
        let properties = properties.with_message_id(short(&id));
        let (settings, max_body_bytes) = (Arc::clone(&self.settings), Arc::clone(&self.max_body_bytes));
        let mut pending: DeliveryFuture = Box::pin(async move {
            let patience = settings.window.outcome_timeout;
            let sending = session.channel.publish(&settings.table.exchange, &key, true, &body, properties, patience);
            let sent = tokio::select! {
                // Polled first, because messages are written in the order of their first polls.
                biased;
                sent = sending => sent,
                error = session.blocked() => Err(error),
            };
            drop(body);
            match sent {
                Ok(confirm) => {
                    outcome(confirm, || session.channel.take_return(&id), settings.table.unroutable, &max_body_bytes)
                        .await
                }
                Err(error) => failed_outcome(&error, &max_body_bytes),
            }
        });
        // Polled once here, because messages are written in the order of their first polls.
        match (&mut pending).now_or_never() {
            Some(outcome) => Box::pin(std::future::ready(outcome)),
            None => pending,
        }
    }

    async fn disconnect(&mut self) {
        if let Some(session) = self.session.take() {
            session.channel.close().await;
            session.connection.close().await;
        }
    }
}

impl Delivery for Amqp {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        Box::pin(self.connect_and_declare())
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        Box::pin(std::future::ready(self.publish(message)))
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        Box::pin(async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                if !self.session.as_ref().is_some_and(|session| session.connection.is_open()) {
                    return connection_lost();
                }
            }
        })
    }

    fn block(&self) -> Option<String> {
        let reason = self.session.as_ref()?.connection.block()?;
        Some(format!("the broker blocks publishers: {}", text::line(&reason, MAX_BLOCK_REASON)))
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.disconnect())
    }

    fn window(&self) -> Window {
        self.settings.window
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn delivery_error(error: impl ToString) -> DeliveryError {
    DeliveryError(error.to_string())
}

fn connection_lost() -> DeliveryError {
    DeliveryError("the connection to the broker is lost".to_owned())
}

/// Returns the outcome of a message that was not sent.
fn failed_outcome(error: &AmqpError, max_body_bytes: &AtomicUsize) -> DeliveryOutcome {
    let reason = error.to_string();
    learn_max_size(max_body_bytes, &reason);
    DeliveryOutcome::Retry { reason, after: None }
}

/// Returns the outcome of a message from its confirmation. `is_returned` reports whether the broker returned
/// the message; the return precedes the confirmation. The library's own pairing is not used: it matches returns
/// to confirmations by order only and may pick another message that was confirmed together with this one.
async fn outcome(
    confirm: PublisherConfirm,
    is_returned: impl FnOnce() -> bool,
    unroutable: Unroutable,
    max_body_bytes: &AtomicUsize,
) -> DeliveryOutcome {
    let retry = |reason: String| DeliveryOutcome::Retry { reason, after: None };
    match confirm.await {
        Ok(Confirmation::Ack(_)) if !is_returned() => DeliveryOutcome::Delivered,
        // The broker returned the message and acknowledges it all the same.
        Ok(Confirmation::Ack(_)) => match unroutable {
            Unroutable::Count => DeliveryOutcome::Unroutable,
            Unroutable::Hold => retry(
                "it reached no queue: no queue is bound to the exchange for its routing key; bind one, or set \
                 unroutable = \"count\""
                    .to_owned(),
            ),
        },
        Ok(Confirmation::Nack(_)) => retry("the broker could not accept it (nack)".to_owned()),
        Ok(Confirmation::NotRequested) => retry("the broker does not confirm messages".to_owned()),
        Err(error) => {
            let reason = error.to_string();
            learn_max_size(max_body_bytes, &reason);
            retry(format!("the connection to the broker failed: {reason}"))
        }
    }
}

/// Returns the outcome of a change from those of its messages: the first failure, or else `Delivered` unless a message
/// reached no queue.
async fn outcome_of_all(pending: Vec<DeliveryFuture>) -> DeliveryOutcome {
    let mut outcome = DeliveryOutcome::Delivered;
    for message in pending {
        match message.await {
            DeliveryOutcome::Delivered => {}
            DeliveryOutcome::Unroutable => outcome = DeliveryOutcome::Unroutable,
            failure => return failure,
        }
    }
    outcome
}

/// Learns the maximum message size from the error with which a broker closes the channel. The error does not
/// name the message. From then on, larger messages are refused here, and delivery continues.
fn learn_max_size(max_body_bytes: &AtomicUsize, reason: &str) {
    if let Some(max_size) = parse_max_size(reason) {
        max_body_bytes.fetch_min(max_size, Ordering::Relaxed);
    }
}

/// Parses `message size 200 is larger than configured max size 100` (RabbitMQ since 3.8) or `message size 200
/// larger than max size 100` (earlier versions).
fn parse_max_size(reason: &str) -> Option<usize> {
    let (_, rest) = reason.split_once("message size ")?;
    let (_, size) = rest.split_once("max size ")?;
    size.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn properties(change: &Change, format: &FormatKind, is_repeat: bool) -> BasicProperties {
    let modification = &change.modification;
    let properties = BasicProperties::default()
        .with_content_type(short(format.media_type))
        .with_type(short(MESSAGE_TYPE))
        .with_app_id(short(APP_ID))
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers(change, format, is_repeat));
    // AMQP timestamps are unsigned seconds since 1970.
    match u64::try_from(modification.time.millis() / 1000) {
        Ok(seconds) => properties.with_timestamp(seconds),
        Err(_) => properties,
    }
}

fn headers(change: &Change, format: &FormatKind, is_repeat: bool) -> FieldTable {
    let modification = &change.modification;
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let mut headers = FieldTable::default();
    headers.insert("seq".into(), AMQPValue::LongLongInt(i64::try_from(change.seq.0).unwrap_or(i64::MAX)));
    headers.insert("object".into(), text(modification.object.as_str()));
    headers.insert("source".into(), text(modification.origin.source.as_str()));
    let kinds = ItemChangeKind::among(change).into_iter().map(|kind| text(kind.as_str())).collect::<Vec<_>>();
    headers.insert("changes".into(), AMQPValue::FieldArray(FieldArray::from(kinds)));
    if change.settlement.is_late() {
        headers.insert("late".into(), AMQPValue::Boolean(true));
    }
    if is_repeat {
        headers.insert(REPEAT_HEADER.into(), AMQPValue::Boolean(true));
    }
    for Header { name, value } in format.headers(change, HeaderProtocol::Amqp) {
        headers.insert(short(&name), text(&value));
    }
    headers
}

/// Creates a short string. All strings here are below its limit of 255 bytes.
fn short(text: &str) -> ShortString {
    ShortString::from(text)
}

#[cfg(test)]
mod tests {
    use super::parse_max_size;

    #[test]
    fn max_size_is_parsed_from_the_error() {
        let error = "PRECONDITION_FAILED - message size 20480 is larger than configured max size 10240";
        assert_eq!(parse_max_size(error), Some(10240));
        assert_eq!(parse_max_size("message size 20480 larger than max size 7"), Some(7));
        assert_eq!(parse_max_size("PRECONDITION_FAILED - inequivalent arg 'type'"), None);
    }
}
