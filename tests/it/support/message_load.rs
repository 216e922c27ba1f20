//! Messages that clients send over HTTP, RabbitMQ and STOMP at the same time, until each is accepted. HTTP clients choose
//! a gateway at random for each attempt.
//!
//! Some messages have no event key, so each attempt to post one of them is an event of its own. An attempt without a
//! response becomes one change or none.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lapin::BasicProperties;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

use crate::support::{gateway::client, rabbitmq, stomp_client};

/// Number of concurrent HTTP clients.
const CLIENTS: usize = 24;

/// Time after which an HTTP client tries another gateway.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of messages that a publisher sends at once.
const CHUNK: usize = 50;

/// Number of objects.
const OBJECTS: u64 = 100;

/// Ways of a message into the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http,
    /// HTTP, in a dialect whose events have no keys.
    HttpWithoutKey,
    Rabbitmq,
    Stomp,
}

impl Transport {
    /// Returns the transport of a message. Half of the messages are posted.
    fn of(number: u64) -> Self {
        match number % 8 {
            2 | 6 => Self::Rabbitmq,
            3 | 7 => Self::Stomp,
            4 => Self::HttpWithoutKey,
            _ => Self::Http,
        }
    }

    fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::HttpWithoutKey)
    }

    /// Returns the numbers of the messages of this transport, up to `count`.
    fn numbers(self, count: u64) -> impl Iterator<Item = u64> {
        (1..=count).filter(move |number| Self::of(*number) == self)
    }
}

/// Source of the messages without event keys.
pub(crate) const SOURCE_WITHOUT_KEYS: &str = "islandora";

/// Returns the URI of an object, and of an item that a message adds to it.
fn item(number: u64, label: &str) -> (String, String) {
    let object = format!("http://h.example/objects/{}", number % OBJECTS);
    let item = format!("{object}/items/{label}");
    (object, item)
}

/// Returns the message with that number, which adds an item to one of a hundred objects.
fn message(number: u64) -> String {
    let (object, item) = item(number, &number.to_string());
    let item = json!({ "uri": item, "change": "ADD" });
    json!({ "object": object, "sourceEventId": format!("message {number}"), "items": [item] }).to_string()
}

/// Returns the message with that number, without anything that identifies the event.
fn message_without_key(number: u64, label: &str) -> String {
    let (object, item) = item(number, label);
    let link = json!({ "type": "Link", "href": item, "rel": "alternate" });
    let object = json!({ "id": object, "url": [link] });
    json!({ "@context": "https://www.w3.org/ns/activitystreams", "type": "Create", "object": object }).to_string()
}

/// Returns the last segment of the item's URI: the number of the message, and its attempt if it has no key.
fn label(change: &Value) -> String {
    change["items"][0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

/// Destinations of the messages.
pub(crate) struct Destinations {
    /// URLs of the gateways.
    pub(crate) gateways: Vec<String>,
    pub(crate) rabbitmq: rabbitmq::Client,
    pub(crate) exchange: &'static str,
    pub(crate) stomp: stomp_client::Client,
    /// Name of the queue of the STOMP broker.
    pub(crate) queue: String,
}

/// Clients that send messages.
pub(crate) struct MessageLoad {
    opened: watch::Sender<u64>,
    outcome: Arc<Outcome>,
    clients: JoinSet<()>,
}

/// Accepted messages.
#[derive(Default)]
pub(crate) struct Outcome {
    accepted: AtomicU64,
    /// Number of the change by the label of the message, for those that were posted.
    changes: Mutex<BTreeMap<String, u64>>,
}

impl Outcome {
    /// Returns how many messages a gateway or a broker has acknowledged.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Panics unless each of `count` messages is in the journal once, under the number with which it was acknowledged.
    /// Returns how many attempts without a response became changes.
    pub(crate) fn assert_journaled(&self, count: u64, changes: &[Value]) -> usize {
        let mut journaled = BTreeMap::new();
        for change in changes {
            let other = journaled.insert(label(change), change["seq"].as_u64().unwrap());
            assert_eq!(other, None, "{change} is a second change of its message");
        }
        let acknowledged = self.changes.lock().unwrap();
        for (label, seq) in &*acknowledged {
            assert_eq!(journaled.get(label), Some(seq), "message {label} was acknowledged as change {seq}");
        }
        let numbers: HashSet<&str> = acknowledged.keys().map(|label| label.split('.').next().unwrap()).collect();
        let is_accepted = |number: &u64| match Transport::of(*number).is_http() {
            true => numbers.contains(number.to_string().as_str()),
            false => journaled.contains_key(&number.to_string()),
        };
        assert_eq!((1..=count).find(|number| !is_accepted(number)), None, "a message is missing");
        let is_unanswered = |label: &&String| label.contains('.') && !acknowledged.contains_key(*label);
        let unanswered = journaled.keys().filter(is_unanswered).count();
        assert_eq!(journaled.len(), usize::try_from(count).unwrap() + unanswered, "one change for each message");
        unanswered
    }
}

impl MessageLoad {
    /// Starts clients for `count` messages; they wait until [`MessageLoad::open`] allows to send them.
    pub(crate) fn start(count: u64, to: Destinations, random: &mut fastrand::Rng) -> Self {
        let (opened, outcome, mut clients) = (watch::Sender::new(0), Arc::<Outcome>::default(), JoinSet::new());
        for first in 0..CLIENTS {
            let numbers = (1..=count).filter(|number| Transport::of(*number).is_http());
            let numbers: Vec<_> = numbers.skip(first).step_by(CLIENTS).collect();
            let (gateways, random) = (to.gateways.clone(), random.fork());
            clients.spawn(post(numbers, gateways, random, opened.subscribe(), Arc::clone(&outcome)));
        }
        let Destinations { rabbitmq, exchange, stomp, queue, .. } = to;
        let numbers = Transport::Rabbitmq.numbers(count).collect();
        clients.spawn(publish(numbers, rabbitmq, exchange, opened.subscribe(), Arc::clone(&outcome)));
        let numbers = Transport::Stomp.numbers(count).collect();
        clients.spawn(send(numbers, stomp, queue, opened.subscribe(), Arc::clone(&outcome)));
        Self { opened, outcome, clients }
    }

    /// Allows the clients to send the messages up to that number.
    pub(crate) fn open(&self, number: u64) {
        self.opened.send_replace(number);
    }

    pub(crate) fn outcome(&self) -> Arc<Outcome> {
        Arc::clone(&self.outcome)
    }

    /// Waits until all messages are accepted, and until the gateways have written everything that they have received
    /// before.
    pub(crate) async fn join(self, gateways: &[String]) {
        self.clients.join_all().await;
        for gateway in gateways {
            // A repeat makes no change, and is answered after everything before it.
            let repeat = attempt(&client(), gateway, "content-change", message(1)).await;
            assert!(repeat.is_some(), "{gateway} does not accept a repeat");
        }
    }
}

/// Posts messages one after another.
async fn post(
    numbers: Vec<u64>,
    gateways: Vec<String>,
    mut random: fastrand::Rng,
    mut opened: watch::Receiver<u64>,
    outcome: Arc<Outcome>,
) {
    let http = client();
    for number in numbers {
        opened.wait_for(|opened| *opened >= number).await.unwrap();
        let mut attempts = 0;
        let (label, seq) = loop {
            attempts += 1;
            let (source, label) = match Transport::of(number) {
                Transport::HttpWithoutKey => (SOURCE_WITHOUT_KEYS, format!("{number}.{attempts}")),
                _ => ("content-change", number.to_string()),
            };
            let body = match source {
                SOURCE_WITHOUT_KEYS => message_without_key(number, &label),
                _ => message(number),
            };
            let gateway = &gateways[random.usize(..gateways.len())];
            if let Some(seq) = attempt(&http, gateway, source, body).await {
                break (label, seq);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        outcome.changes.lock().unwrap().insert(label, seq);
        outcome.accepted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Posts a message once; returns the number of its change, or `None` if nobody has acknowledged it.
async fn attempt(http: &reqwest::Client, gateway: &str, source: &str, body: String) -> Option<u64> {
    let hook = format!("{gateway}/hooks/{source}");
    let request = http.post(&hook).header("content-type", "application/json").body(body);
    let response = request.timeout(ANSWER_LIMIT).send().await.ok()?;
    let status = response.status();
    assert!(status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE, "{hook} refuses a message: {status}");
    if !status.is_success() {
        return None;
    }
    let accepted = response.json::<Value>().await.ok()?;
    Some(accepted["changes"][0]["seq"].as_u64().unwrap())
}

/// Waits until messages may be sent, and takes some of them from the numbers; none if all have been sent.
async fn next_chunk(numbers: &mut Vec<u64>, opened: &mut watch::Receiver<u64>) -> Vec<u64> {
    let Some(first) = numbers.first().copied() else { return Vec::new() };
    let opened = *opened.wait_for(|opened| *opened >= first).await.unwrap();
    let size = numbers.iter().take(CHUNK).take_while(|number| **number <= opened).count();
    numbers.drain(..size).collect()
}

/// Publishes messages to RabbitMQ.
async fn publish(
    mut numbers: Vec<u64>,
    rabbitmq: rabbitmq::Client,
    exchange: &str,
    mut opened: watch::Receiver<u64>,
    outcome: Arc<Outcome>,
) {
    let persistent = BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(2);
    loop {
        let chunk = next_chunk(&mut numbers, &mut opened).await;
        if chunk.is_empty() {
            return rabbitmq.close().await;
        }
        rabbitmq.publish_all(exchange, "events", chunk.iter().copied().map(message), &persistent).await;
        outcome.accepted.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }
}

/// Sends messages to the STOMP broker.
async fn send(
    mut numbers: Vec<u64>,
    mut stomp: stomp_client::Client,
    queue: String,
    mut opened: watch::Receiver<u64>,
    outcome: Arc<Outcome>,
) {
    loop {
        let chunk = next_chunk(&mut numbers, &mut opened).await;
        if chunk.is_empty() {
            return;
        }
        tokio::task::block_in_place(|| {
            stomp.send_all(&queue, &[("content-type", "application/json")], chunk.iter().copied().map(message));
        });
        outcome.accepted.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }
}
