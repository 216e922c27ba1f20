//! Failover of the journal's database to a standby, with real servers and gateways.

use std::{fs::File, path::Path, process::Command, sync::Arc, time::Instant};

use crate::support::{
    broker_process::wait_until,
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::event,
    postgres::Server,
};

/// A primary with a standby, and the URL of a database on both.
struct Pair {
    primary: Server,
    standby: Server,
    url: String,
}

impl Pair {
    fn start() -> Self {
        let primary = Server::separate();
        primary.run("postgres", "CREATE DATABASE journal TEMPLATE template0");
        let standby = primary.start_standby();
        let url = primary.url_with(&standby, "journal");
        Self { primary, standby, url }
    }

    /// Starts a gateway with the journal on these servers.
    fn gateway(&self, folder: &Path, name: &str) -> Gateway {
        gateway(&self.url, folder, name)
    }
}

/// Starts a gateway with a data folder and a log of its own.
fn gateway(url: &str, folder: &Path, name: &str) -> Gateway {
    let mut serve = command();
    serve.env("TIDINGS_JOURNAL__STORE", url);
    serve.stderr(File::create(folder.join(format!("{name}.log"))).unwrap());
    Gateway::start_as(serve, &folder.join(name), &["--listen", "127.0.0.1:0"])
}

/// Posts an event until it is accepted; returns the number of its change.
async fn post(gateway: &Gateway, number: u64) -> u64 {
    let began = Instant::now();
    loop {
        let (status, answer) = gateway.post("content-change", "application/json", event(number).to_string()).await;
        if status == 201 || status == 200 {
            return answer["changes"][0]["seq"].as_u64().unwrap();
        }
        assert!(status == 503 && began.elapsed() < PATIENCE, "{status}: {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Returns the numbers of all changes.
async fn numbers(gateway: &Gateway) -> Vec<u64> {
    gateway.changes().await.iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

async fn status_after(gateway: &Gateway, cursor: u64) -> u16 {
    let url = format!("{}/changes?after={cursor}", gateway.url);
    gateway.http.get(url).send().await.unwrap().status().as_u16()
}

async fn journal_id(gateway: &Gateway) -> String {
    let feed = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap().text().await.unwrap();
    let (_, rest) = feed.split_once("<id>").unwrap();
    rest.split_once("</id>").unwrap().0.to_owned()
}

#[tokio::test]
async fn promotion_of_a_synchronous_standby_loses_nothing() {
    let pair = Pair::start();
    pair.primary.set_synchronous_standbys("standby");
    let folder = tempfile::tempdir().unwrap();
    let gateway = pair.gateway(folder.path(), "a");
    for number in 1..=20 {
        assert_eq!(post(&gateway, number).await, number);
    }
    let id = journal_id(&gateway).await;
    pair.primary.kill();
    pair.standby.promote();
    let next = post(&gateway, 21).await;
    assert!(next > 100_000_000_000, "{next}");
    assert_eq!(post(&gateway, 7).await, 7, "a repeat");
    assert_eq!(numbers(&gateway).await, (1..=20).chain([next]).collect::<Vec<_>>());
    assert_eq!(status_after(&gateway, 20).await, 200, "no reader starts again");
    assert_ne!(journal_id(&gateway).await, id);
    let log = std::fs::read_to_string(folder.path().join("a.log")).unwrap();
    assert!(log.contains("is a promoted standby") && !log.contains("has lost changes"), "{log}");
    assert!(log.contains("survive the loss of the journal's database server"), "{log}");
    assert!(log.contains("set fsync and full_page_writes to on"), "{log}");
}

#[tokio::test]
async fn promotion_without_the_newest_changes_gives_no_number_twice_and_readers_beyond_start_again() {
    let pair = Pair::start();
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| pair.gateway(folder.path(), name));
    for number in 1..=5 {
        post(&a, number).await;
    }
    let position = pair.primary.run("journal", "SELECT pg_current_wal_lsn()");
    let has_it = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
    wait_until("the standby has the changes", || pair.standby.run("postgres", &has_it) == "t");
    let receiver = pair.standby.suspend_replication();
    for number in 6..=8 {
        post(&a, number).await;
    }
    while b.head().await < 8 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    pair.primary.kill();
    let killed = Command::new("kill").args(["-KILL", &receiver]).status().unwrap();
    assert!(killed.success());
    pair.standby.promote();

    let next = post(&a, 9).await;
    assert!(next > 100_000_000_000, "{next}");
    assert!(post(&b, 7).await > next, "a lost event is accepted again under a new number");
    for gateway in [&a, &b] {
        let began = Instant::now();
        while numbers(gateway).await.len() < 7 {
            assert!(began.elapsed() < PATIENCE);
        }
        assert_eq!(numbers(gateway).await, [1, 2, 3, 4, 5, next, next + 1]);
        for (cursor, status) in [(4, 200), (5, 200), (6, 410), (7, 410), (8, 410), (next, 200)] {
            assert_eq!(status_after(gateway, cursor).await, status, "{cursor}");
        }
    }
    assert_eq!(journal_id(&a).await, journal_id(&b).await);
    for name in ["a", "b"] {
        let log = || std::fs::read_to_string(folder.path().join(format!("{name}.log"))).unwrap();
        wait_until("the node reports the loss", || log().contains("has lost changes"));
        let log = log();
        assert!(log.contains("the newest of them may be lost if a standby replaces it"), "{log}");
        assert!(log.contains("first_seq=6") && log.contains("last_seq=8"), "{log}");
    }
}

/// Without its synchronous standby the primary does not confirm a commit. Nothing is acknowledged until the standby is
/// back, also if an operator cancels the wait.
#[tokio::test(flavor = "multi_thread")]
async fn commit_that_did_not_reach_the_synchronous_standby_is_not_acknowledged() {
    let pair = Pair::start();
    pair.primary.set_synchronous_standbys("standby");
    let folder = tempfile::tempdir().unwrap();
    let gateway = pair.gateway(folder.path(), "a");
    post(&gateway, 1).await;
    let receiver = pair.standby.suspend_replication();
    // Other sessions may wait for the standby as well, such as the server's own vacuum.
    let waiting = |query: &str| format!("FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '{query}'");
    let is_waiting =
        |query: &str| pair.primary.run("journal", &format!("SELECT count(*) > 0 {}", waiting(query))) == "t";
    let resume = || {
        wait_until("the commit waits", || is_waiting("COMMIT"));
        pair.primary.run("journal", &format!("SELECT count(pg_cancel_backend(pid)) {}", waiting("COMMIT")));
        // The gateway asks for the outcome in a transaction that waits for the standby as well.
        wait_until("the gateway asks", || is_waiting("INSERT INTO writers AS stored%"));
        let resuming = Instant::now();
        assert!(Command::new("kill").args(["-CONT", &receiver]).status().unwrap().success());
        resuming
    };
    let posting = tokio::spawn(async move {
        let seq = post(&gateway, 2).await;
        (gateway, seq, Instant::now())
    });
    let resumed = tokio::task::block_in_place(resume);
    let (gateway, seq, acknowledged) = posting.await.unwrap();
    assert_eq!(seq, 2);
    assert!(acknowledged >= resumed, "acknowledged before the standby had it");
    assert_eq!(numbers(&gateway).await, [1, 2]);
}

/// The server crashes and is started again while two nodes write.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_the_server_lose_no_acknowledged_change_and_repeat_none() {
    const EVENTS: u64 = 60;
    let mut server = Server::separate();
    let url = server.create_database();
    let folder = tempfile::tempdir().unwrap();
    let gateways = ["a", "b"].map(|name| Arc::new(gateway(&url, folder.path(), name)));
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let gateway = Arc::clone(&gateways[sender % 2]);
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for event in 0..EVENTS {
                    acknowledged.push(post(&gateway, sender as u64 * 1000 + event).await);
                }
                acknowledged
            })
        })
        .collect();
    let (_, database) = url.rsplit_once('/').unwrap();
    tokio::task::block_in_place(|| {
        for changes in [20, 120] {
            let count = format!("SELECT count(*) >= {changes} FROM tidings.changes");
            wait_until("some changes are written", || server.run(database, &count) == "t");
            server.crash();
            server.start_again();
        }
    });
    let mut acknowledged = Vec::new();
    for sender in senders {
        acknowledged.extend(sender.await.unwrap());
    }
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, (1..=4 * EVENTS).collect::<Vec<_>>());
    for gateway in &gateways {
        let began = Instant::now();
        while gateway.head().await < 4 * EVENTS {
            assert!(began.elapsed() < PATIENCE);
        }
        assert_eq!(numbers(gateway).await, acknowledged);
    }
}
