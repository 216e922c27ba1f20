//! Hostile and huge documents of partners, read by the real program, by eight harvests and four dataset jobs at once. The
//! gateway keeps to its memory, answers, and takes messages from others meanwhile.
//!
//! `table` has the documents; a new one is one more row there. `TIDINGS_TEST_DOCUMENTS=8` makes each document of a harvest
//! eight times as large, which is near the limits of the default configuration; use a release build then.

mod datasets;
mod harvests;
mod table;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};

use self::{
    datasets::{Datasets, JOBS, SOURCES, numbered},
    harvests::{HARVESTS, Harvests},
    table::{DOCUMENTS, Partner},
};
use crate::support::{gateway::PATIENCE, resource_watch::WatchedGateway, scripted_platform::Answer};

/// Maximum resident memory of the program, in bytes.
const MOST_MEMORY: u64 = 450_000_000;

/// Maximum time of `/healthz`. The aim is 0.1 s in a release build on a machine that does nothing else. A debug build needs
/// 0.03 s there; the rest is for other tests, which use the same cores.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);

/// Maximum time of a post to another source: 0.1 s, and twenty times as much, because a debug build also writes slowly.
const LONGEST_POST: Duration = Duration::from_secs(2);

/// Pause between two looks at the gateway, because looks take processor time from those who read.
const PAUSE: Duration = Duration::from_millis(20);

/// Maximum time for all readers of one document.
const LONGEST_READ: Duration = Duration::from_secs(240);

/// Returns a number of elements, multiplied by the variable `TIDINGS_TEST_DOCUMENTS`.
fn many(elements: usize) -> usize {
    elements * std::env::var("TIDINGS_TEST_DOCUMENTS").map_or(1, |factor| factor.parse().unwrap())
}

/// Returns a compressed document.
fn gzip(document: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(document).unwrap();
    encoder.finish().unwrap()
}

fn start() -> WatchedGateway {
    WatchedGateway::start(&format!("[delivery]\nallow = [\"127.0.0.0/8\"]\n{SOURCES}"))
}

/// Longest times of answers while documents are read.
#[derive(Default)]
struct Watch {
    posts: u32,
    answer: Duration,
    post: Duration,
}

impl Watch {
    /// Asks for the health of the gateway, and posts a message to a source, after a pause.
    async fn look(&mut self, gateway: &WatchedGateway) {
        tokio::time::sleep(PAUSE).await;
        let asked = Instant::now();
        let health = gateway.http.get(format!("{}/healthz", gateway.url)).send().await.unwrap();
        assert_eq!(health.status(), 200);
        self.answer = self.answer.max(asked.elapsed());
        self.posts += 1;
        let uri = format!("http://h/{}", self.posts);
        let message = format!(r#"{{"object":"{uri}","items":[{{"uri":"{uri}","change":"ADD"}}]}}"#);
        let posted = Instant::now();
        let (status, answer) = gateway.post("content-change", "application/json", message).await;
        assert_eq!(status, 201, "{answer}");
        self.post = self.post.max(posted.elapsed());
    }

    /// Panics if an answer took too long or the gateway needed too much memory. `document` is for the messages.
    #[expect(clippy::print_stdout, reason = "the measurements are for people who add a document")]
    fn check(&mut self, gateway: &WatchedGateway, document: &str, time: Duration) {
        let memory = gateway.most_memory();
        let (answer, post) = (std::mem::take(&mut self.answer), std::mem::take(&mut self.post));
        println!("{document}: {} MB, {answer:?} for /healthz, {post:?} for a post, {time:?}", memory / 1_000_000);
        assert!(memory < MOST_MEMORY, "{document}: {memory} bytes of memory");
        assert!(answer < LONGEST_ANSWER, "{document}: /healthz takes {answer:?}");
        assert!(post < LONGEST_POST, "{document}: a post takes {post:?}");
        gateway.still_serves(document);
    }
}

/// Each document of the table is read, by all harvests at once or by two jobs or more, and four jobs read documents of
/// platforms while the harvests are at work.
#[tokio::test(flavor = "multi_thread")]
async fn eight_harvests_and_four_dataset_jobs_leave_memory_and_threads_to_others() {
    let gateway = start();
    let mut datasets = Datasets::start(&gateway).await;
    let (mut watch, mut have_all_worked) = (Watch::default(), false);
    for document in DOCUMENTS {
        let Partner::Harvested(protocol, outcome) = document.partner else { continue };
        let compressed = gzip(&(document.make)());
        let mut harvests = Harvests::start(&gateway, document.name, (protocol, outcome), compressed).await;
        let began = Instant::now();
        while !harvests.have_ended().await {
            watch.look(&gateway).await;
            let jobs = datasets.observe().await;
            have_all_worked |= jobs == JOBS && harvests.at_work() == HARVESTS;
            datasets.request_more().await;
            assert!(began.elapsed() < LONGEST_READ, "{} takes more than {LONGEST_READ:?}", document.name);
        }
        watch.check(&gateway, document.name, began.elapsed());
        harvests.finish().await;
    }
    let began = Instant::now();
    while datasets.ended() < 2 * datasets.documents() {
        watch.look(&gateway).await;
        datasets.observe().await;
        datasets.request_more().await;
        assert!(began.elapsed() < LONGEST_READ, "the jobs take more than {LONGEST_READ:?}");
    }
    watch.check(&gateway, "the rest of the datasets", began.elapsed());
    assert_eq!(datasets.most_running, JOBS);
    assert!(have_all_worked, "the harvests and the jobs were never at work at the same time");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_stops_while_pages_are_read() {
    let (gateway, servers) = (start(), datasets::servers().await);
    let page = numbered("<html>", 500_000, |n| format!("<link rel=item2 href={n:x}>\n"), "");
    let answer = Answer::html(&String::from_utf8(page).unwrap());
    for server in &servers {
        server.put("/page", answer.clone());
        datasets::request(&gateway, &format!("{}/page", server.url)).await;
    }
    let began = Instant::now();
    while servers.iter().any(|server| server.requests().is_empty()) {
        assert!(began.elapsed() < PATIENCE, "the pages are not requested");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The grace time is ten seconds.
    let began = Instant::now();
    gateway.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
