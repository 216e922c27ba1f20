//! Documents with which a server could fill the memory of the gateway or keep its threads busy, at four jobs at once.
//!
//! This table is where the next document is added.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use crate::support::{
    gateway::Gateway,
    journal_fixture::configuration,
    scripted_platform::{Answer, PlatformServer},
};

/// Maximum peak resident memory of the gateway, in KiB.
const MOST_KIB: u64 = 450 << 10;

/// Longest time until `/healthz` answers. The aim is 100 ms in a release build on an idle machine; here the build is not
/// optimised, and other tests use the same cores.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);

/// Maximum time of all jobs. They take some seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Number of servers, which is the number of jobs at once. Each has an address of its own.
const SERVERS: u8 = 4;

const MEBIBYTE: usize = 1 << 20;

/// A document at the place that the request names, or at one that the page links.
struct Document {
    /// Path of the request.
    path: &'static str,
    media_type: &'static str,
    content: Vec<u8>,
}

fn filled(start: &str, piece: &str, bytes: usize, end: &str) -> Vec<u8> {
    let mut content = start.to_owned();
    while content.len() + piece.len() + end.len() <= bytes {
        content += piece;
    }
    (content + end).into_bytes()
}

/// Returns a text with numbered pieces.
fn numbered(start: &str, count: usize, piece: impl Fn(usize) -> String, end: &str) -> Vec<u8> {
    let mut content = start.to_owned();
    (0..count).for_each(|n| content += &piece(n));
    (content + end).into_bytes()
}

fn documents() -> Vec<Document> {
    let html = |path, content| Document { path, media_type: "text/html", content };
    let json = |path, content| Document { path, media_type: "application/json", content };
    let most = 16 * MEBIBYTE;
    let digest = "a".repeat(64);
    vec![
        html("/links", numbered("<html>", 139_810, |n| format!("<link rel=item href=\"{n:x}\">\n"), "")),
        html("/unquoted", numbered("<html>", 600_000, |n| format!("<link rel=item href={n:x}>\n"), "")),
        html("/no-text", vec![0xFF; most - 1]),
        html("/too-large", vec![0xFF; 128 * MEBIBYTE]),
        html("/paragraphs", filled("<html>", "<p>A <a href=b>link</a> &amp; text</p>\n", most, "")),
        html("/attributes", numbered("<link ", 1_000_000, |n| format!("a{n}=b "), "rel=item href=x>")),
        html("/long-link", filled("<link rel=item href=\"", "x", most, "\">")),
        html("/long-links", numbered("", 4000, |n| format!("<link rel=item href=\"{n}{}\">", "ü".repeat(1900)), "")),
        html("/anchors", numbered("", 400_000, |n| format!("<a href=\"{n}/manifest-md5.txt\">x</a>"), "")),
        json("/entities/ro-crate-metadata.json", filled("{\"@graph\":[{\"a\":0}", ",{\"a\":0}", 8 * MEBIBYTE, "]}")),
        json("/many/ro-crate-metadata.json", filled("{\"@graph\":[{\"a\":0}", ",{\"a\":0}", 60 * MEBIBYTE, "]}")),
        json(
            "/files/ro-crate-metadata.json",
            numbered(
                "{\"@graph\":[0",
                120_000,
                |n| format!(",{{\"@id\":\"{n}\",\"@type\":[\"File\",\"File\"]}}"),
                "]}",
            ),
        ),
        json("/deep/ro-crate-metadata.json", filled("{\"@graph\":", "[", 8 * MEBIBYTE, "")),
        json("/wide/ro-crate-metadata.json", filled("{\"@graph\":[{\"@type\":[0", ",0", 8 * MEBIBYTE, "]}]}")),
        json("/name/ro-crate-metadata.json", filled("{\"@graph\":[{\"@id\":\"", "x", 8 * MEBIBYTE, "\"}]}")),
        json("/key/ro-crate-metadata.json", filled("{\"", "x", 8 * MEBIBYTE, "\":0}")),
        Document {
            path: "/bag/manifest-sha256.txt",
            media_type: "text/html",
            content: numbered("", 90_000, |n| format!("{digest}  data/{n}\n"), ""),
        },
        Document {
            path: "/short/manifest-sha256.txt",
            media_type: "text/html",
            content: filled("", "a  b\n", 8 * MEBIBYTE, ""),
        },
    ]
}

/// Returns the answer with a document, compressed.
fn answer(document: &Document) -> Answer {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&document.content).unwrap();
    let compressed = gzip.finish().unwrap();
    Answer::new(200, compressed).with("content-type", document.media_type).with("content-encoding", "gzip")
}

async fn servers() -> Vec<PlatformServer> {
    let mut servers = Vec::new();
    for number in 1..=SERVERS {
        servers.push(PlatformServer::start_at(&format!("127.0.0.{number}")).await);
    }
    servers
}

fn start(folder: &Path) -> Gateway {
    let lines = "[delivery]\nallow = [\"127.0.0.0/8\"]\n\
         [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
         [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n";
    Gateway::start_with(folder, &["--config", &configuration(folder, lines)])
}

async fn request(gateway: &Gateway, server: &PlatformServer, path: &str) {
    let request = json!({ "ingest_type": "dataset", "base_url": format!("{}{path}", server.url), "link_source": "doi",
        "ext_ids": { "doi": "10.5072/x.1" } });
    let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}

/// Asks for the health again and again until `stop`; returns the longest time until an answer.
async fn longest_answer(http: reqwest::Client, url: String, stop: Arc<AtomicBool>) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = http.get(&url).timeout(LONGEST_ANSWER * 4).send().await;
        assert!(answer.is_ok_and(|answer| answer.status() == 200), "no answer after {:?}", began.elapsed());
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    longest
}

fn peak(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn documents_of_datasets_leave_memory_and_threads_to_others() {
    let (folder, servers) = (tempfile::tempdir().unwrap(), servers().await);
    let documents = documents();
    for document in &documents {
        let answer = answer(document);
        servers.iter().for_each(|server| server.put(document.path, answer.clone()));
    }
    let gateway = start(folder.path());
    let stop = Arc::new(AtomicBool::new(false));
    let health =
        tokio::spawn(longest_answer(gateway.http.clone(), format!("{}/healthz", gateway.url), Arc::clone(&stop)));
    // Each document by two servers, so that the same one and different ones are read at once.
    for (number, document) in documents.iter().enumerate() {
        for server in [number, number + 1] {
            request(&gateway, &servers[server % servers.len()], document.path).await;
        }
    }
    let began = Instant::now();
    let jobs = loop {
        let answer = gateway.json("/filesets").await;
        let jobs = answer["filesets"].as_array().unwrap().clone();
        let is_ended = |job: &serde_json::Value| {
            job["attempts"].as_u64() > Some(0) || !matches!(job["state"].as_str(), Some("waiting" | "running"))
        };
        if jobs.len() == 2 * documents.len() && jobs.iter().all(is_ended) {
            break jobs;
        }
        if health.is_finished() {
            let ended = health.await;
            panic!("{ended:?}");
        }
        assert!(began.elapsed() < PATIENCE, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let peak = peak(&gateway);
    stop.store(true, Ordering::Relaxed);
    let longest = health.await.unwrap();
    let mut outcomes = String::new();
    jobs.iter().for_each(|job| writeln!(outcomes, "{} {}", job["base_url"], job["status"]).unwrap());
    eprintln!("{:?}, {peak} KiB, health after {longest:?} at most\n{outcomes}", began.elapsed());
    assert!(peak < MOST_KIB, "{peak} KiB\n{outcomes}");
    assert!(longest < LONGEST_ANSWER, "{longest:?}");
    // Each was read to its end or to a limit.
    assert!(jobs.iter().all(|job| job["state"] != "archived"), "{outcomes}");
    assert!(gateway.stop().success());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn gateway_stops_while_pages_are_read() {
    let (folder, servers) = (tempfile::tempdir().unwrap(), servers().await);
    let page = numbered("<html>", 500_000, |n| format!("<link rel=item2 href={n:x}>\n"), "");
    let answer = Answer::html(&String::from_utf8(page).unwrap());
    let gateway = start(folder.path());
    for server in &servers {
        server.put("/page", answer.clone());
        request(&gateway, server, "/page").await;
    }
    let began = Instant::now();
    while servers.iter().any(|server| server.requests().is_empty()) {
        assert!(began.elapsed() < PATIENCE, "the pages are not requested");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // `Gateway::stop` waits no longer than 30 s; the grace time is ten.
    let began = Instant::now();
    gateway.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
