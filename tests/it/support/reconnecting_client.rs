//! Publisher and consumer that reconnect when their broker is killed and continue where they were, as clients
//! do that must not lose messages.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::FieldTable,
};
use tokio::time::timeout;

use crate::support::subscription_fixture::{seq, text};

/// Time limit for any operation of the broker; afterwards the client reconnects.
const OPERATION_LIMIT: Duration = Duration::from_secs(10);

/// Delay before the next attempt.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of unconfirmed published messages, and of unacknowledged consumed ones.
const WINDOW: usize = 500;

/// Number of messages in one acknowledgement.
const ACKNOWLEDGEMENT_BATCH: usize = 100;

/// Maximum lead of the publisher over the consumer, so that a killed process always has work in hand.
const MAX_LEAD: usize = 5000;

/// Shared progress of the publisher and the consumer.
#[derive(Default)]
pub(crate) struct Progress(Mutex<Counts>);

/// Counts of published and consumed messages.
#[derive(Default)]
pub(crate) struct Counts {
    /// Number of messages that the broker has confirmed to the publisher.
    pub(crate) confirmed: usize,
    /// Number of repeated publications.
    pub(crate) republished: usize,
    /// Messages of the consumer in the order of their arrival, including repeats.
    pub(crate) received: Vec<ReceivedMessage>,
    /// Message ids by change number, without repeats.
    pub(crate) ids: BTreeMap<u64, String>,
}

/// Consumed message.
pub(crate) struct ReceivedMessage {
    /// Number of the message's change.
    pub(crate) seq: u64,
    /// Message id.
    pub(crate) id: String,
    /// True if the broker delivered the message before, to a connection that has ended. The broker chooses when
    /// to repeat it: a restarted quorum queue delivers later messages first until it has noticed the end of the
    /// previous connection.
    pub(crate) redelivered: bool,
}

impl Progress {
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap()
    }

    fn record(&self, delivery: &Delivery) -> usize {
        let (seq, id) = (seq(delivery), text(delivery.properties.message_id().as_ref()).to_owned());
        let mut counts = self.counts();
        counts.received.push(ReceivedMessage { seq, id: id.clone(), redelivered: delivery.redelivered });
        counts.ids.entry(seq).or_insert(id);
        counts.ids.len()
    }
}

/// Failure of a connection, after which the client reconnects.
#[derive(Debug)]
struct ConnectionFailed;

impl From<lapin::Error> for ConnectionFailed {
    fn from(_: lapin::Error) -> Self {
        Self
    }
}

impl From<tokio::time::error::Elapsed> for ConnectionFailed {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self
    }
}

async fn open(url: &str) -> Result<(Connection, Channel), ConnectionFailed> {
    let connection = timeout(OPERATION_LIMIT, Connection::connect(url, ConnectionProperties::default())).await??;
    let channel = timeout(OPERATION_LIMIT, connection.create_channel()).await??;
    Ok((connection, channel))
}

/// Publishes the bodies until the broker has confirmed each of them. An unconfirmed message is published again
/// with the same bytes.
pub(crate) async fn publish(url: &str, exchange: &str, routing_key: &str, bodies: &[String], progress: &Progress) {
    let mut missing: VecDeque<usize> = (0..bodies.len()).collect();
    while !missing.is_empty() {
        let mut under_way = VecDeque::new();
        let _ = publish_on(url, exchange, routing_key, bodies, progress, &mut missing, &mut under_way).await;
        progress.counts().republished += under_way.len();
        while let Some(number) = under_way.pop_back() {
            missing.push_front(number);
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn publish_on(
    url: &str,
    exchange: &str,
    routing_key: &str,
    bodies: &[String],
    progress: &Progress,
    missing: &mut VecDeque<usize>,
    under_way: &mut VecDeque<usize>,
) -> Result<(), ConnectionFailed> {
    let (_connection, channel) = open(url).await?;
    timeout(OPERATION_LIMIT, channel.confirm_select(ConfirmSelectOptions::default())).await??;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(2);
    let mut confirms = VecDeque::new();
    loop {
        while under_way.len() < WINDOW
            && let Some(number) = missing.pop_front()
        {
            under_way.push_back(number);
            let body = bodies[number].as_bytes();
            let sent = channel.basic_publish(exchange.into(), routing_key.into(), options, body, properties.clone());
            confirms.push_back(timeout(OPERATION_LIMIT, sent).await??);
        }
        let Some(confirm) = confirms.pop_front() else { return Ok(()) };
        let Confirmation::Ack(None) = timeout(OPERATION_LIMIT, confirm).await?? else { return Err(ConnectionFailed) };
        under_way.pop_front();
        progress.counts().confirmed += 1;
        while {
            let counts = progress.counts();
            counts.confirmed > counts.ids.len() + MAX_LEAD
        } {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Consumes a queue until `count` different messages have arrived.
pub(crate) async fn consume(url: &str, queue: &str, count: usize, progress: &Progress) {
    while progress.counts().ids.len() < count {
        let _ = consume_on(url, queue, count, progress).await;
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn consume_on(url: &str, queue: &str, count: usize, progress: &Progress) -> Result<(), ConnectionFailed> {
    let (_connection, channel) = open(url).await?;
    let prefetch = u16::try_from(WINDOW).unwrap();
    timeout(OPERATION_LIMIT, channel.basic_qos(prefetch, BasicQosOptions::default())).await??;
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer =
        timeout(OPERATION_LIMIT, channel.basic_consume(queue.into(), "".into(), options, none)).await??;
    let mut unacknowledged = 0;
    while progress.counts().ids.len() < count {
        // The queue stays empty while another process is down, but a connection may also have stalled.
        let Some(delivery) = timeout(OPERATION_LIMIT, consumer.next()).await? else { return Err(ConnectionFailed) };
        let delivery = delivery?;
        progress.record(&delivery);
        unacknowledged += 1;
        if unacknowledged == ACKNOWLEDGEMENT_BATCH {
            timeout(OPERATION_LIMIT, delivery.ack(BasicAckOptions { multiple: true })).await??;
            unacknowledged = 0;
        }
    }
    Ok(())
}
