//! Gateway that reads an AMQP queue, for the tests of queue sources, and helpers that wait for its progress.

use std::{path::Path, time::Instant};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{configuration, event},
};

/// Name of the source.
pub(crate) const SOURCE: &str = "harvests";

/// Exchange of the tests, and the queue that is bound to it.
pub(crate) const EXCHANGE: &str = "events";
pub(crate) const QUEUE: &str = "tidings.events";

/// Writes a configuration with one AMQP source of the dialect content-change and returns its path. `lines` are
/// added to the source's table.
pub(crate) fn source(folder: &Path, url: &str, lines: &str) -> String {
    let table = format!(
        "[sources.{SOURCE}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{url}\"\n\
         exchange = \"{EXCHANGE}\"\nqueue = \"{QUEUE}\"\n{lines}\n"
    );
    configuration(folder, &table)
}

/// Starts a gateway with such a source. Its journal is in `folder`, and its complete log in the file `log`
/// beside it.
pub(crate) fn start(folder: &Path, url: &str, lines: &str) -> Gateway {
    let config = source(folder, url, lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

impl Gateway {
    /// Stops the gateway once its source is connected; returns true if the exit status was 0.
    pub(crate) async fn stop_when_connected(self) -> bool {
        until_state(&self, "connected").await;
        self.stop().success()
    }
}

/// Waits until the source's connection is in `state`; returns the connection as the gateway shows it.
pub(crate) async fn until_state(gateway: &Gateway, state: &str) -> Value {
    until(gateway, &format!("the connection is {state}"), async || {
        let connection = connection(gateway).await;
        (connection["state"] == state).then_some(connection)
    })
    .await
}

/// Returns the source's connection as the gateway shows it.
pub(crate) async fn connection(gateway: &Gateway) -> Value {
    let sources = gateway.json("/sources").await;
    let all = sources["sources"].as_array().unwrap();
    all.iter().find(|source| source["name"] == SOURCE).unwrap()["connection"].clone()
}

/// Waits until the journal has that many changes.
pub(crate) async fn until_head(gateway: &Gateway, head: u64) {
    until(gateway, &format!("the journal has {head} changes"), async || (gateway.head().await >= head).then_some(()))
        .await;
}

/// Waits until `found` returns a value. The time limit starts again whenever the gateway makes progress: a change in the
/// journal, or another state of its sources.
pub(crate) async fn until<T>(gateway: &Gateway, what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let (mut since, mut before) = (Instant::now(), (0, Value::Null));
    loop {
        if let Some(found) = found().await {
            return found;
        }
        let now = (gateway.head().await, gateway.json("/sources").await);
        if now != before {
            (since, before) = (Instant::now(), now);
        }
        let (head, sources) = &before;
        assert!(since.elapsed() < 2 * PATIENCE, "timeout while waiting until {what}: {head} changes, {sources:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Returns the numbers of the events in the journal, in journal order.
pub(crate) async fn numbers(gateway: &Gateway) -> Vec<u64> {
    let number =
        |change: &Value| change["items"][0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
    gateway.changes().await.iter().map(number).collect()
}

/// Returns the bodies of the events with these numbers.
pub(crate) fn events(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Vec<u8>> {
    numbers.into_iter().map(|number| event(number).to_string().into_bytes())
}
