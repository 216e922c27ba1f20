//! The shovel of RabbitMQ, which runs in the broker.

use serde_json::json;

use super::queue_pair::QueuePair;

const NAME: &str = "bench";

/// Running shovel.
pub(crate) struct Shovel<'a>(&'a QueuePair<'a>);

impl<'a> Shovel<'a> {
    pub(crate) fn start(queues: &'a QueuePair<'a>) -> Self {
        let url = queues.vhost.url();
        let definition = json!({
            "src-protocol": "amqp091", "src-uri": url, "src-queue": QueuePair::IN, "src-prefetch-count": 1000,
            "dest-protocol": "amqp091", "dest-uri": url, "dest-queue": QueuePair::OUT, "ack-mode": "on-confirm",
        });
        let vhost = &queues.vhost.name;
        queues.broker.ctl(&["set_parameter", "--vhost", vhost, "shovel", NAME, &definition.to_string()]);
        Self(queues)
    }

    pub(crate) fn stop(self) {
        self.0.broker.ctl(&["clear_parameter", "--vhost", &self.0.vhost.name, "shovel", NAME]);
    }
}
