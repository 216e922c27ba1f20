//! The queues between which messages are moved, with functions to fill and observe them.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use lapin::{BasicProperties, options::QueuePurgeOptions};

use super::{
    messages::{KEY, message},
    processor::{ProcessorTime, used_by},
};
use crate::rabbitmq::{Broker, Client, Vhost};

/// Interval between two polls of the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Number of messages in flight while a queue is filled.
const FILL_BATCH: u64 = 1000;

/// Two queues of the same type, in a virtual host of their own.
pub(crate) struct QueuePair<'b> {
    pub(crate) broker: &'b Broker,
    pub(crate) vhost: Vhost<'b>,
    pub(crate) kind: &'static str,
    pub(crate) runtime: tokio::runtime::Runtime,
    client: Client,
    next: Cell<u64>,
}

impl<'b> QueuePair<'b> {
    /// Exchange that is bound to [`QueuePair::IN`].
    pub(crate) const EXCHANGE: &'static str = "sfm_exchange";
    /// Queue that contenders consume.
    pub(crate) const IN: &'static str = "in";
    /// Exchange that the gateway publishes to.
    pub(crate) const CHANGES: &'static str = "content.changes";
    /// Queue that contenders publish to.
    pub(crate) const OUT: &'static str = "out";

    pub(crate) fn new(broker: &'b Broker, kind: &'static str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let vhost = broker.vhost();
        let client = runtime.block_on(async {
            let client = vhost.client().await;
            for (exchange, queue) in [(Self::EXCHANGE, Self::IN), (Self::CHANGES, Self::OUT)] {
                client.exchange(exchange).await;
                client.queue(queue, kind).await;
                client.bind(queue, exchange, "#").await;
            }
            client
        });
        Self { broker, vhost, kind, runtime, client, next: Cell::new(0) }
    }

    /// Returns the numbers of `count` new messages.
    pub(crate) fn numbers(&self, count: u64) -> std::ops::Range<u64> {
        let from = self.next.replace(self.next.get() + count);
        from..from + count
    }

    /// Fills [`QueuePair::IN`] with `count` messages.
    pub(crate) fn fill(&self, count: u64) {
        let numbers = self.numbers(count);
        self.runtime.block_on(async {
            for from in numbers.clone().step_by(FILL_BATCH as usize) {
                let messages = (from..numbers.end.min(from + FILL_BATCH)).map(message);
                self.client.publish_all(Self::EXCHANGE, KEY, messages, &properties()).await;
            }
        });
    }

    /// Waits until [`QueuePair::OUT`] has `count` messages. Returns, from the first observed message on: the number of
    /// messages, the elapsed time, and the processor time.
    pub(crate) fn wait_for(&self, count: u64, process: Option<u32>) -> (u64, Duration, ProcessorTime) {
        let used = || (process.and_then(used_by), used_by(self.broker.process.id().parse().unwrap()));
        let first = self.wait_until(|there| there > 0);
        let (began, (own, broker)) = (Instant::now(), used());
        let last = self.wait_until(|there| there >= count);
        let (took, (own_now, broker_now)) = (began.elapsed(), used());
        let moved = last - first;
        let of_each = |was: Option<Duration>, is: Option<Duration>| Some((is? - was?) / moved as u32);
        (moved, took, ProcessorTime { own: of_each(own, own_now), broker: of_each(broker, broker_now) })
    }

    fn wait_until(&self, enough: impl Fn(u64) -> bool) -> u64 {
        self.runtime.block_on(async {
            loop {
                let there = u64::from(self.client.waiting(Self::OUT).await);
                if enough(there) {
                    return there;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
    }

    /// Waits until [`QueuePair::OUT`] has a message.
    pub(crate) fn wait_for_first(&self) {
        self.wait_until(|there| there > 0);
    }

    /// Empties [`QueuePair::OUT`] after the contender has stopped.
    pub(crate) fn clear(&self) {
        self.runtime.block_on(async {
            let left = self.client.waiting(Self::IN).await;
            if left > 0 {
                eprintln!("{left} messages were not acknowledged, and are moved again");
            }
            let channel = self.client.channel();
            channel.queue_purge(Self::OUT.into(), QueuePurgeOptions::default()).await.unwrap();
        });
    }
}

/// Returns the properties of the messages of Social Feed Manager.
pub(crate) fn properties() -> BasicProperties {
    BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(2)
}
