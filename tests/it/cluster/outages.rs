//! The database stalls, or the role loses its rights: requests get 503 within a few seconds, and the log has a line when
//! an outage begins and one when it has ended.

use std::time::{Duration, Instant};

use crate::support::{
    breakable_proxy::{BreakableProxy, Link},
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    journal_fixture::event,
    nodes_fixture::{SharedJournal, until},
    postgres::Server,
    subscription_fixture::post,
    webhook_fixture::webhook,
};

/// Maximum time until a request is refused.
const REFUSAL: Duration = Duration::from_secs(6);

async fn status(node: &Gateway, path: &str) -> (u16, Duration) {
    let began = Instant::now();
    let answer = node.http.get(format!("{}{path}", node.url)).send().await.unwrap();
    (answer.status().as_u16(), began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused_soon_while_the_database_stalls_and_the_log_stays_short() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let journal = SharedJournal::with_lease(&webhook("index", &receiver.url(), ""), Duration::from_secs(10));
    let proxy = BreakableProxy::start(Server::shared().port);
    let node = journal.node_through("a", proxy.port);
    for number in 1..=3 {
        post(&node, number).await;
    }
    receiver.until(3).await;
    assert_eq!(status(&node, "/readyz").await.0, 200);
    let before = journal.log("a").lines().count();
    proxy.set_link(Link::Silent);
    // All at once, because they must not wait for each other either.
    let paths = ["/readyz", "/changes?after=0", "/stream?after=3", "/feed", "/snapshot", "/readyz", "/feed", "/feed"];
    let answers = futures_util::future::join_all(paths.map(|path| status(&node, path))).await;
    for (path, (status, took)) in paths.into_iter().zip(&answers) {
        // These changes are in memory.
        let is_served = path.starts_with("/changes") || path.starts_with("/stream");
        assert_eq!(*status, if is_served { 200 } else { 503 }, "{path}: {answers:?}");
        assert!(*took < REFUSAL, "{path}: {answers:?}");
    }
    let mut posts = Vec::new();
    for number in 10..40 {
        let (status, _) = node.post("content-change", "application/json", event(number).to_string()).await;
        posts.push(status);
        if posts.len() > 3 && status == 503 {
            break;
        }
    }
    assert!(posts.contains(&503), "{posts:?}");
    for path in ["/readyz", "/feed"] {
        let (status, took) = status(&node, path).await;
        assert!(status == 503 && took < REFUSAL, "{path}: {status} {took:?}");
    }
    proxy.set_link(Link::Open);
    until("the node is ready", async || status(&node, "/readyz").await.0 == 200).await;
    post(&node, 50).await;
    until("the change is delivered", async || receiver.requests().iter().any(|request| request.seq() > 3)).await;
    let log = journal.log("a");
    let lines: Vec<_> =
        log.lines().skip(before).filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    assert!(lines.len() <= 12, "{lines:#?}");
    for work in ["read the journal", "write the journal"] {
        let count = |text: String| log.lines().skip(before).filter(|line| line.contains(&text)).count();
        let (begun, ended) = (count(format!(" cannot {work}")), count(format!(" can {work} again")));
        // A request that began in the outage may end after the first one that succeeds.
        assert!((1..=2).contains(&begun) && begun == ended, "{work}: {begun}, {ended}: {log}");
    }
    assert!(node.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_without_rights_on_the_schema_is_reported_as_such() {
    let server = Server::separate();
    server.run("postgres", "CREATE ROLE node LOGIN PASSWORD 'secret'");
    server.run("postgres", "CREATE DATABASE journal OWNER node TEMPLATE template0");
    let folder = tempfile::tempdir().unwrap();
    let mut serve = crate::support::gateway::command();
    serve.env(
        "TIDINGS_JOURNAL__STORE",
        format!("postgres://node:secret@127.0.0.1:{}/journal?sslmode=disable", server.port),
    );
    let node = Gateway::start_as(serve, folder.path(), &["--listen", "127.0.0.1:0"]);
    post(&node, 1).await;
    server.run("journal", "REVOKE USAGE ON SCHEMA tidings FROM node");
    let mut answers = Vec::new();
    for number in 2..5 {
        answers.push(node.post("content-change", "application/json", event(number).to_string()).await);
    }
    for (status, answer) in answers {
        let detail = answer["detail"].as_str().unwrap();
        assert_eq!(status, 503, "{answer}");
        assert!(detail.contains("no rights on the schema \"tidings\""), "{detail}");
        assert!(!detail.contains("damage") && !detail.contains("backup"), "{detail}");
    }
    assert_eq!(status(&node, "/readyz").await.0, 503);
    server.run("journal", "GRANT USAGE ON SCHEMA tidings TO node");
    until("the node is ready", async || status(&node, "/readyz").await.0 == 200).await;
    post(&node, 9).await;
    assert!(node.stop().success());
}
