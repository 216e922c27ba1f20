//! A forwarder with nothing to it: it reads on one connection, publishes on another with confirms in a
//! window, and acknowledges many at once. It publishes what it has read straight to a queue; or, to tell what the
//! broker takes for what the gateway publishes, the like of that, through the same exchange.

use std::{borrow::Cow, collections::VecDeque};

use futures_util::{FutureExt, StreamExt};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties, PublisherConfirm,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldArray, FieldTable},
};
use tokio::sync::oneshot;

use super::yard::Yard;

/// How many messages may be read and not acknowledged, or published and not confirmed.
const WINDOW: u16 = 1000;

/// How many messages one acknowledgement is for, unless no more are there.
const ACKNOWLEDGED: usize = 200;

/// The length of the Atom of one of the messages.
const ATOM_LENGTH: usize = 2551;

/// What is published of a message that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    /// The same, by the default exchange.
    Same,
    /// As many bytes as the gateway's, with its properties and headers, by its topic exchange.
    AsTheGateway,
}

/// A forwarder that moves messages.
pub(crate) struct Bare {
    runtime: tokio::runtime::Runtime,
    stop: oneshot::Sender<()>,
    forwarding: tokio::task::JoinHandle<()>,
}

impl Bare {
    pub(crate) fn start(yard: &Yard<'_>, publishing: Publishing) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let forwarding = runtime.spawn(forward(yard.vhost.url(), publishing, stopped));
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
        read.basic_consume(Yard::IN.into(), "".into(), BasicConsumeOptions::default(), none).await.unwrap();
    let mut flight: VecDeque<(u64, PublisherConfirm)> = VecDeque::new();
    let (mut confirmed, mut last) = (0, 0);
    loop {
        tokio::select! {
            biased;
            // What is on its way is acknowledged first.
            _ = &mut stopped, if flight.is_empty() => break,
            Some(delivery) = consumer.next(), if flight.len() < usize::from(WINDOW) => {
                let delivery = delivery.unwrap();
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let (exchange, key) = match publishing {
                    Publishing::Same => ("", Yard::OUT),
                    Publishing::AsTheGateway => (Yard::CHANGES, "content.add.sfm"),
                };
                let (body, properties) = published(&delivery, publishing);
                let sent = write.basic_publish(exchange.into(), key.into(), options, &body, properties);
                flight.push_back((delivery.delivery_tag, sent.await.unwrap()));
            }
            confirm = async { (&mut flight.front_mut().unwrap().1).await }, if !flight.is_empty() => {
                landed(&confirm, &mut flight, &mut last);
                confirmed += 1;
                // Those behind it, as far as they are there.
                while let Some((_, next)) = flight.front_mut() {
                    let Some(confirm) = next.now_or_never() else { break };
                    landed(&confirm, &mut flight, &mut last);
                    confirmed += 1;
                }
                if confirmed >= ACKNOWLEDGED || flight.is_empty() {
                    read.basic_ack(last, BasicAckOptions { multiple: true }).await.unwrap();
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

fn landed(confirm: &lapin::Result<Confirmation>, flight: &mut VecDeque<(u64, PublisherConfirm)>, last: &mut u64) {
    assert!(matches!(confirm, Ok(Confirmation::Ack(None))), "{confirm:?}");
    *last = flight.pop_front().unwrap().0;
}
