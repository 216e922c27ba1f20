//! Messages that clients send over HTTP, RabbitMQ and STOMP at the same time, until each is accepted. HTTP clients choose
//! a gateway at random for each attempt.

use std::{
    collections::BTreeMap,
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
    Rabbitmq,
    Stomp,
}

impl Transport {
    /// Returns the transport of a message. Half of the messages are posted.
    fn of(number: u64) -> Self {
        match number % 4 {
            2 => Self::Rabbitmq,
            3 => Self::Stomp,
            _ => Self::Http,
        }
    }

    /// Returns the numbers of the messages of this transport, up to `count`.
    fn numbers(self, count: u64) -> impl Iterator<Item = u64> {
        (1..=count).filter(move |number| Self::of(*number) == self)
    }
}

/// Returns the message with that number, which adds an item to one of a hundred objects.
fn message(number: u64) -> String {
    let object = format!("http://h.example/objects/{}", number % OBJECTS);
    let item = json!({ "uri": format!("{object}/items/{number}"), "change": "ADD" });
    json!({ "object": object, "sourceEventId": format!("message {number}"), "items": [item] }).to_string()
}

/// Returns the number of the message that a change comes from.
pub(crate) fn message_number(change: &Value) -> u64 {
    change["sourceEventId"].as_str().unwrap().strip_prefix("message ").unwrap().parse().unwrap()
}

/// Destinations of the messages.
pub(crate) struct Destinations {
    /// Hooks of the gateways.
    pub(crate) hooks: Vec<String>,
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
    /// Number of the change by the number of the message, for those that were posted.
    changes: Mutex<BTreeMap<u64, u64>>,
}

impl Outcome {
    /// Returns how many messages a gateway or a broker has acknowledged.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Panics unless each message is in the journal once, under the number with which it was acknowledged.
    pub(crate) fn assert_journaled(&self, count: u64, changes: &[Value]) {
        let mut journaled = BTreeMap::new();
        for change in changes {
            let other = journaled.insert(message_number(change), change["seq"].as_u64().unwrap());
            assert_eq!(other, None, "{change} is a second change of its message");
        }
        assert_eq!(journaled.len() as u64, count, "one change for each message");
        for (number, seq) in &*self.changes.lock().unwrap() {
            assert_eq!(journaled.get(number), Some(seq), "message {number} was acknowledged as change {seq}");
        }
    }
}

impl MessageLoad {
    /// Starts clients for `count` messages; they wait until [`MessageLoad::open`] allows to send them.
    pub(crate) fn start(count: u64, to: Destinations, random: &mut fastrand::Rng) -> Self {
        let (opened, outcome, mut clients) = (watch::Sender::new(0), Arc::<Outcome>::default(), JoinSet::new());
        for first in 0..CLIENTS {
            let numbers: Vec<_> = Transport::Http.numbers(count).skip(first).step_by(CLIENTS).collect();
            let (hooks, random) = (to.hooks.clone(), random.fork());
            clients.spawn(post(numbers, hooks, random, opened.subscribe(), Arc::clone(&outcome)));
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

    /// Waits until all messages are accepted.
    pub(crate) async fn join(self) {
        self.clients.join_all().await;
    }
}

/// Posts messages one after another.
async fn post(
    numbers: Vec<u64>,
    hooks: Vec<String>,
    mut random: fastrand::Rng,
    mut opened: watch::Receiver<u64>,
    outcome: Arc<Outcome>,
) {
    let http = client();
    for number in numbers {
        opened.wait_for(|opened| *opened >= number).await.unwrap();
        let body = message(number);
        let seq = loop {
            let hook = &hooks[random.usize(..hooks.len())];
            let request = http.post(hook).header("content-type", "application/json").body(body.clone());
            if let Ok(answer) = request.timeout(ANSWER_LIMIT).send().await {
                let status = answer.status();
                if let (true, Ok(accepted)) = (status.is_success(), answer.json::<Value>().await) {
                    break accepted["changes"][0]["seq"].as_u64().unwrap();
                }
                let may_be = status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE;
                assert!(may_be, "{hook} refuses message {number}: {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        outcome.changes.lock().unwrap().insert(number, seq);
        outcome.accepted.fetch_add(1, Ordering::Relaxed);
    }
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
