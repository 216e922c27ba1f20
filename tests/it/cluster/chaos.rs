//! Messages pass over HTTP, RabbitMQ and STOMP through three nodes on a primary and a synchronous standby, while nodes are
//! killed, suspended, terminated and cut off, and the database is restarted and replaced at random. Every acknowledged
//! message becomes one change, also without an event key, and each subscriber gets every change in order, with repeats
//! only under the same identifier.
//!
//! `SEED` repeats the choices of a run. `TIDINGS_TEST_CHANGES`, `TIDINGS_TEST_FAULTS` and `TIDINGS_TEST_FAULT_KINDS` make
//! the test longer or narrow it (see CONTRIBUTING.md).

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::support::{
    activemq,
    chaos::{self, ReceivedChanges, RecordRequest},
    cluster_faults::{Fault, FaultyCluster, NODES},
    duty_audit,
    gateway::{Gateway, free_address},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    message_load::{Destinations, MessageLoad},
    moving_readers::MovingReader,
    nodes_fixture::until,
    postgres_pair::PrimaryAddress,
    rabbitmq::{Broker, Vhost},
    reconnecting_client::{Progress, consume},
    shared_journal_checks::{assert_numbers, assert_tables_agree, assert_verified},
    stomp_client,
    subscription_fixture::index,
    webhook_fixture::{record_changes, webhook},
    websub_fixture::{LOCAL, challenge, record_entries, try_subscribe},
};

/// Exchange of the AMQP source.
const EXCHANGE: &str = "events";

/// URL of all nodes for people and subscribers.
const PUBLIC_URL: &str = "http://tidings.example";

/// Names of the sources that run under a duty.
const SOURCES: [&str; 2] = ["rabbitmq", "stomp"];

/// Returns a number from the environment, or `usual`.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}")))
}

/// Returns the faults in random order: each kind at least once, if there are enough faults.
fn faults(random: &mut fastrand::Rng) -> Vec<Fault> {
    let kinds = std::env::var("TIDINGS_TEST_FAULT_KINDS");
    let kinds = kinds.map_or(Fault::ALL.to_vec(), |names| names.split(',').map(Fault::named).collect());
    let count = usize::try_from(number("TIDINGS_TEST_FAULTS", 8)).unwrap();
    let mut faults = kinds.clone();
    random.shuffle(&mut faults);
    faults
        .extend(std::iter::repeat_with(|| kinds[random.usize(..kinds.len())]).take(count.saturating_sub(kinds.len())));
    faults.truncate(count);
    random.shuffle(&mut faults);
    faults
}

/// Folder with the logs of the nodes, which stays if the test fails.
struct LogFolder(TempDir);

#[expect(clippy::print_stderr, reason = "prints the folder of a failed run")]
impl Drop for LogFolder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("the logs of the nodes are in {}", self.0.path().display());
        }
    }
}

/// Prints the progress of the subscriptions and the holders of the duties if the test fails, to show who stands still.
struct ProgressReport(PrimaryAddress);

#[expect(clippy::print_stderr, reason = "describes a failed run")]
impl Drop for ProgressReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for sql in [
                "SELECT string_agg(format('%s at %s of %s', s.name, cursor, head), '; ') FROM subscriptions s, journal_head",
                "SELECT string_agg(format('%s at %s', d.name, n.name), '; ') FROM duties d JOIN nodes n ON holder = instance",
            ] {
                eprintln!("{}", self.0.try_query(sql).unwrap_or_else(|| "the database does not answer".to_owned()));
            }
        }
    }
}

/// Returns the configuration of the nodes.
fn lines(vhost: &Vhost<'_>, stomp: &activemq::Broker, queue: &str, receivers: [SocketAddr; 2]) -> String {
    let [single, batches] = receivers.map(|address| format!("http://{address}/"));
    let [rabbitmq_source, stomp_source] = SOURCES;
    format!(
        "[server]\npublic_url = \"{PUBLIC_URL}\"\n[journal]\ntail_changes = 300\n\
         [log]\nfilter = \"info,tidings::cluster=debug,tidings::delivery=debug\"\n{LOCAL}\
         [sources.{rabbitmq_source}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{}\"\n\
         exchange = \"{EXCHANGE}\"\nqueue = \"tidings.events\"\nbindings = [\"events\"]\n\
         [sources.{stomp_source}]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"{}\"\n\
         destination = \"{queue}\"\nacknowledge = \"individual\"\n",
        vhost.url(),
        stomp.url()
    ) + &index(&vhost.url(), "")
        + &webhook("single", &single, "answer_seconds = 1")
        + &webhook("batches", &batches, "answer_seconds = 1\nmax_batch = 20")
}

/// Subscribers of every kind, which run until they are aborted.
struct Subscribers {
    received: Vec<Arc<ReceivedChanges>>,
    amqp: Arc<Progress>,
    tasks: JoinSet<()>,
}

impl Subscribers {
    fn start(urls: &[String], broker: String, receivers: &Receivers, random: &mut fastrand::Rng) -> Self {
        let (mut tasks, amqp, mut received) = (JoinSet::new(), Arc::<Progress>::default(), Vec::new());
        let webhooks = receivers.webhooks.map(|address| (address, 1000, record_changes as RecordRequest));
        let hub = receivers.hub.map(|address| (address, 1000, record_entries as RecordRequest));
        for (address, seldom, record) in webhooks.into_iter().chain(hub) {
            let own = Arc::<ReceivedChanges>::default();
            received.push(Arc::clone(&own));
            tasks.spawn(chaos::receive(address, (own, seldom, record), random.fork(), CancellationToken::new()));
        }
        tasks.spawn(renew(urls.to_owned(), receivers.hub, random.fork()));
        for number in 0..4 {
            let own = Arc::<ReceivedChanges>::default();
            let reader = MovingReader::new(urls, random.fork(), &own);
            received.push(own);
            match number % 2 {
                0 => tasks.spawn(reader.follow()),
                _ => tasks.spawn(reader.poll()),
            };
        }
        let progress = Arc::clone(&amqp);
        tasks.spawn(async move { consume(&broker, "index", usize::MAX, &progress).await });
        Self { received, amqp, tasks }
    }

    /// Returns how many changes the slowest subscriber has received.
    fn slowest(&self) -> u64 {
        let amqp = self.amqp.counts().ids.len() as u64;
        self.received.iter().map(|received| received.count()).chain([amqp]).min().unwrap_or(0)
    }

    /// Ends the subscribers; panics unless each has every change in order.
    #[expect(clippy::print_stderr, reason = "prints the number of repeats")]
    async fn assert_complete(mut self, changes: &[serde_json::Value]) {
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            assert!(ended.as_ref().is_err_and(JoinError::is_cancelled), "a subscriber has ended: {ended:?}");
        }
        let by_amqp = ReceivedChanges::default();
        self.amqp.counts().received.iter().for_each(|message| by_amqp.record(message.seq, &message.id));
        let mut repeats: Vec<_> = self.received.iter().map(|received| received.assert_complete(changes)).collect();
        repeats.push(by_amqp.assert_complete(changes));
        eprintln!("repeats at webhooks, WebSub callbacks, readers and AMQP: {repeats:?}");
    }
}

/// Addresses of the subscribers with an HTTP server.
struct Receivers {
    webhooks: [SocketAddr; 2],
    /// Callbacks of WebSub subscribers.
    hub: [SocketAddr; 2],
}

impl Receivers {
    fn new() -> Self {
        let addresses = || [(); 2].map(|()| free_address().parse().unwrap());
        Self { webhooks: addresses(), hub: addresses() }
    }

    /// Subscribes at the hubs of these nodes.
    async fn subscribe(&self, urls: &[String], primary: &PrimaryAddress) {
        let confirm = |address| Receiver::at(address, |_, request| Reply::Answer(200, vec![], challenge(request)));
        let [one, two] = self.hub.map(confirm);
        let _running = (one.await, two.await);
        for (address, url) in self.hub.iter().zip(urls) {
            assert!(try_subscribe(url, &callback(*address), &format!("{PUBLIC_URL}/feed")).await);
        }
        until("the subscriptions are verified", async || {
            primary.query("SELECT count(*) FROM subscriptions WHERE made_by = 'hub'") == self.hub.len().to_string()
        })
        .await;
    }
}

fn callback(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// Renews the subscriptions at the hub of any node, again and again. A request may be lost with its node.
async fn renew(urls: Vec<String>, callbacks: [SocketAddr; 2], mut random: fastrand::Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(500..2000))).await;
        let (url, address) = (&urls[random.usize(..urls.len())], callbacks[random.usize(..callbacks.len())]);
        try_subscribe(url, &callback(address), &format!("{PUBLIC_URL}/feed")).await;
    }
}

/// Waits until the queues have readers and the queue of the AMQP subscription exists.
async fn until_ready(gateways: &[impl std::ops::Deref<Target = Gateway>]) {
    until("the sources are read", async || {
        let mut connected = 0;
        for gateway in gateways {
            let sources = gateway.json("/sources").await["sources"].as_array().unwrap().clone();
            connected += sources.iter().filter(|source| source["connection"]["state"] == "connected").count();
        }
        connected == SOURCES.len()
    })
    .await;
}

#[allow(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_lose_nothing_while_they_and_the_database_fail() {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let count = number("TIDINGS_TEST_CHANGES", 2500);
    let mut random = fastrand::Rng::with_seed(seed);
    let faults = faults(&mut random);
    eprintln!("SEED={seed}, {count} messages, {faults:?}");

    let (vhost, stomp) = (Broker::shared().vhost(), activemq::Broker::shared());
    let queue = format!("/queue/{}", stomp.name());
    let receivers = Receivers::new();
    let folder = LogFolder(tempfile::tempdir().unwrap());
    configuration(folder.0.path(), &lines(&vhost, stomp, &queue, receivers.webhooks));
    let rabbitmq = vhost.client().await;
    rabbitmq.exchange(EXCHANGE).await;

    let mut cluster = FaultyCluster::start(folder.0.path(), random.fork()).await;
    let primary = cluster.primary.clone();
    let _report = ProgressReport(primary.clone());
    duty_audit::start(|sql| primary.query(sql), &SOURCES);
    until_ready(&cluster.gateways()).await;
    let urls = cluster.urls();
    receivers.subscribe(&urls, &primary).await;
    let subscribers = Subscribers::start(&urls, vhost.url(), &receivers, &mut random);
    let (gateways, stomp) = (urls.clone(), stomp_client::Client::connect(stomp.port));
    let load =
        MessageLoad::start(count, Destinations { gateways, rabbitmq, exchange: EXCHANGE, stomp, queue }, &mut random);
    let outcome = load.outcome();

    let began = Instant::now();
    let share = count / (faults.len() as u64 + 1);
    for (number, fault) in faults.iter().enumerate() {
        let from = share * number as u64;
        load.open(from + share);
        // At once, at a number of accepted messages, or at a number that every subscriber has received.
        let moment = from + random.u64(..share);
        match random.u8(..3) {
            0 => {}
            1 => chaos::until(moment, || outcome.accepted()).await,
            _ => chaos::until(moment, || subscribers.slowest()).await,
        }
        cluster.strike(*fault).await;
    }
    load.open(count);
    cluster.until_repaired().await;
    eprintln!("{:?}: all are repaired, {} messages are accepted", began.elapsed(), outcome.accepted());
    chaos::until(count, || outcome.accepted()).await;
    load.join(&urls).await;
    let total = primary.query("SELECT count(*) FROM changes").parse().unwrap();
    eprintln!("{:?}: all are accepted, {total} changes", began.elapsed());
    chaos::until(total, || subscribers.slowest()).await;
    eprintln!("{:?}: all have arrived", began.elapsed());

    check_views(&cluster.gateways(), total).await;
    let changes = cluster.gateways()[0].changes().await;
    let unanswered = outcome.assert_journaled(count, &changes);
    eprintln!("{unanswered} messages without a key became changes without a response");
    let failovers = faults.iter().filter(|fault| **fault == Fault::Failover).count();
    subscribers.assert_complete(&changes).await;
    until("all cursors are at the head", async || {
        primary.query("SELECT bool_and(cursor = head) FROM subscriptions, journal_head") == "t"
    })
    .await;
    for gateway in cluster.gateways() {
        gateway.signal("TERM");
    }
    for mut gateway in cluster.gateways() {
        assert!(tokio::task::block_in_place(|| gateway.wait()).success());
    }
    assert_eq!(primary.query("SELECT count(*) FROM nodes"), "0");
    assert_numbers(&primary, &changes, failovers);
    assert_tables_agree(&primary);
    assert_verified(&primary);
    duty_audit::assert_no_strays(|sql| primary.query(sql));
    check_logs(folder.0.path());
}

/// Panics unless all nodes show the same changes.
async fn check_views(gateways: &[impl std::ops::Deref<Target = Gateway>], count: u64) {
    let mut shown = Vec::new();
    for gateway in gateways {
        until("the node has every change", async || gateway.changes().await.len() as u64 >= count).await;
        shown.push(gateway.changes().await);
    }
    assert!(shown.iter().all(|changes| *changes == shown[0]), "all nodes show the same changes");
}

/// Panics if a node has logged a panic, or an error other than that the database did not answer for a while.
fn check_logs(folder: &Path) {
    for name in NODES {
        let log = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap();
        let is_error = |line: &&str| line.contains("ERROR") && !line.contains("the journal's storage is not available");
        let wrong: Vec<_> = log.lines().filter(|line| is_error(line) || line.contains("panicked")).collect();
        assert!(wrong.is_empty(), "node {name}: {wrong:#?}");
    }
}
