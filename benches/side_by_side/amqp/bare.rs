//! Minimal forwarder: it consumes on one connection, publishes on another with a window of confirms, and acknowledges
//! many messages together. It publishes either the consumed message to a queue, or a message like those of the
//! gateway through the same exchange, to measure the cost of such messages in the broker.

use std::{borrow::Cow, collections::VecDeque};

use futures_util::{FutureExt, StreamExt};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties, PublisherConfirm,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldArray, FieldTable},
};
use tokio::sync::oneshot;

use super::queue_pair::QueuePair;

/// Maximum number of unacknowledged messages, and of unconfirmed messages.
const WINDOW: u16 = 1000;

/// Number of messages per acknowledgement, or fewer if no more are in in_flight.
const ACK_BATCH: usize = 200;

/// Length of a message as Atom, in bytes.
const ATOM_LENGTH: usize = 2551;

/// Message that the forwarder publishes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    /// The consumed message, to the default exchange.
    Same,
    /// A message with the size, properties and headers of the gateway, to its topic exchange.
    LikeGateway,
}

/// Running forwarder.
pub(crate) struct BareForwarder {
    runtime: tokio::runtime::Runtime,
    stop: oneshot::Sender<()>,
    forwarding: tokio::task::JoinHandle<()>,
}

impl BareForwarder {
    pub(crate) fn start(queues: &QueuePair<'_>, publishing: Publishing) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let forwarding = runtime.spawn(forward(queues.vhost.url(), publishing, stopped));
        Self { runtime, stop, forwarding }
    }

    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        self.runtime.block_on(self.forwarding).unwrap();
    }
}

async fn forward(url: String, publishing: Publishing, mut stopped: oneshot::Receiver<()>) {
    let reading = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let read = reading.create_channel().await.unwrap();
    let writing = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let write = writing.create_channel().await.unwrap();
    write.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    read.basic_qos(WINDOW, BasicQosOptions::default()).await.unwrap();
    let none = FieldTable::default();
    let mut consumer =
        read.basic_consume(QueuePair::IN.into(), "".into(), BasicConsumeOptions::default(), none).await.unwrap();
    let mut in_flight: VecDeque<(u64, PublisherConfirm)> = VecDeque::new();
    let (mut confirmed, mut last_tag) = (0, 0);
    loop {
        tokio::select! {
            biased;
            // Messages in in_flight are acknowledged before the forwarder stops.
            _ = &mut stopped, if in_flight.is_empty() => break,
            Some(delivery) = consumer.next(), if in_flight.len() < usize::from(WINDOW) => {
                let delivery = delivery.unwrap();
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let (exchange, key) = match publishing {
                    Publishing::Same => ("", QueuePair::OUT),
                    Publishing::LikeGateway => (QueuePair::CHANGES, "content.add.sfm"),
                };
                let (body, properties) = published(&delivery, publishing);
                let sent = write.basic_publish(exchange.into(), key.into(), options, &body, properties);
                in_flight.push_back((delivery.delivery_tag, sent.await.unwrap()));
            }
            confirm = async { (&mut in_flight.front_mut().unwrap().1).await }, if !in_flight.is_empty() => {
                record_confirm(&confirm, &mut in_flight, &mut last_tag);
                confirmed += 1;
                // Further confirms that have arrived already.
                while let Some((_, next)) = in_flight.front_mut() {
                    let Some(confirm) = next.now_or_never() else { break };
                    record_confirm(&confirm, &mut in_flight, &mut last_tag);
                    confirmed += 1;
                }
                if confirmed >= ACK_BATCH || in_flight.is_empty() {
                    read.basic_ack(last_tag, BasicAckOptions { multiple: true }).await.unwrap();
                    confirmed = 0;
                }
            }
        }
    }
    for channel in [read, write] {
        channel.close(200, "".into()).await.unwrap();
    }
    for connection in [reading, writing] {
        connection.close(200, "".into()).await.unwrap();
    }
}

fn published(read: &Delivery, publishing: Publishing) -> (Cow<'_, [u8]>, BasicProperties) {
    let persistent = BasicProperties::default().with_delivery_mode(2);
    if publishing == Publishing::Same {
        return (Cow::Borrowed(&read.data), persistent.with_content_type("application/json".into()));
    }
    let mut body = read.data.clone();
    body.resize(ATOM_LENGTH, b' ');
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut headers = FieldTable::default();
    headers.insert("seq".into(), AMQPValue::LongLongInt(read.delivery_tag as i64));
    headers
        .insert("object".into(), text("https://sfm.example.org/api/v1/collections/0123456789abcdef0123456789abcdef/"));
    headers.insert("source".into(), text("sfm"));
    headers.insert("changes".into(), AMQPValue::FieldArray(FieldArray::from(vec![text("ADD")])));
    let properties = persistent
        .with_message_id(format!("urn:uuid:01a20147-1ffb-77f9-a1ef-{:012x}", read.delivery_tag).into())
        .with_content_type("application/atom+xml;type=feed".into())
        .with_type("content-change".into())
        .with_app_id("tidings".into())
        .with_timestamp(1_700_000_000)
        .with_headers(headers);
    (Cow::Owned(body), properties)
}

fn record_confirm(
    confirm: &lapin::Result<Confirmation>,
    in_flight: &mut VecDeque<(u64, PublisherConfirm)>,
    last_tag: &mut u64,
) {
    assert!(matches!(confirm, Ok(Confirmation::Ack(None))), "{confirm:?}");
    *last_tag = in_flight.pop_front().unwrap().0;
}
