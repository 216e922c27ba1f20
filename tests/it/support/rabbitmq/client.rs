//! AMQP client for tests.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::{
    BasicProperties, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
        QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};

use super::PATIENCE;

/// Connection that plays publishers to the gateway's queues and consumers of its messages.
pub(crate) struct Client {
    connection: lapin::Connection,
    channel: lapin::Channel,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = bounded(lapin::Connection::connect(url, lapin::ConnectionProperties::default())).await;
        let channel = bounded(connection.create_channel()).await;
        bounded(channel.confirm_select(ConfirmSelectOptions::default())).await;
        Self { connection, channel }
    }

    /// Declares a durable topic exchange.
    pub(crate) async fn exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        bounded(self.channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default())).await;
    }

    /// Declares a durable queue of that type, "quorum" or "classic".
    pub(crate) async fn queue(&self, name: &str, kind: &str) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        bounded(self.channel.queue_declare(name.into(), options, arguments)).await;
    }

    /// Binds a queue.
    pub(crate) async fn bind(&self, queue: &str, exchange: &str, binding: &str) {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        bounded(self.channel.queue_bind(queue.into(), exchange.into(), binding.into(), options, none)).await;
    }

    /// Deletes a queue with its messages.
    pub(crate) async fn delete_queue(&self, name: &str) {
        bounded(self.channel.queue_delete(name.into(), QueueDeleteOptions::default())).await;
    }

    /// Returns the number of messages that are ready for delivery. The count is repeated, because a busy broker
    /// waits a quarter of a second for a quorum queue and then reports zero.
    pub(crate) async fn waiting(&self, queue: &str) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        loop {
            let asked = Instant::now();
            let declared = self.channel.queue_declare(queue.into(), options, FieldTable::default());
            let count = bounded(declared).await.message_count();
            if count > 0 || asked.elapsed() < Duration::from_millis(250) {
                return count;
            }
        }
    }

    /// Publishes a persistent JSON message, and waits for the confirmation.
    pub(crate) async fn publish(&self, exchange: &str, routing_key: &str, body: impl AsRef<[u8]>) {
        let properties = BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(2);
        self.publish_with(exchange, routing_key, body, properties).await;
    }

    /// Publishes a message with properties that the test chooses.
    pub(crate) async fn publish_with(
        &self,
        exchange: &str,
        routing_key: &str,
        body: impl AsRef<[u8]>,
        properties: BasicProperties,
    ) {
        self.publish_all(exchange, routing_key, [body], &properties).await;
    }

    /// Publishes several messages and waits for all confirmations; each message must have reached a queue.
    pub(crate) async fn publish_all<B: AsRef<[u8]>>(
        &self,
        exchange: &str,
        routing_key: &str,
        bodies: impl IntoIterator<Item = B>,
        properties: &BasicProperties,
    ) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = Vec::new();
        for body in bodies {
            let (exchange, key) = (exchange.into(), routing_key.into());
            let sent = self.channel.basic_publish(exchange, key, options, body.as_ref(), properties.clone());
            confirms.push(bounded(sent).await);
        }
        for confirm in confirms {
            let confirmed = bounded(confirm).await;
            assert!(matches!(confirmed, lapin::Confirmation::Ack(None)), "{confirmed:?}");
        }
    }

    /// Consumes `count` messages of a queue and acknowledges them.
    pub(crate) async fn read(&self, queue: &str, count: usize) -> Vec<Delivery> {
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let mut consumer = bounded(self.channel.basic_consume(queue.into(), "".into(), options, none)).await;
        let mut read = Vec::new();
        while read.len() < count {
            let next = tokio::time::timeout(PATIENCE, consumer.next()).await;
            let next = next.unwrap_or_else(|_| panic!("{} of {count} messages came", read.len()));
            let delivery = next.unwrap().unwrap();
            bounded(delivery.ack(BasicAckOptions::default())).await;
            read.push(delivery);
        }
        bounded(self.channel.basic_cancel(consumer.tag(), lapin::options::BasicCancelOptions::default())).await;
        read
    }

    /// Returns the channel, for operations that this client does not wrap.
    #[allow(dead_code, reason = "the benches have use for it")]
    pub(crate) fn channel(&self) -> &lapin::Channel {
        &self.channel
    }

    /// Closes the connection cleanly.
    pub(crate) async fn close(self) {
        let _ = tokio::time::timeout(PATIENCE, self.channel.close(200, "".into())).await;
        let _ = tokio::time::timeout(PATIENCE, self.connection.close(200, "".into())).await;
    }
}

async fn bounded<T>(done: impl IntoFuture<Output = lapin::Result<T>>) -> T {
    tokio::time::timeout(PATIENCE, done.into_future()).await.expect("the broker answers").unwrap()
}
