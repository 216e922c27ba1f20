//! Hostile and huge documents of partners, read by the real program by several readers at once. The gateway keeps to its
//! memory, answers, and takes messages from others meanwhile.
//!
//! Each file has the table of one kind of partner; a new document is one more row. `TIDINGS_TEST_DOCUMENTS=8` makes each
//! document eight times as large, which is near the limits of the default configuration; use a release build then.

mod harvests;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};

use crate::support::resource_watch::WatchedGateway;

/// Maximum resident memory of the program, in bytes.
const MOST_MEMORY: u64 = 450_000_000;

/// Maximum time of `/healthz`: 0.1 s, and ten times as much for a build without optimisation on a machine that runs other
/// tests on the same cores.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);

/// Maximum time of a post to another source: 0.1 s, and twenty times as much, because such a build also writes slowly.
const LONGEST_POST: Duration = Duration::from_secs(2);

/// Maximum time for all readers of one document.
const LONGEST_READ: Duration = Duration::from_secs(180);

/// Returns a number of elements, multiplied by the variable `TIDINGS_TEST_DOCUMENTS`.
fn many(elements: usize) -> usize {
    elements * std::env::var("TIDINGS_TEST_DOCUMENTS").map_or(1, |factor| factor.parse().unwrap())
}

/// Returns a compressed document.
fn gzip(document: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(document.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Waits until a condition holds; meanwhile asks for the health of the gateway and posts messages to a source. Panics if an
/// answer takes too long, or the gateway needs too much memory. `document` is for the messages.
#[expect(clippy::print_stdout, reason = "the measurements are for whoever adds a document")]
async fn watch(gateway: &WatchedGateway, document: &str, mut has_ended: impl AsyncFnMut() -> bool) {
    let (began, mut posts) = (Instant::now(), 0_u32);
    let (mut slowest_answer, mut slowest_post) = (Duration::ZERO, Duration::ZERO);
    while !has_ended().await {
        let asked = Instant::now();
        let health = gateway.http.get(format!("{}/healthz", gateway.url)).send().await.unwrap();
        assert_eq!(health.status(), 200, "{document}");
        slowest_answer = slowest_answer.max(asked.elapsed());
        posts += 1;
        let uri = format!("http://h/{document}/{posts}").replace(' ', "-");
        let message = format!(r#"{{"object":"{uri}","items":[{{"uri":"{uri}","change":"ADD"}}]}}"#);
        let posted = Instant::now();
        let (status, answer) = gateway.post("content-change", "application/json", message).await;
        assert_eq!(status, 201, "{document}: {answer}");
        slowest_post = slowest_post.max(posted.elapsed());
        assert!(began.elapsed() < LONGEST_READ, "{document} takes more than {LONGEST_READ:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let memory = gateway.most_memory();
    println!(
        "{document}: {} MB, {slowest_answer:?} for /healthz, {slowest_post:?} for a post, {:?}",
        memory / 1_000_000,
        began.elapsed()
    );
    assert!(memory < MOST_MEMORY, "{document}: {memory} bytes of memory");
    assert!(slowest_answer < LONGEST_ANSWER, "{document}: /healthz takes {slowest_answer:?}");
    assert!(slowest_post < LONGEST_POST, "{document}: a post takes {slowest_post:?}");
    gateway.still_serves(document);
}
