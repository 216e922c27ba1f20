//! What the tests of sources that are queues share: a gateway that reads one, and waits for what it does.

use std::{path::Path, time::Instant};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{configuration, event},
};

/// The name of the source.
pub(crate) const SOURCE: &str = "harvests";

/// The exchange of the tests, and the queue that is bound to it.
pub(crate) const EXCHANGE: &str = "events";
pub(crate) const QUEUE: &str = "tidings.events";

/// The path of a configuration with one such source, of the dialect content-change, at that address. The
/// lines go into its table.
pub(crate) fn source(folder: &Path, url: &str, lines: &str) -> String {
    let table = format!(
        "[sources.{SOURCE}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{url}\"\n\
         exchange = \"{EXCHANGE}\"\nqueue = \"{QUEUE}\"\n{lines}\n"
    );
    configuration(folder, &table)
}

/// A gateway with such a source and its journal in `folder`, its whole log in the file `log` beside it.
pub(crate) fn start(folder: &Path, url: &str, lines: &str) -> Gateway {
    let config = source(folder, url, lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

impl Gateway {
    /// Stops it once its source is connected; says whether it stopped in good order.
    pub(crate) async fn stop_when_connected(self) -> bool {
        until_state(&self, "connected").await;
        self.stop().success()
    }
}

/// Waits until what the gateway shows of the source's connection is in `state`; gives all that it shows.
pub(crate) async fn until_state(gateway: &Gateway, state: &str) -> Value {
    until(gateway, &format!("the connection is {state}"), async || {
        let connection = connection(gateway).await;
        (connection["state"] == state).then_some(connection)
    })
    .await
}

/// What the gateway shows of the source's connection.
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

/// Waits until there is what is looked for; every minute counts as one as long as something moves.
pub(crate) async fn until<T>(gateway: &Gateway, what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let (mut since, mut head) = (Instant::now(), 0);
    loop {
        if let Some(found) = found().await {
            return found;
        }
        let moved = gateway.head().await;
        if moved != head {
            (since, head) = (Instant::now(), moved);
        }
        let sources = gateway.json("/sources").await;
        assert!(since.elapsed() < 2 * PATIENCE, "it takes too long until {what}: {moved} changes, {sources:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The numbers of the events whose changes are in the journal, in its order.
pub(crate) async fn numbers(gateway: &Gateway) -> Vec<u64> {
    let number =
        |change: &Value| change["items"][0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
    gateway.changes().await.iter().map(number).collect()
}

/// The bodies of the events of these numbers.
pub(crate) fn events(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Vec<u8>> {
    numbers.into_iter().map(|number| event(number).to_string().into_bytes())
}
