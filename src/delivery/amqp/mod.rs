//! Pushing to a RabbitMQ exchange, or that of another AMQP 0-9-1 broker, with publisher confirms.
//!
//! A message counts as delivered when the broker has confirmed it and it has reached a queue: it is
//! published as `mandatory`, and what comes back is acknowledged too, so that an acknowledgement
//! alone says little. Confirmations are awaited while more is sent, up to the window. After a nack, a
//! lost connection or a confirmation that does not come, everything that is not confirmed is sent
//! again, in order, on a new connection: a channel that was opened while a quorum queue had no leader
//! is answered with nacks for as long as it lives.

mod routing;
mod settings;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use lapin::{
    BasicProperties, Confirmation, PublisherConfirm,
    types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString},
};

use self::settings::{Settings, Unroutable};
use super::{Delivery, DeliveryError, DeliveryKind, Doing, Outcome, Outgoing, Pending, Window};
use crate::{
    amqp::{AmqpError, Channel, Connection, Connector},
    format::{Carrier, FormatKind, Header},
    model::{Change, ItemChangeKind, SubscriptionName},
};

/// AMQP as a delivery.
pub(super) static AMQP: DeliveryKind = DeliveryKind {
    name: "amqp",
    about: "publishes to an exchange of a RabbitMQ, or another AMQP 0-9-1 broker",
    keys: &settings::KEYS,
    read: settings::read,
};

/// What a message is, to a consumer that reads several kinds (the property `type`).
const MESSAGE_TYPE: &str = "content-change";

/// Who publishes (the property `app-id`).
const APP_ID: &str = "tidings";

/// Messages are to outlive the broker.
const PERSISTENT: u8 = 2;

/// How often the connection is looked at while nothing is sent.
const LOOK: Duration = Duration::from_secs(1);

/// How long a message waits for a broker that takes nothing.
const BLOCKED: Duration = Duration::from_secs(10);

struct Amqp {
    settings: Arc<Settings>,
    connector: Connector,
    line: Option<Arc<Line>>,
    /// The largest body that the broker takes, once it has told.
    largest: Arc<AtomicUsize>,
}

/// A connection with the channel that is published on. Nothing else uses either.
struct Line {
    connection: Connection,
    channel: Channel,
}

impl Line {
    /// Waits until the broker has taken nothing for a while, because it is short of memory or disk. A broker that has
    /// room may take a large message for as long as `confirm_seconds` says.
    async fn blocked(&self) -> AmqpError {
        loop {
            tokio::time::sleep(BLOCKED).await;
            if self.connection.is_blocked() {
                return AmqpError::Timeout { operation: "accept a message", after: BLOCKED };
            }
        }
    }
}

impl Amqp {
    fn new(settings: Arc<Settings>, subscription: &SubscriptionName) -> Self {
        let name = format!("tidings subscription {subscription}");
        let connector = Connector::new(settings.address.clone(), &name, settings.ca.clone())
            .with_resolver(Arc::clone(&settings.resolver));
        let largest = Arc::new(AtomicUsize::new(settings.max_message_bytes));
        Self { settings, connector, line: None, largest }
    }

    async fn set_up(&mut self) -> Result<(), DeliveryError> {
        self.hang_up().await;
        let connection = self.connector.connect().await.map_err(failed)?;
        let channel = connection.channel().await.map_err(failed)?;
        let line = self.line.insert(Arc::new(Line { connection, channel }));
        let Settings { exchange, queues, declare, .. } = &*self.settings;
        line.channel.exchange(exchange, !declare).await.map_err(failed)?;
        for queue in queues {
            line.channel.queue(&queue.name, queue.kind, !declare).await.map_err(failed)?;
            for binding in queue.bindings.iter().filter(|_| *declare) {
                line.channel.bind(&queue.name, exchange, binding).await.map_err(failed)?;
            }
        }
        line.channel.confirm().await.map_err(failed)
    }

    /// Hands a message to the connection, and waits neither for it to be written nor for its confirmation:
    /// what is written together costs one call of the system, and not one for each message.
    fn publish(&mut self, message: Outgoing) -> Result<Pending, DeliveryError> {
        let Outgoing { change, format, body, .. } = message;
        let largest = self.largest.load(Ordering::Relaxed);
        if body.len() > largest {
            let reason = format!("it has {} bytes, and the broker takes {largest} at most", body.len());
            return Ok(Box::pin(std::future::ready(Outcome::Refused { reason })));
        }
        let line = self.line.clone().ok_or_else(gone)?;
        let change = change.change().map_err(failed)?;
        let key = self.settings.routing_key.fill(change);
        let properties = properties(change, format);
        let id = change.modification.id.to_string();
        let (settings, largest) = (Arc::clone(&self.settings), Arc::clone(&self.largest));
        let mut pending: Pending = Box::pin(async move {
            let patience = settings.window.patience;
            let sending = line.channel.publish(&settings.exchange, &key, true, &body, properties, patience);
            let sent = tokio::select! {
                // Polled first, since messages go out in the order of their first polls.
                biased;
                sent = sending => sent,
                error = line.blocked() => Err(error),
            };
            drop(body);
            match sent {
                Ok(confirm) => outcome(confirm, || line.channel.take_return(&id), settings.unroutable, &largest).await,
                Err(error) => not_sent(&line, &error, &largest),
            }
        });
        // Messages go out in the order of their first polls.
        Ok(match (&mut pending).now_or_never() {
            Some(outcome) => Box::pin(std::future::ready(outcome)),
            None => pending,
        })
    }

    async fn hang_up(&mut self) {
        if let Some(line) = self.line.take() {
            line.channel.close().await;
            line.connection.close().await;
        }
    }
}

impl Delivery for Amqp {
    fn connect(&mut self) -> Doing<'_, Result<(), DeliveryError>> {
        Box::pin(self.set_up())
    }

    fn send(&mut self, message: Outgoing) -> Doing<'_, Result<Pending, DeliveryError>> {
        Box::pin(std::future::ready(self.publish(message)))
    }

    fn failed(&mut self) -> Doing<'_, DeliveryError> {
        Box::pin(async {
            loop {
                tokio::time::sleep(LOOK).await;
                if !self.line.as_ref().is_some_and(|line| line.connection.is_open()) {
                    return gone();
                }
            }
        })
    }

    fn close(&mut self) -> Doing<'_, ()> {
        Box::pin(self.hang_up())
    }

    fn window(&self) -> Window {
        self.settings.window
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn failed(error: impl ToString) -> DeliveryError {
    DeliveryError(error.to_string())
}

fn gone() -> DeliveryError {
    DeliveryError("the connection to the broker is gone".to_owned())
}

/// Why a message was not taken. A broker that is short of memory or disk says so to those who publish, and
/// takes nothing.
fn not_sent(line: &Line, error: &AmqpError, largest: &AtomicUsize) -> Outcome {
    let mut reason = error.to_string();
    learn(largest, &reason);
    if line.connection.is_blocked() {
        reason.push_str(": the broker is short of memory or disk, and takes no messages until it has room again");
    }
    Outcome::Retry { reason, after: None }
}

/// The outcome of a message by its confirmation. `is_returned` says whether the broker returned the message, which it
/// does before it confirms it. The library pairs returned messages with confirmations by their order alone, so that
/// it may name another one of those that are confirmed together.
async fn outcome(
    confirm: PublisherConfirm,
    is_returned: impl FnOnce() -> bool,
    unroutable: Unroutable,
    largest: &AtomicUsize,
) -> Outcome {
    let retry = |reason: String| Outcome::Retry { reason, after: None };
    match confirm.await {
        Ok(Confirmation::Ack(_)) if !is_returned() => Outcome::Delivered,
        // It came back, and is acknowledged all the same.
        Ok(Confirmation::Ack(_)) => match unroutable {
            Unroutable::Count => Outcome::Unroutable,
            Unroutable::Hold => retry(
                "it reached no queue: no queue is bound to the exchange for its routing key; bind one, or set \
                 unroutable = \"count\""
                    .to_owned(),
            ),
        },
        Ok(Confirmation::Nack(_)) => retry("the broker could not take it (nack)".to_owned()),
        Ok(Confirmation::NotRequested) => retry("the broker confirms nothing".to_owned()),
        Err(error) => {
            let reason = error.to_string();
            learn(largest, &reason);
            retry(format!("the connection to the broker broke: {reason}"))
        }
    }
}

/// A broker closes the channel when a message is larger than it takes, and does not say which it was;
/// but it says how much it takes. From then on such a message is refused here, and the rest goes on.
fn learn(largest: &AtomicUsize, reason: &str) {
    if let Some(told) = told_size(reason) {
        largest.fetch_min(told, Ordering::Relaxed);
    }
}

/// `message size 200 is larger than configured max size 100` (RabbitMQ's channel, since 3.8), or
/// `message size 200 larger than max size 100` (before).
fn told_size(reason: &str) -> Option<usize> {
    let (_, told) = reason.split_once("message size ")?;
    let (_, told) = told.split_once("max size ")?;
    told.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn properties(change: &Change, format: &FormatKind) -> BasicProperties {
    let told = &change.modification;
    let properties = BasicProperties::default()
        .with_message_id(short(&told.id.to_string()))
        .with_content_type(short(format.media_type))
        .with_type(short(MESSAGE_TYPE))
        .with_app_id(short(APP_ID))
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers(change, format));
    // The protocol counts seconds since 1970, and has no time before.
    match u64::try_from(told.time.millis() / 1000) {
        Ok(seconds) => properties.with_timestamp(seconds),
        Err(_) => properties,
    }
}

fn headers(change: &Change, format: &FormatKind) -> FieldTable {
    let told = &change.modification;
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let mut headers = FieldTable::default();
    headers.insert("seq".into(), AMQPValue::LongLongInt(i64::try_from(change.seq.0).unwrap_or(i64::MAX)));
    headers.insert("object".into(), text(told.object.as_str()));
    headers.insert("source".into(), text(told.origin.source.as_str()));
    let kinds = ItemChangeKind::among(&told.items).into_iter().map(|kind| text(kind.as_str())).collect::<Vec<_>>();
    headers.insert("changes".into(), AMQPValue::FieldArray(FieldArray::from(kinds)));
    for Header { name, value } in format.headers(change, Carrier::Amqp) {
        headers.insert(short(&name), text(&value));
    }
    headers
}

/// A short string has at most 255 bytes; all that are made here are shorter.
fn short(text: &str) -> ShortString {
    ShortString::from(text)
}

#[cfg(test)]
mod tests {
    use super::told_size;

    #[test]
    fn a_broker_tells_how_much_it_takes() {
        let told = "PRECONDITION_FAILED - message size 20480 is larger than configured max size 10240";
        assert_eq!(told_size(told), Some(10240));
        assert_eq!(told_size("message size 20480 larger than max size 7"), Some(7));
        assert_eq!(told_size("PRECONDITION_FAILED - inequivalent arg 'type'"), None);
    }
}
