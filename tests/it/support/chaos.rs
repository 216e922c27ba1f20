//! Restarts under load: changes pass through a gateway that is killed and restarted meanwhile. Every subscriber
//! must receive every change, in order, and repeats only under the same identifier.
//!
//! A subscriber records its changes in [`ReceivedChanges`] and causes failures itself: it disconnects, restarts and reads
//! slowly.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{
    gateway::{Gateway, client, free_address},
    http_receiver::{ReceivedRequest, Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::event,
};

/// Longest time without progress.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Number of concurrent senders.
const SENDERS: u64 = 48;

/// Changes that a subscriber has received, in the order of their arrival.
#[derive(Default)]
pub(crate) struct ReceivedChanges(Mutex<State>);

#[derive(Default)]
struct State {
    /// Number and identifier of each change.
    changes: Vec<(u64, String)>,
    /// Numbers of the changes.
    numbers: HashSet<u64>,
}

impl ReceivedChanges {
    /// Records a change.
    pub(crate) fn record(&self, seq: u64, id: &str) {
        let mut state = self.0.lock().unwrap();
        state.changes.push((seq, id.to_owned()));
        state.numbers.insert(seq);
    }

    /// Returns how many different changes have arrived.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().unwrap().numbers.len() as u64
    }

    /// Panics unless every change of the journal has arrived, in order, and every repeat had the same
    /// identifier. Returns the number of repeats.
    pub(crate) fn assert_complete(&self, changes: &[Value]) -> usize {
        let state = self.0.lock().unwrap();
        let mut ids: BTreeMap<u64, &str> = BTreeMap::new();
        let mut first = Vec::new();
        for (seq, id) in &state.changes {
            match ids.get(seq) {
                Some(before) => assert_eq!(before, id, "a repeat of {seq} has another identifier"),
                None => {
                    ids.insert(*seq, id);
                    first.push((*seq, id.as_str()));
                }
            }
        }
        let journal: Vec<_> =
            changes.iter().map(|change| (change["seq"].as_u64().unwrap(), change["id"].as_str().unwrap())).collect();
        let wrong = first.iter().zip(&journal).find(|(received, journaled)| received != journaled);
        assert_eq!(wrong, None, "received and journaled changes differ");
        assert_eq!(first.len(), journal.len(), "every change");
        state.changes.len() - first.len()
    }
}

/// Gateway that is killed and restarted under the same URL.
pub(crate) struct ChaosGateway {
    /// URL of the gateway.
    pub(crate) url: String,
    pub(crate) random: fastrand::Rng,
    gateway: Gateway,
    arguments: Vec<String>,
    data: std::path::PathBuf,
}

impl ChaosGateway {
    /// Starts the gateway with these lines of configuration. The environment variable `SEED` repeats a failed
    /// run.
    #[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
    pub(crate) fn start_with(folder: &Path, lines: &str) -> Self {
        let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
        eprintln!("SEED={seed}");
        let address = free_address();
        let arguments = vec!["--listen".to_owned(), address, "--config".to_owned(), configuration(folder, lines)];
        let data = folder.join("data");
        let gateway = start(&data, &arguments);
        let random = fastrand::Rng::with_seed(seed);
        Self { url: gateway.url.clone(), random, gateway, arguments, data }
    }

    /// Sends `count` changes, kills the gateway `kills` times meanwhile, and waits until every subscriber has
    /// received all changes.
    #[expect(clippy::print_stderr, reason = "prints the times of the kills for a failed run")]
    pub(crate) async fn run(mut self, count: u64, kills: usize, subscribers: &[Arc<ReceivedChanges>]) -> Gateway {
        let mut moments: Vec<_> = (0..kills).map(|_| self.random.u64(count / 10..count * 9 / 10)).collect();
        moments.sort_unstable();
        let accepted = Arc::new(AtomicU64::new(0));
        let sending = tokio::spawn(send(self.url.clone(), count, Arc::clone(&accepted)));
        let began = Instant::now();
        let slowest = || subscribers.iter().map(|received| received.count()).min().unwrap_or(0);
        for moment in moments {
            // Kills at a number of accepted changes, or at a number that every subscriber has received.
            let by_accepted = self.random.bool();
            let reached = || if by_accepted { accepted.load(Ordering::Relaxed) } else { slowest() };
            until(moment, reached).await;
            eprintln!("{:?}: the gateway is killed at {moment}", began.elapsed());
            tokio::task::block_in_place(|| {
                self.gateway.kill();
                self.gateway = start(&self.data, &self.arguments);
            });
        }
        sending.await.unwrap();
        eprintln!("{:?}: all are taken", began.elapsed());
        until(count, slowest).await;
        eprintln!("{:?}: all have arrived", began.elapsed());
        self.gateway
    }
}

/// Records the request that a receiver got. Returns its reply, or `None` to leave the reply to chance.
pub(crate) type RecordRequest = fn(&ReceivedChanges, &ReceivedRequest) -> Option<Reply>;

impl ChaosGateway {
    /// Does what [`ChaosGateway::run`] does, with an HTTP receiver at each of these addresses. A receiver disconnects,
    /// returns and is slow at random. One of `seldom` posts fails, and another one of `seldom` closes the socket.
    #[expect(clippy::print_stderr, reason = "prints the number of repeats")]
    pub(crate) async fn run_with_receivers(
        mut self,
        addresses: &[SocketAddr],
        seldom: u32,
        record: RecordRequest,
        count: u64,
        kills: usize,
    ) {
        let subscribers: Vec<Arc<ReceivedChanges>> = addresses.iter().map(|_| Arc::default()).collect();
        let done = CancellationToken::new();
        let mut receivers = Vec::new();
        for (address, received) in addresses.iter().zip(&subscribers) {
            let script = (Arc::clone(received), seldom, record);
            receivers.push(tokio::spawn(receive(*address, script, self.random.fork(), done.clone())));
        }
        let gateway = self.run(count, kills, &subscribers).await;
        done.cancel();
        for receiver in receivers {
            receiver.await.unwrap();
        }
        let changes = gateway.changes().await;
        assert_eq!(changes.len() as u64, count);
        for received in subscribers {
            eprintln!("{} came again", received.assert_complete(&changes));
        }
    }
}

/// Starts and stops a receiver repeatedly until `done`. One of `seldom` posts fails, and another one of `seldom` closes
/// the socket.
pub(crate) async fn receive(
    address: SocketAddr,
    (received, seldom, record): (Arc<ReceivedChanges>, u32, RecordRequest),
    mut random: fastrand::Rng,
    done: CancellationToken,
) {
    while !done.is_cancelled() {
        let (received, chance) = (Arc::clone(&received), Mutex::new(random.fork()));
        let script = move |_, request: &ReceivedRequest| {
            record(&received, request).unwrap_or_else(|| {
                let mut chance = chance.lock().unwrap();
                match chance.u32(..seldom) {
                    0 => Reply::of(500),
                    1 => Reply::Close,
                    2..=100 => Reply::After(Duration::from_micros(chance.u64(..3000)), Box::new(Reply::of(200))),
                    _ => Reply::of(200),
                }
            })
        };
        let receiver = Receiver::at(address, script).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(random.u64(300..3000))) => {}
            () = done.cancelled() => {}
        }
        drop(receiver);
        tokio::time::sleep(Duration::from_millis(random.u64(..50))).await;
    }
}

fn start(data: &Path, arguments: &[String]) -> Gateway {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Gateway::start_elsewhere(data, &arguments, None)
}

/// Waits as long as there is progress.
pub(crate) async fn until(target: u64, reached: impl Fn() -> u64) {
    let mut last = (0, Instant::now());
    while reached() < target {
        if reached() != last.0 {
            last = (reached(), Instant::now());
        }
        assert!(last.1.elapsed() < STANDSTILL, "{} of {target}, and nothing moves", last.0);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Posts the changes with these numbers, and repeats each until it is accepted.
async fn send(url: String, count: u64, accepted: Arc<AtomicU64>) {
    let senders = (0..SENDERS).map(|sender| {
        let (http, url, accepted) = (client(), format!("{url}/hooks/content-change"), Arc::clone(&accepted));
        tokio::spawn(async move {
            for number in (sender + 1..=count).step_by(usize::try_from(SENDERS).unwrap()) {
                let body = event(number).to_string();
                loop {
                    let request = http.post(&url).header("content-type", "application/json").body(body.clone());
                    if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
}
