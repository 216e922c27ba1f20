//! Restarts under load: changes pass through a gateway that is killed and restarted meanwhile. Every subscriber
//! must receive every change, in order, and repeats only under the same identifier.
//!
//! A subscriber records its changes in [`Seen`] and causes failures itself: it disconnects, restarts and reads
//! slowly.

use std::{
    collections::BTreeMap,
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
    http_receiver::{Got as Request, Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::event,
};

/// Longest time without progress.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Number of concurrent senders.
const AT_ONCE: u64 = 48;

/// Changes that a subscriber has received, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Got>);

#[derive(Default)]
struct Got {
    /// Number and identifier of each change.
    came: Vec<(u64, String)>,
    /// Highest number up to which every change has arrived.
    through: u64,
}

impl Seen {
    /// Records a change.
    pub(crate) fn tell(&self, seq: u64, id: &str) {
        let mut got = self.0.lock().unwrap();
        got.came.push((seq, id.to_owned()));
        if seq == got.through + 1 {
            got.through = seq;
        }
    }

    fn through(&self) -> u64 {
        self.0.lock().unwrap().through
    }

    /// Panics unless every change of the journal has arrived, in order, and every repeat had the same
    /// identifier. Returns the number of repeats.
    pub(crate) fn holds(&self, changes: &[Value]) -> usize {
        let got = self.0.lock().unwrap();
        let mut known: BTreeMap<u64, &str> = BTreeMap::new();
        let mut first = Vec::new();
        for (seq, id) in &got.came {
            match known.get(seq) {
                Some(before) => assert_eq!(before, id, "a repeat of {seq} has another identifier"),
                None => {
                    known.insert(*seq, id);
                    first.push((*seq, id.as_str()));
                }
            }
        }
        let journal: Vec<_> =
            changes.iter().map(|change| (change["seq"].as_u64().unwrap(), change["id"].as_str().unwrap())).collect();
        let wrong = first.iter().zip(&journal).find(|(came, told)| came != told);
        assert_eq!(wrong, None, "what came and what the journal has");
        assert_eq!(first.len(), journal.len(), "every change");
        got.came.len() - first.len()
    }
}

/// Gateway that is killed and restarted under the same URL.
pub(crate) struct Commotion {
    /// URL of the gateway.
    pub(crate) url: String,
    pub(crate) random: fastrand::Rng,
    gateway: Gateway,
    arguments: Vec<String>,
    data: std::path::PathBuf,
}

impl Commotion {
    /// Starts the gateway with these lines of configuration. The environment variable `SEED` repeats a failed
    /// run.
    #[expect(clippy::print_stderr, reason = "the seed is needed to repeat what failed")]
    pub(crate) fn begin(folder: &Path, lines: &str) -> Self {
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
    #[expect(clippy::print_stderr, reason = "what happened when is of interest when it fails")]
    pub(crate) async fn pass(mut self, count: u64, kills: usize, everybody: &[Arc<Seen>]) -> Gateway {
        let mut moments: Vec<_> = (0..kills).map(|_| self.random.u64(count / 10..count * 9 / 10)).collect();
        moments.sort_unstable();
        let taken = Arc::new(AtomicU64::new(0));
        let sending = tokio::spawn(send(self.url.clone(), count, Arc::clone(&taken)));
        let began = Instant::now();
        let slowest = || everybody.iter().map(|seen| seen.through()).min().unwrap_or(0);
        for moment in moments {
            // Kills at a number of accepted changes, or at a number that every subscriber has received.
            let of_taken = self.random.bool();
            let reached = || if of_taken { taken.load(Ordering::Relaxed) } else { slowest() };
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
pub(crate) type Take = fn(&Seen, &Request) -> Option<Reply>;

impl Commotion {
    /// Does the same with an HTTP receiver at each of these addresses. A receiver disconnects, returns and is
    /// slow at random. One of `seldom` posts fails, and another one of `seldom` closes the socket.
    #[expect(clippy::print_stderr, reason = "how often things came again is of interest")]
    pub(crate) async fn pass_to(mut self, addresses: &[SocketAddr], seldom: u32, take: Take, count: u64, kills: usize) {
        let everybody: Vec<Arc<Seen>> = addresses.iter().map(|_| Arc::default()).collect();
        let done = CancellationToken::new();
        let mut receivers = Vec::new();
        for (address, seen) in addresses.iter().zip(&everybody) {
            let script = (Arc::clone(seen), seldom, take);
            receivers.push(tokio::spawn(receive(*address, script, self.random.fork(), done.clone())));
        }
        let gateway = self.pass(count, kills, &everybody).await;
        done.cancel();
        for receiver in receivers {
            receiver.await.unwrap();
        }
        let changes = gateway.changes().await;
        assert_eq!(changes.len() as u64, count);
        for seen in everybody {
            eprintln!("{} came again", seen.holds(&changes));
        }
    }
}

/// Starts and stops a receiver repeatedly until `done`.
async fn receive(
    address: SocketAddr,
    (seen, seldom, take): (Arc<Seen>, u32, Take),
    mut random: fastrand::Rng,
    done: CancellationToken,
) {
    while !done.is_cancelled() {
        let (seen, chance) = (Arc::clone(&seen), Mutex::new(random.fork()));
        let script = move |_, got: &Request| {
            take(&seen, got).unwrap_or_else(|| {
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
async fn until(wanted: u64, reached: impl Fn() -> u64) {
    let mut last = (0, Instant::now());
    while reached() < wanted {
        if reached() != last.0 {
            last = (reached(), Instant::now());
        }
        assert!(last.1.elapsed() < STANDSTILL, "{} of {wanted}, and nothing moves", last.0);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Posts the changes with these numbers, and repeats each until it is accepted.
async fn send(url: String, count: u64, taken: Arc<AtomicU64>) {
    let senders = (0..AT_ONCE).map(|sender| {
        let (http, url, taken) = (client(), format!("{url}/hooks/content-change"), Arc::clone(&taken));
        tokio::spawn(async move {
            for number in (sender + 1..=count).step_by(usize::try_from(AT_ONCE).unwrap()) {
                let body = event(number).to_string();
                loop {
                    let request = http.post(&url).header("content-type", "application/json").body(body.clone());
                    if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                taken.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
}
