//! A database that is far away: how long others wait for a batch with many rows.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::json;
use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission,
        harvest::{JobProgress, SourcePosition},
        ingest::{IngestJob, JobId, JobState},
        quarantine::NewQuarantinedMessage,
        settle::SourcePolicy,
        store::{
            PostgresUrl,
            postgres::{PostgresOptions, PostgresStore},
        },
    },
    model::{JsonDocument, SourceName, Text, Timestamp, Uri},
};

use crate::support::{
    breakable_proxy::BreakableProxy,
    journal_fixture::event,
    postgres::{self, Server, connection, options},
};

/// Time that everything needs in each direction.
const ONE_WAY: Duration = Duration::from_millis(10);

/// Number of jobs of a page, and of messages that cannot be parsed.
const ROWS: usize = 256;

/// Maximum time that a page may delay the message of somebody else. Rows in statements of four would delay it by 1.3 seconds.
/// Without other tests on the same processors, it is a tenth of a second.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Starts a node whose database is far away.
fn distant_node(folder: &Path, name: &str) -> (Journal, JournalThreads) {
    let local = connection(folder);
    let database = local.rsplit_once('/').unwrap().1;
    let proxy = BreakableProxy::start_distant(Server::shared().port, ONE_WAY);
    let url = PostgresUrl::parse(&format!("postgres://tidings@127.0.0.1:{}/{database}", proxy.port)).unwrap();
    let options = PostgresOptions { connection: postgres::node(name), ..options() };
    Journal::start(PostgresStore::open(&url, options).unwrap(), JournalSettings::default()).unwrap()
}

fn source(name: &str) -> SourceName {
    SourceName::parse(name).unwrap()
}

/// Returns new jobs of a source of datasets.
fn jobs() -> JobProgress {
    let job = |number: usize| {
        let dataset = format!("http://h/{number}");
        IngestJob {
            id: JobId::mint(),
            source: source("archive"),
            request: JsonDocument::new(&json!({ "base_url": dataset })).unwrap(),
            dataset: Uri::parse(&dataset).unwrap(),
            host: "h".to_owned(),
            state: JobState::Waiting,
            due: Some(Timestamp::EPOCH),
            attempts: 0,
            status: None,
            message: None,
            requested: Timestamp::EPOCH,
            updated: Timestamp::EPOCH,
        }
    };
    let position = SourcePosition { source: source("archive"), position: "1".into() };
    JobProgress { position, jobs: (0..ROWS).map(job).collect() }
}

fn unreadable() -> Vec<NewQuarantinedMessage> {
    let message = NewQuarantinedMessage {
        source: source("archive"),
        received: Timestamp::EPOCH,
        content_type: None,
        headers: Vec::new(),
        body: Bytes::from_static(b"?"),
        location: Text::default(),
        reason: Text::default(),
    };
    vec![message; ROWS]
}

fn post(number: u64) -> Submission {
    let policy = SourcePolicy { name: source("posts"), metadata_changes: false };
    let drafts = vec![(None, serde_json::from_value(event(number)).unwrap())];
    Submission { policy: policy.into(), drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn distant_database_a_page_of_many_rows_delays_others_little() {
    let folder = tempfile::tempdir().unwrap();
    let (harvesting, _threads) = distant_node(folder.path(), "a");
    let (posting, _other_threads) = distant_node(folder.path(), "b");
    // Connections are open, and statements are prepared.
    harvesting.append_results(Vec::new(), jobs()).await.unwrap();
    harvesting.quarantine_all(unreadable()).await.unwrap();
    posting.append(post(0)).await.unwrap();
    let are_written = AtomicBool::new(false);
    let pages = async {
        for _ in 0..5 {
            harvesting.append_results(Vec::new(), jobs()).await.unwrap();
            harvesting.quarantine_all(unreadable()).await.unwrap();
        }
        are_written.store(true, Ordering::Release);
    };
    let posts = async {
        let mut longest = Duration::ZERO;
        for number in 1.. {
            // At the same node the messages of both follow each other; at another they wait for the lock.
            let node = if number % 2 == 0 { &posting } else { &harvesting };
            let began = Instant::now();
            node.append(post(number)).await.unwrap();
            longest = longest.max(began.elapsed());
            if are_written.load(Ordering::Acquire) {
                break;
            }
        }
        longest
    };
    let ((), longest) = tokio::join!(pages, posts);
    assert!(longest < MAX_DELAY, "a message waited for {longest:?}");
}
