//! What the tests of subscriptions share: a gateway with a configuration, a subscriber's side of AMQP.

use std::{path::Path, time::Duration};

use lapin::{message::Delivery, types::AMQPValue};
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
};

/// A gateway over the journal in `data`, with these lines of configuration.
pub(crate) fn gateway(data: &Path, lines: &str) -> Gateway {
    let file = configuration(data, lines);
    Gateway::start_with(data, &["--config", &file])
}

/// A subscription `index` that publishes to the exchange `content`, with one queue for all.
pub(crate) fn index(url: &str, more: &str) -> String {
    format!(
        "[subscriptions.index]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{url}\"\nexchange = \"content\"\n\
         queues = [{{ name = \"index\", bindings = [\"content.#\"], type = \"classic\" }}]\n{more}\n"
    )
}

/// Posts the change of that number: an item is added to an object.
pub(crate) async fn post(gateway: &Gateway, number: u64) {
    post_event(gateway, &event(number)).await;
}

pub(crate) fn event(number: u64) -> Value {
    let object = format!("http://h.example/objects/{number}");
    let item = format!("{object}/item");
    json!({
        "object": object, "sourceEventId": format!("event {number}"),
        "items": [{ "uri": item, "change": "ADD", "content": { "url": item, "mediaType": "image/png" } }]
    })
}

pub(crate) async fn post_event(gateway: &Gateway, event: &Value) {
    let (status, answer) = gateway.post("content-change", "application/json", event.to_string()).await;
    assert!(status == 201 || status == 200, "{status}: {answer}");
}

/// The number of the change that a message tells.
pub(crate) fn seq(message: &Delivery) -> u64 {
    let headers = message.properties.headers().as_ref().unwrap();
    match headers.inner().get("seq") {
        Some(AMQPValue::LongLongInt(seq)) => u64::try_from(*seq).unwrap(),
        other => panic!("seq is {other:?}"),
    }
}

/// The value of a property that is text.
pub(crate) fn text(property: Option<&lapin::types::ShortString>) -> &str {
    property.unwrap().as_str()
}

impl Gateway {
    /// Asks something of a subscription; gives the status and the JSON of the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.bytes().await.unwrap();
        (status, if text.is_empty() { Value::Null } else { serde_json::from_slice(&text).unwrap() })
    }

    /// Waits until a subscription is as wanted, for as long as it moves; gives how it is shown then.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let (mut since, mut cursor) = (std::time::Instant::now(), Value::Null);
        loop {
            let (_, shown) = self.ask("GET", &format!("/subscriptions/{name}"), None).await;
            if holds(&shown) {
                return shown;
            }
            if shown["cursor"] != cursor {
                (since, cursor) = (std::time::Instant::now(), shown["cursor"].clone());
            }
            assert!(since.elapsed() < 2 * PATIENCE, "waited in vain until {what}: {shown:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a subscription is done with the change of that number.
    pub(crate) async fn until_at(&self, name: &str, cursor: u64) -> Value {
        self.until(name, "the cursor is there", |shown| shown["cursor"] == cursor).await
    }
}
