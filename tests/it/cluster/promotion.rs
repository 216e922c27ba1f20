//! A standby is promoted that lacks changes which receivers have got. Every subscription delivers all changes that are made
//! afterwards, from the running nodes and from nodes that start later, and no cursor is above the head.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use tidings::journal::store::{PostgresUrl, postgres::verify::verify};

use crate::support::{
    broker_process::wait_until,
    dbus_daemon::Bus,
    gateway::{Gateway, PATIENCE, command},
    http_receiver::{ReceivedRequest, Receiver, Reply},
    journal_fixture::{configuration, event},
    kafka,
    nodes_fixture::until,
    postgres::{self, Server},
    rabbitmq,
    reconnecting_client::{Progress, consume},
    subscription_fixture::index,
    webhook_fixture::{SECRET, webhook},
    websub_fixture,
    xesam_fixture::{self, Crawler},
};

/// Topic of the subscription that publishes to Kafka.
const TOPIC: &str = "tests.changes";

/// Nodes with subscriptions of each kind, on a primary and its standby.
struct Fixture {
    folder: tempfile::TempDir,
    primary: Server,
    standby: Server,
    config: String,
    single: Receiver,
    batches: Receiver,
    by_amqp: std::sync::Arc<Progress>,
    by_kafka: kafka::Broker,
    bus: Bus,
    nodes: Vec<Gateway>,
}

const NODES: [&str; 2] = ["a", "b"];

/// Prints the logs if a test fails.
impl Drop for Fixture {
    #[expect(clippy::print_stderr, reason = "prints the logs of a failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

impl Fixture {
    async fn start(is_synchronous: bool) -> Self {
        let primary = Server::separate();
        primary.run("postgres", "CREATE DATABASE journal TEMPLATE template0");
        let standby = primary.start_standby();
        if is_synchronous {
            primary.set_synchronous_standbys("standby");
        }
        let folder = tempfile::tempdir().unwrap();
        let vhost = rabbitmq::Broker::shared().vhost();
        let (single, batches) =
            (Receiver::start(|_, _| Reply::of(200)).await, Receiver::start(|_, _| Reply::of(200)).await);
        let (by_kafka, bus) = (kafka::Broker::start().await, Bus::start());
        by_kafka.create_topic(TOPIC, 2).await;
        let lines = "[server]\npublic_url = \"http://tidings.example\"\n[node]\nlease_seconds = 3\n".to_owned()
            + websub_fixture::LOCAL
            + &webhook("single", &single.url(), "")
            + &webhook("batches", &batches.url(), "max_batch = 20")
            + &index(&vhost.url(), "")
            + &kafka::subscription("topic", &by_kafka, TOPIC, "format = \"json\"")
            + &xesam_fixture::settings(&bus, "");
        let config = configuration(folder.path(), &lines);
        let (by_amqp, nodes) = (Default::default(), Vec::new());
        let mut fixture = Self { folder, primary, standby, config, single, batches, by_amqp, by_kafka, bus, nodes };
        fixture.start_nodes();
        until("the queue exists", async || {
            fixture.query("SELECT count(*) FROM duties WHERE name = 'subscription/index'") == "1"
        })
        .await;
        let (url, progress) = (vhost.url(), fixture.by_amqp.clone());
        tokio::spawn(async move { consume(&url, "index", 1000, &progress).await });
        fixture
    }

    fn start_nodes(&mut self) {
        let url = self.primary.url_with(&self.standby, "journal");
        self.nodes = NODES.map(|name| node(&url, self.folder.path(), &self.config, name)).into();
    }

    fn stop_nodes(&mut self) {
        for node in self.nodes.drain(..) {
            assert!(node.stop().success());
        }
    }

    fn kill_primary(&self, receiver: &str) {
        self.primary.kill();
        assert!(Command::new("kill").args(["-KILL", receiver]).status().unwrap().success());
        self.standby.promote();
    }

    /// Runs a query on the primary.
    fn query(&self, sql: &str) -> String {
        query(&self.primary, sql)
    }

    /// Runs a query on the promoted standby.
    fn query_promoted(&self, sql: &str) -> String {
        query(&self.standby, sql)
    }

    /// Posts five events, waits until all receivers and the standby have them, and ends the replication. Returns the
    /// process that was suspended.
    async fn post_five_and_suspend_replication(&self) -> String {
        for number in 1..=5 {
            self.post(0, number).await;
        }
        self.until_delivered(5).await;
        until_stored(&self.primary, 5).await;
        let position = self.primary.run("journal", "SELECT pg_current_wal_lsn()");
        let has_it = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
        wait_until("the standby has the changes", || self.standby.run("postgres", &has_it) == "t");
        self.standby.suspend_replication()
    }

    /// Installs a crawler that wants the records after a second, as soon as a node is on the bus.
    async fn crawler(&self, second: u64) -> Crawler {
        until("a node is on the bus", async || {
            let state = async |node: &Gateway| node.json("/subscriptions").await["dbus"]["connection"]["state"].clone();
            state(&self.nodes[0]).await == "connected" || state(&self.nodes[1]).await == "connected"
        })
        .await;
        let crawler = Crawler::start(&self.bus.address(), &json!({ "mtime": second }));
        crawler.until_event("installed").await;
        crawler
    }

    async fn post(&self, node: usize, number: u64) -> u64 {
        post(&self.nodes[node], number).await
    }

    /// Waits until a crawler has a record of the object of an event, or no node has the crawler any more: when the node of
    /// the target loses its duty, the name leaves the bus, and a crawler installs itself again for the records since its
    /// last one. Returns whether it has the record.
    async fn has_record_or_is_removed(&self, crawler: &Crawler, number: u64) -> bool {
        let path = format!("/objects/{number}/");
        let has_it = || crawler.records().iter().any(|record| format!("{}/", record.uri).contains(&path));
        let is_removed = async |node: &Gateway| {
            let view = node.json("/subscriptions").await;
            view["dbus"]["crawlers"].as_array().is_none_or(Vec::is_empty)
        };
        until("the crawler has the record, or is removed", async || {
            has_it() || (is_removed(&self.nodes[0]).await && is_removed(&self.nodes[1]).await)
        })
        .await;
        has_it()
    }

    /// Waits until all receivers have a change.
    async fn until_delivered(&self, seq: u64) {
        until("the webhook has the change", async || seqs(&self.single).contains(&seq)).await;
        until("the batches have the change", async || seqs(&self.batches).contains(&seq)).await;
        until("the queue has the change", async || {
            self.by_amqp.counts().received.iter().any(|message| message.seq == seq)
        })
        .await;
        until("the topic has the change", async || self.published().contains(&seq)).await;
    }

    /// Returns the numbers of the changes in the topic.
    fn published(&self) -> Vec<u64> {
        let messages = self.by_kafka.consume_with_librdkafka(TOPIC);
        messages.iter().map(|message| message["headers"]["seq"].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Waits until the stored cursors of the promoted database have reached a number, which is that of the newest change.
    async fn until_stored(&self, seq: u64) {
        until_stored(&self.standby, seq).await;
        assert_eq!(self.query_promoted("SELECT max(cursor) FROM subscriptions"), seq.to_string());
    }

    fn findings(&self) -> Vec<String> {
        let url = PostgresUrl::parse(&self.standby.connection("journal")).unwrap();
        verify(&url, &postgres::node("verify"), &mut |_, _| {}).unwrap().findings
    }

    fn logs(&self) -> String {
        NODES.map(|name| std::fs::read_to_string(log(self.folder.path(), name)).unwrap()).concat()
    }
}

/// Runs a query that returns one value.
fn query(server: &Server, sql: &str) -> String {
    let answer = server.run("journal", &format!("SET search_path = tidings; {sql}"));
    answer.trim_start_matches("SET").trim().to_owned()
}

/// Waits until no stored cursor of a database is below a number.
async fn until_stored(server: &Server, seq: u64) {
    let behind = format!("SELECT count(*) FROM subscriptions WHERE cursor < {seq}");
    until("the cursors are stored", async || query(server, &behind) == "0").await;
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn node(url: &str, folder: &Path, config: &str, name: &str) -> Gateway {
    let mut serve = command();
    serve.env("TIDINGS_JOURNAL__STORE", url).env("TIDINGS_NODE__NAME", name).env("TIDINGS_SECRET_KEY", SECRET);
    serve.stderr(File::options().create(true).append(true).open(log(folder, name)).unwrap());
    Gateway::start_as(serve, &folder.join(name), &["--listen", "127.0.0.1:0", "--config", config])
}

/// Posts an event until it is accepted; returns the number of its change.
async fn post(gateway: &Gateway, number: u64) -> u64 {
    let began = std::time::Instant::now();
    loop {
        let (status, answer) = gateway.post("content-change", "application/json", event(number).to_string()).await;
        if status == 201 || status == 200 {
            return answer["changes"][0]["seq"].as_u64().unwrap();
        }
        assert!(status == 503 && began.elapsed() < PATIENCE, "{status}: {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Returns the numbers of the changes that a webhook has received.
fn seqs(receiver: &Receiver) -> Vec<u64> {
    let seq = |change: &serde_json::Value| change["seq"].as_u64().unwrap();
    let of = |request: &ReceivedRequest| match request.json()["changes"].as_array() {
        Some(changes) => changes.iter().map(seq).collect(),
        None => vec![request.seq()],
    };
    receiver.requests().iter().flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_go_on_after_an_asynchronous_standby_was_promoted_without_their_changes() {
    let mut fixture = Fixture::start(false).await;
    let subscriber = websub_fixture::confirming_subscriber(&websub_fixture::ok_status()).await;
    websub_fixture::subscribe(&fixture.nodes[0], &subscriber.url(), "http://tidings.example/feed", &[]).await;
    until("the subscriber is verified", async || fixture.query("SELECT count(*) FROM subscriptions") == "5").await;
    let suspended = fixture.post_five_and_suspend_replication().await;
    let crawler = fixture.crawler(1).await;
    for number in 6..=8 {
        fixture.post(1, number).await;
    }
    fixture.until_delivered(8).await;
    until_stored(&fixture.primary, 8).await;
    assert!(fixture.has_record_or_is_removed(&crawler, 8).await);
    fixture.kill_primary(&suspended);

    let next = fixture.post(0, 9).await;
    assert!(next > 100_000_000_000, "{next}");
    fixture.until_delivered(next).await;
    let last = fixture.post(1, 10).await;
    fixture.until_delivered(last).await;
    fixture.until_stored(last).await;
    assert_eq!(
        fixture.query_promoted("SELECT count(*) FROM subscriptions WHERE cursor > (SELECT head FROM journal_head)"),
        "0"
    );
    let has_last = |request: &ReceivedRequest| String::from_utf8_lossy(&request.body).contains("/objects/10/");
    until("the subscriber of the hub has the change", async || subscriber.requests().iter().any(has_last)).await;
    // The crawler gets the changes too, at once or after it has installed itself again.
    if fixture.has_record_or_is_removed(&crawler, 10).await {
        assert!(fixture.has_record_or_is_removed(&crawler, 9).await);
    } else {
        let last = crawler.records().last().unwrap().second();
        let again = fixture.crawler(last).await;
        for number in [9, 10] {
            assert!(fixture.has_record_or_is_removed(&again, number).await);
        }
    }
    for receiver in [&fixture.single, &fixture.batches] {
        let received = seqs(receiver);
        let after: Vec<_> = received.iter().filter(|seq| **seq > 8).collect();
        assert!(after.contains(&&next) && after.contains(&&last), "{received:?}");
    }
    let logs = fixture.logs();
    assert!(logs.contains("the receiver may have got") && logs.contains("first_seq=6 last_seq=8"), "{logs}");
    assert!(!logs.contains("undelivered changes are no longer in the journal"), "{logs}");
    assert_eq!(fixture.findings(), [""; 0]);

    // Nodes that start later go on as well.
    fixture.stop_nodes();
    fixture.start_nodes();
    let later = fixture.post(0, 11).await;
    assert_eq!(later, last + 1);
    fixture.until_delivered(later).await;
    fixture.until_stored(later).await;

    // So do nodes that find cursors in the skipped range, as an older version has stored them.
    fixture.stop_nodes();
    fixture.query_promoted("UPDATE subscriptions SET cursor = 7");
    assert!(fixture.findings()[0].contains("is 7, but a restore or failover has skipped"), "{:?}", fixture.findings());
    fixture.start_nodes();
    let newest = fixture.post(1, 12).await;
    fixture.until_delivered(newest).await;
    fixture.until_stored(newest).await;
    fixture.stop_nodes();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_go_on_after_a_synchronous_standby_was_promoted_without_a_commit_that_was_visible_early() {
    let mut fixture = Fixture::start(true).await;
    let suspended = fixture.post_five_and_suspend_replication().await;
    let (http, hook) = (fixture.nodes[0].http.clone(), format!("{}/hooks/content-change", fixture.nodes[0].url));
    let posting =
        tokio::spawn(http.post(hook).header("content-type", "application/json").body(event(6).to_string()).send());
    // An administrator cancels the wait for the standby, and readers see the commit.
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT'";
    let cancel = format!("SELECT count(pg_cancel_backend(pid)) {waiting}");
    until("change 6 is visible", async || {
        fixture.primary.run("journal", &cancel);
        fixture.query("SELECT head FROM journal_head") == "6"
    })
    .await;
    fixture.until_delivered(6).await;
    fixture.kill_primary(&suspended);

    let next = fixture.post(1, 7).await;
    fixture.until_delivered(next).await;
    until_stored(&fixture.standby, next).await;
    assert!(posting.await.unwrap().is_ok());
    let last = fixture.post(0, 8).await;
    fixture.until_delivered(last).await;
    fixture.until_stored(last).await;
    assert_eq!(fixture.findings(), [""; 0]);
    fixture.stop_nodes();
}
