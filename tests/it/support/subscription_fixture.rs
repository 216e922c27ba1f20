//! Gateway with subscriptions, and an AMQP subscriber.

use std::{path::Path, time::Duration};

use lapin::{message::Delivery, types::AMQPValue};
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
};

/// Starts a gateway with the journal in `data` and these lines of configuration.
pub(crate) fn gateway(data: &Path, lines: &str) -> Gateway {
    let file = configuration(data, lines);
    Gateway::start_with(data, &["--config", &file])
}

/// Returns a subscription `index` that publishes to the exchange `content`, with one queue for all messages.
pub(crate) fn index(url: &str, more: &str) -> String {
    format!(
        "[subscriptions.index]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{url}\"\nexchange = \"content\"\n\
         queues = [{{ name = \"index\", bindings = [\"content.#\"], type = \"classic\" }}]\n{more}\n"
    )
}

/// Posts the event with that number, which adds an item to an object.
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

/// Returns the number of the change in a message.
pub(crate) fn seq(message: &Delivery) -> u64 {
    let headers = message.properties.headers().as_ref().unwrap();
    match headers.inner().get("seq") {
        Some(AMQPValue::LongLongInt(seq)) => u64::try_from(*seq).unwrap(),
        other => panic!("seq is {other:?}"),
    }
}

/// Returns the value of a text property.
pub(crate) fn text(property: Option<&lapin::types::ShortString>) -> &str {
    property.unwrap().as_str()
}

impl Gateway {
    /// Sends an administrative request about a subscription; returns the status and the JSON of the response.
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

    /// Waits until the shown state of a subscription satisfies `holds`, as long as the subscription makes
    /// progress; returns that state.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let (mut since, mut cursor) = (std::time::Instant::now(), Value::Null);
        loop {
            let (_, status_json) = self.ask("GET", &format!("/subscriptions/{name}"), None).await;
            if holds(&status_json) {
                return status_json;
            }
            if status_json["cursor"] != cursor {
                (since, cursor) = (std::time::Instant::now(), status_json["cursor"].clone());
            }
            assert!(since.elapsed() < 2 * PATIENCE, "timeout while waiting until {what}: {status_json:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the cursor of a subscription has reached that number.
    pub(crate) async fn until_at(&self, name: &str, cursor: u64) -> Value {
        self.until(name, "the cursor is there", |status_json| status_json["cursor"] == cursor).await
    }
}
