//! A node that is frozen, or cut off, inside a transaction holds up the others for a third of the lease and a second at
//! most, and loses its duties within the lease and a second. When it is back, nothing is lost or doubled.
//!
//! For the long form, `TIDINGS_TEST_TRIALS` gives the number of trials for each fault and each lease, 3 and 10 seconds:
//!
//!     TIDINGS_TEST_TRIALS=5 cargo test --test it lost_nodes -- --nocapture

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::{
    breakable_proxy::{BreakableProxy, Link},
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    nodes_fixture::{COMMON_DUTIES, LEASE, SharedJournal, until, until_spread},
    postgres::Server,
    subscription_fixture::event,
    webhook_fixture::webhook,
};

const SUBSCRIPTIONS: usize = 6;

/// What happens to the node.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGSTOP, then SIGCONT.
    Freeze,
    /// Nothing passes between the node and the database, and no connection is closed.
    Silence,
}

/// Posts events to nodes until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    posting: Vec<tokio::task::JoinHandle<Acknowledged>>,
}

/// Acknowledged events of one node.
struct Acknowledged {
    events: Vec<u64>,
    /// Longest time between two acknowledgements.
    longest_gap: Duration,
}

impl Load {
    fn start(nodes: &[&Gateway], number: &Arc<AtomicU64>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let post = |node: &&Gateway| {
            let (url, http) = (format!("{}/hooks/content-change", node.url), node.http.clone());
            let (stop, number) = (Arc::clone(&stop), Arc::clone(number));
            tokio::spawn(async move {
                let (mut events, mut longest_gap, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
                while !stop.load(Ordering::SeqCst) {
                    let number = number.fetch_add(1, Ordering::SeqCst);
                    let body = event(number).to_string();
                    let sent = http.post(&url).header("content-type", "application/json").body(body).send().await;
                    if sent.unwrap().status().is_success() {
                        longest_gap = longest_gap.max(last.elapsed());
                        last = Instant::now();
                        events.push(number);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Acknowledged { events, longest_gap: longest_gap.max(last.elapsed()) }
            })
        };
        let posting = nodes.iter().map(post).collect();
        Self { stop, posting }
    }

    async fn stop(self) -> Vec<Acknowledged> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for posting in self.posting {
            all.push(posting.await.unwrap());
        }
        all
    }
}

/// Leads a node into a transaction that holds the lock of the head, and begins the fault there: a session of the test has
/// the lock, the node waits for it, and gets it after the fault has begun.
async fn strike_inside_transaction(journal: &SharedJournal, node: &Gateway, proxy: &BreakableProxy, fault: Fault) {
    let url = Server::shared().connection(&journal.database);
    let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    holder.batch_execute("BEGIN; SELECT FROM tidings.journal_head FOR UPDATE").await.unwrap();
    let (hook, http) = (format!("{}/hooks/content-change", node.url), node.http.clone());
    // The answer comes when the node is back, or never.
    tokio::spawn(http.post(hook).header("content-type", "application/json").body(event(1_000_000).to_string()).send());
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidings/a' AND wait_event_type = 'Lock'
            AND datname = '{}'",
        journal.database
    );
    until("the node waits for the lock", async || journal.query(&waiting) == "1").await;
    match fault {
        Fault::Freeze => node.signal("STOP"),
        Fault::Silence => proxy.set_link(Link::Silent),
    }
    holder.batch_execute("COMMIT").await.unwrap();
}

/// Runs one trial; returns the longest time without an acknowledgement at each healthy node, and the time in which the
/// duties of the faulty one moved.
async fn trial(fault: Fault, lease: Duration) -> (Vec<Duration>, Duration) {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let subscription = |number| webhook(&format!("s{number}"), &format!("{}/{number}", receiver.url()), "");
    let journal = SharedJournal::with_lease(&(0..SUBSCRIPTIONS).map(subscription).collect::<String>(), lease);
    let proxy = BreakableProxy::start(Server::shared().port);
    let a = journal.node_through("a", proxy.port);
    let (b, c) = (journal.node("b"), journal.node("c"));
    until_spread(&journal, SUBSCRIPTIONS + COMMON_DUTIES, &["a", "b", "c"]).await;
    let number = Arc::new(AtomicU64::new(1));
    let load = Load::start(&[&b, &c], &number);
    until("events are accepted", async || number.load(Ordering::SeqCst) > 20).await;

    strike_inside_transaction(&journal, &a, &proxy, fault).await;
    let began = Instant::now();
    let left = "SELECT count(*) FROM duties JOIN nodes ON instance = holder WHERE nodes.name = 'a'";
    let all = "SELECT count(*) FROM duties";
    while journal.query(left) != "0" || journal.query(all) != (SUBSCRIPTIONS + COMMON_DUTIES).to_string() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let moved = began.elapsed();
    let acknowledged = load.stop().await;

    // The node is back, and takes part again.
    match fault {
        Fault::Freeze => a.signal("CONT"),
        Fault::Silence => proxy.set_link(Link::Open),
    }
    until_spread(&journal, SUBSCRIPTIONS + COMMON_DUTIES, &["a", "b", "c"]).await;
    let (status, answer) = a.post("content-change", "application/json", event(1_000_000).to_string()).await;
    assert!(status == 200 || status == 201, "{status}: {answer}");
    // After a silence of the database, readers try again after a pause.
    let is_ready = async || {
        let ready = a.http.get(format!("{}/readyz", a.url)).send().await.unwrap();
        ready.status().is_success()
    };
    until("the node reads the journal", is_ready).await;
    // Its reader may not have noticed the silence, and continues a little later.
    let head = journal.query("SELECT head FROM journal_head");
    until("the node has read the changes of the others", async || a.head().await.to_string() == head).await;
    let changes = a.changes().await;
    let numbers: Vec<_> = changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no number is missing or given twice");
    let keys: Vec<_> = changes.iter().map(|change| change["object"].to_string()).collect();
    let distinct: BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "no event is there twice");
    for number in acknowledged.iter().flat_map(|one| &one.events) {
        assert!(distinct.contains(&event(*number)["object"].to_string()), "the acknowledged event {number} is there");
    }
    assert!(a.stop().success() && b.stop().success() && c.stop().success());
    (acknowledged.into_iter().map(|one| one.longest_gap).collect(), moved)
}

#[expect(clippy::print_stderr, reason = "prints the figures of a long run")]
async fn check(fault: Fault, lease: Duration) {
    let (gaps, moved) = trial(fault, lease).await;
    eprintln!("{fault:?}, lease {lease:?}: no acknowledgement for {gaps:?}; duties moved after {moved:?}");
    for gap in gaps {
        assert!(gap <= lease / 3 + Duration::from_secs(1), "{fault:?}, lease {lease:?}: {gap:?}");
    }
    assert!(moved <= lease + Duration::from_secs(1), "{fault:?}, lease {lease:?}: {moved:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_nodes_hold_up_the_others_for_a_third_of_the_lease_at_most() {
    let Some(trials) = std::env::var("TIDINGS_TEST_TRIALS").ok().map(|trials| trials.parse::<usize>().unwrap()) else {
        check(Fault::Freeze, LEASE).await;
        check(Fault::Silence, LEASE).await;
        return;
    };
    for _ in 0..trials {
        for lease in [LEASE, Duration::from_secs(10)] {
            check(Fault::Freeze, lease).await;
            check(Fault::Silence, lease).await;
        }
    }
}

/// After a step of the clock of the database, the lease of a dead node ends in the far future by that clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duties_of_a_dead_node_move_although_the_clock_of_the_database_was_set_back() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let subscription = |number| webhook(&format!("s{number}"), &format!("{}/{number}", receiver.url()), "");
    let journal = SharedJournal::new(&(0..SUBSCRIPTIONS).map(subscription).collect::<String>());
    let (mut a, b) = (journal.node("a"), journal.node("b"));
    until_spread(&journal, SUBSCRIPTIONS + COMMON_DUTIES, &["a", "b"]).await;
    a.kill();
    // The row after a renewal with a clock that was ten minutes ahead.
    journal.query(
        "UPDATE nodes SET renewed = renewed + interval '10 min', expires = expires + interval '10 min'
            WHERE name = 'a'",
    );
    let took = until_spread(&journal, SUBSCRIPTIONS + COMMON_DUTIES, &["b"]).await;
    assert!(took <= LEASE + Duration::from_secs(1), "{took:?}");
    let again = journal.node("a");
    until_spread(&journal, SUBSCRIPTIONS + COMMON_DUTIES, &["a", "b"]).await;
    assert!(again.stop().success() && b.stop().success());
}
