//! The shovel of RabbitMQ, which runs in the broker.

use serde_json::json;

use super::yard::Yard;

const NAME: &str = "bench";

/// Running shovel.
pub(crate) struct Shovel<'a>(&'a Yard<'a>);

impl<'a> Shovel<'a> {
    pub(crate) fn start(yard: &'a Yard<'a>) -> Self {
        let url = yard.vhost.url();
        let definition = json!({
            "src-protocol": "amqp091", "src-uri": url, "src-queue": Yard::IN, "src-prefetch-count": 1000,
            "dest-protocol": "amqp091", "dest-uri": url, "dest-queue": Yard::OUT, "ack-mode": "on-confirm",
        });
        let vhost = &yard.vhost.name;
        yard.broker.ctl(&["set_parameter", "--vhost", vhost, "shovel", NAME, &definition.to_string()]);
        Self(yard)
    }

    pub(crate) fn stop(self) {
        self.0.broker.ctl(&["clear_parameter", "--vhost", &self.0.vhost.name, "shovel", NAME]);
    }
}
