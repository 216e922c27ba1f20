//! Several nodes with one journal in PostgreSQL: what the readers of each node see, and what a lost connection does to
//! messages without an event key.

use std::{
    future::{Future, poll_fn},
    path::Path,
    task::Poll,
    time::Duration,
};

use futures_util::future::join_all;
use tidings::{
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission, TailBounds,
        settle::SourcePolicy,
        store::{
            PostgresUrl,
            postgres::{PostgresOptions, PostgresStore},
        },
    },
    model::{Draft, Seq, SourceName},
};
use tokio::time::timeout;
use tokio_postgres::NoTls;

use crate::support::{
    broker_process::wait_until,
    cutting_proxy::CuttingProxy,
    gateway::PATIENCE,
    journal_fixture::event,
    postgres::{self, Server, options, query},
};

/// Message with which the server reports a successful commit.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

/// Message with which the store asks for a commit.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// A node in the process of the test.
struct Node {
    journal: Journal,
    threads: JournalThreads,
}

impl Node {
    fn start(folder: &Path, name: &str) -> Self {
        Self::of(postgres::open(folder, PostgresOptions { connection: postgres::node(name), ..options() }))
    }

    fn of(store: PostgresStore) -> Self {
        let tail = TailBounds { changes: 10, ..TailBounds::default() };
        let (journal, threads) = Journal::start(store, JournalSettings { tail, ..JournalSettings::default() }).unwrap();
        Self { journal, threads }
    }

    async fn append(&self, number: u64) -> Seq {
        append(&self.journal, number).await
    }

    fn close(self) {
        drop(self.journal);
        self.threads.join();
    }
}

/// Appends the event with this number, without an event key.
async fn append(journal: &Journal, number: u64) -> Seq {
    let policy = SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false };
    let draft: Draft = serde_json::from_value(event(number)).unwrap();
    let submission = Submission {
        drafts: vec![(None, draft)],
        policy: policy.into(),
        duplicate_policy: DuplicatePolicy::RememberChanges,
        completes: None,
    };
    match journal.append(submission).await.unwrap()[..] {
        [DraftOutcome::Accepted { seq, .. }] => seq,
        ref other => panic!("{other:?}"),
    }
}

/// Follows a journal as a stream does, until it has seen `count` changes.
async fn follow(journal: Journal, count: usize) -> Vec<u64> {
    let (mut head, mut seen) = (journal.watch(), Vec::new());
    while seen.len() < count {
        let last = seen.last().copied().unwrap_or_default();
        timeout(PATIENCE, head.wait_for(|head| head.0 > last)).await.unwrap().unwrap();
        let page = journal.after(Seq(last), 1000).await.unwrap();
        assert!(!page.is_empty(), "the head was moved before the changes can be read");
        seen.extend(page.iter().map(|change| change.seq().0));
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_that_arrive_while_another_node_writes_share_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), "a");
    node.append(1).await;
    let (other, connection) = tokio_postgres::connect(&postgres::connection(folder.path()), NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; SELECT FROM tidings.journal_head FOR UPDATE").await.unwrap();
    let (journal, first) = (node.journal.clone(), 2);
    let first = tokio::spawn(async move { append(&journal, first).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'tidings/a' AND wait_event_type = 'Lock' AND datname = current_database()";
    wait_until("the node waits for the other one", || query(folder.path(), waiting) == "1");
    let mut others = Box::pin(join_all((3..20).map(|number| node.append(number))));
    // The first poll sends the messages to the writer.
    poll_fn(|context| Poll::Ready(others.as_mut().poll(context).is_ready())).await;
    other.batch_execute("COMMIT").await.unwrap();
    timeout(PATIENCE, others).await.unwrap();
    first.await.unwrap();
    assert_eq!(query(folder.path(), "SELECT count(DISTINCT xmin::text) FROM changes WHERE seq > 1"), "1");
    node.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_each_node_see_every_change_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = ["a", "b", "idle"].map(|name| Node::start(folder.path(), name));
    let readers: Vec<_> = nodes.iter().map(|node| tokio::spawn(follow(node.journal.clone(), 200))).collect();
    let [a, b, _] = &nodes;
    let write = async |node: &Node, first: u64| {
        for number in 0..100 {
            let seq = node.append(first + number).await;
            assert!(node.journal.head() >= seq, "a node shows its own change before it acknowledges it");
        }
    };
    tokio::join!(write(a, 0), write(b, 1000));
    for reader in readers {
        assert_eq!(reader.await.unwrap(), (1..=200).collect::<Vec<_>>());
    }
    nodes.into_iter().for_each(Node::close);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_learns_what_another_node_has_removed() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| Node::start(folder.path(), name));
    for number in 0..9 {
        a.append(number).await;
    }
    assert_eq!(a.journal.prune(Seq(6), 100).await.unwrap(), 5);
    wait_until("the other node knows", || b.journal.first() == Seq(6));
    assert!(b.journal.after(Seq(2), 9).await.is_err());
    assert_eq!(b.journal.after(Seq(5), 9).await.unwrap().len(), 4);
    a.close();
    b.close();
}

/// Returns a node that is connected through a proxy.
fn proxied(folder: &Path, proxy: &CuttingProxy) -> Node {
    let database = query(folder, "SELECT current_database()");
    let url = format!("postgres://tidings@127.0.0.1:{}/{database}", proxy.port);
    Node::of(PostgresStore::open(&PostgresUrl::parse(&url).unwrap(), options()).unwrap())
}

async fn append_through(proxy: CuttingProxy) {
    let folder = tempfile::tempdir().unwrap();
    let node = proxied(folder.path(), &proxy);
    for number in 0..6 {
        proxy.cut(usize::try_from(number).unwrap() % 3);
        assert_eq!(node.append(number).await, Seq(number + 1));
        assert_eq!(node.journal.head(), Seq(number + 1));
        if number % 3 == 1 {
            assert_eq!(proxy.cuts_left(), 0);
        }
    }
    assert_eq!(query(folder.path(), "SELECT count(*), max(seq) FROM changes"), "6|6");
    node.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_key_whose_commit_was_carried_out_but_not_answered_is_written_once() {
    append_through(CuttingProxy::at_response(Server::shared().port, COMMITTED)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_without_key_whose_commit_did_not_arrive_is_written_once() {
    append_through(CuttingProxy::at_request(Server::shared().port, COMMIT)).await;
}

/// The writer stops although nobody can tell it the outcome of its last commit.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_outcome_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = CuttingProxy::at_response(Server::shared().port, COMMITTED);
    let node = proxied(folder.path(), &proxy);
    node.append(1).await;
    proxy.cut_for_good();
    let journal = node.journal.clone();
    let appending = tokio::spawn(async move { append(&journal, 2).await });
    wait_until("the connection is cut", || proxy.cuts_left() == 0);
    appending.abort();
    assert!(appending.await.unwrap_err().is_cancelled());
    let closing = tokio::task::spawn_blocking(move || node.close());
    timeout(Duration::from_secs(20), closing).await.unwrap().unwrap();
}
