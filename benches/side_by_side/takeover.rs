//! Time until others continue the work: after a kill of the node that has a duty, after its planned stop, and after
//! the loss of the primary of the database.
//!
//! The duties are webhook subscriptions of two nodes. When the database shows all duties at the surviving node, a change
//! is posted there, and its arrival at all receivers ends the time. For the database, senders post changes all the time; the time counts
//! from the moment at which the promoted standby accepts writes to the next response that a message is stored.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::NoTls;

use super::{
    broker_process::wait_until,
    database::{Database, node},
    postgres_pair::{DATABASE, ServerPair},
    streams::{Server, readers},
    webhooks::{Sink, sink, subscriptions},
};

const ROUNDS: usize = 9;

/// Lease of the nodes.
const LEASE: Duration = Duration::from_secs(3);

/// Number of subscriptions, so that each node has some.
const SUBSCRIPTIONS: u64 = 6;

/// Number of senders during a failover of the database.
const SENDERS: u64 = 8;

/// Pause of a sender after a message that was not accepted.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let database = Database::start();
    println!("\n| takeover, lease {} s, {ROUNDS} times | median | maximum |\n| --- | ---: | ---: |", LEASE.as_secs());
    for (name, signal) in [("a duty, after kill -9 of its node", "KILL"), ("a duty, after SIGTERM to its node", "TERM")]
    {
        print(name, || takeover(folder.path(), &database, signal));
    }
    print("an append, after the promoted standby accepts writes", || failover(folder.path()));
}

fn print(name: &str, measured: impl Fn() -> Duration) {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| measured()).collect();
    times.sort();
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    println!("| {name} | {} | {} |", seconds(times[ROUNDS / 2]), seconds(times[ROUNDS - 1]));
}

/// Ends one of two nodes, and returns the time until the other one has all duties and has delivered a change for each.
fn takeover(folder: &Path, database: &Database, signal: &str) -> Duration {
    let (store, sink) = (database.create(), sink());
    let [lost, survivor] = ["a", "b"].map(|name| node(folder, &store, name, &lines(&sink)));
    let spread = "SELECT count(DISTINCT holder) * 100 + count(*) FROM duties WHERE name LIKE 'subscription/%'";
    wait_until("the duties are spread", || database.number(&store, spread) == 200 + SUBSCRIPTIONS);
    readers::post(&survivor.url, 0..1).join().unwrap();
    wait_until("the first change is delivered", || sink.received.load(Ordering::Relaxed) == SUBSCRIPTIONS);
    // The cursors are written, so that nothing is repeated; then any moment between two renewals.
    std::thread::sleep(Duration::from_millis(500) + fastrand::u32(0..1000) * Duration::from_millis(1));
    let began = Instant::now();
    let sent = Command::new("kill").args([format!("-{signal}"), lost.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // Posted only now, because a node that stops would still deliver it.
    poll(Duration::from_millis(5), || database.number(&store, spread) == 100 + SUBSCRIPTIONS);
    readers::post(&survivor.url, 1..2).join().unwrap();
    let all = || sink.received.load(Ordering::Relaxed) >= 2 * SUBSCRIPTIONS;
    poll(Duration::from_millis(1), all);
    began.elapsed()
}

/// Waits until a condition holds, which is checked after each pause.
fn poll(pause: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody takes the duties over");
        std::thread::sleep(pause);
    }
}

fn lines(sink: &Sink) -> String {
    format!("[node]\nlease_seconds = {}\n{}", LEASE.as_secs(), subscriptions(SUBSCRIPTIONS, sink))
}

/// Kills the primary and promotes its synchronous standby; returns the time from the moment at which the standby
/// accepts writes to the next response that a message is stored.
fn failover(folder: &Path) -> Duration {
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let mut pair = ServerPair::start();
    let [primary, standby] = pair.ports();
    let store = format!("postgres://tidings@127.0.0.1:{primary},127.0.0.1:{standby}/{DATABASE}?sslmode=disable");
    let folder = folder.join(format!("failover-{}", ROUND.fetch_add(1, Ordering::Relaxed)));
    let node = node(&folder, &store, "a", "");
    let senders = Senders::start(&node);
    wait_until("messages are stored", || senders.newest().is_some());
    let promoted = std::thread::spawn(move || promoted_at(standby));
    pair.fail_over();
    let promoted = promoted.join().unwrap();
    wait_until("messages are stored again", || senders.newest().is_some_and(|newest| newest > promoted));
    senders.first_after(promoted) - promoted
}

/// Returns the moment at which a standby accepts writes.
fn promoted_at(port: u16) -> Instant {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let standby = format!("host=127.0.0.1 port={port} user=tidings dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&standby, NoTls).await.unwrap();
        tokio::spawn(connection);
        loop {
            let row = client.query_one("SELECT pg_is_in_recovery()", &[]).await.unwrap();
            if !row.get::<_, bool>(0) {
                return Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// Senders that post messages until they are dropped.
struct Senders {
    stored: Arc<Mutex<Vec<Instant>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Senders {
    fn start(node: &Server) -> Self {
        let (stored, stop) = (Arc::<Mutex<Vec<Instant>>>::default(), Arc::<AtomicBool>::default());
        let thread = |sender| {
            let (url, stored, stop) = (node.url.clone(), Arc::clone(&stored), Arc::clone(&stop));
            std::thread::spawn(move || send(&format!("{url}/hooks/content-change"), sender, &stored, &stop))
        };
        let threads = (0..SENDERS).map(thread).collect();
        Self { stored, stop, threads }
    }

    /// Returns the time of the last response that a message is stored.
    fn newest(&self) -> Option<Instant> {
        self.stored.lock().unwrap().last().copied()
    }

    fn first_after(&self, moment: Instant) -> Instant {
        self.stored.lock().unwrap().iter().copied().filter(|time| *time > moment).min().unwrap()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn send(url: &str, sender: u64, stored: &Mutex<Vec<Instant>>, stop: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut numbers = (0..).map(|number| number * SENDERS + sender);
        while !stop.load(Ordering::Relaxed) {
            let object = format!("http://h.example/objects/{}", numbers.next().unwrap());
            let message = serde_json::json!({ "object": object, "items": [{ "uri": object, "change": "ADD" }] });
            let post = http.post(url).header("content-type", "application/json").body(message.to_string());
            match post.send().await {
                Ok(response) if response.status().is_success() => stored.lock().unwrap().push(Instant::now()),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    });
}
