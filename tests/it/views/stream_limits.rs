//! Limits of streams: a slow reader gets every change, a stalled one is disconnected and can resume, the number
//! of streams is limited, and no stream delays the shutdown.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    event_stream::Stream,
    gateway::{Gateway, PATIENCE},
    subscription_fixture::{gateway, post, post_event},
};

/// Returns a change of 20 kB as JSON, so that a few hundred exceed every buffer.
fn large(number: u64) -> Value {
    let items: Vec<_> = (0..100)
        .map(|item| json!({ "uri": format!("http://h.example/{number}/{item}/{}", "x".repeat(100)), "change": "ADD" }))
        .collect();
    json!({ "object": format!("http://h.example/{number}"), "sourceEventId": format!("{number}"), "items": items })
}

async fn fill(gateway: &Gateway, count: u64) {
    let numbers: Vec<_> = (1..=count).collect();
    for numbers in numbers.chunks(50) {
        let events: Vec<_> = numbers.iter().map(|number| large(*number)).collect();
        futures_util::future::join_all(events.iter().map(|event| post_event(gateway, event))).await;
    }
}

/// Starts a gateway with 600 changes that disconnects readers after a second without progress. The limit is also that of
/// requests, so another gateway has written the changes before.
async fn impatient(folder: &Path) -> Gateway {
    let lines = "[journal]\ntail_changes = 10\n";
    let writer = gateway(folder, lines);
    fill(&writer, 600).await;
    assert!(writer.stop().success());
    gateway(folder, &format!("{lines}[limits]\nrequest_seconds = 1\n"))
}

/// Opens a TCP connection with small socket buffers and requests the stream from its beginning.
async fn connect(gateway: &Gateway) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(128 * 1024).unwrap();
    let address = gateway.url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream
}

/// Returns the numbers of the events in these bytes.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(bytes);
    // Chunk boundaries may be between events, but never within an id.
    text.split("id: ").skip(1).filter_map(|rest| rest.split('\n').next()?.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_stays_connected_and_gets_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = impatient(folder.path()).await;
    let mut slow = connect(&gateway).await;
    let (mut bytes, mut part) = (Vec::new(), vec![0; 32 * 1024]);
    let began = Instant::now();
    // The client reads 320 kB a second for four seconds, of 12 MB. Large socket buffers would hold megabytes,
    // and the client would seem to stall until a third of them is empty.
    while numbers(&bytes[bytes.len().saturating_sub(64 * 1024)..]).last() != Some(&600) {
        let read = slow.read(&mut part).unwrap();
        assert!(read > 0, "it was cut off after {:?} with {} bytes", began.elapsed(), bytes.len());
        bytes.extend_from_slice(&part[..read]);
        if began.elapsed() < Duration::from_secs(4) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(numbers(&bytes), (1..=600).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_reader_is_disconnected_and_can_resume() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = impatient(folder.path()).await;
    let mut deaf = connect(&gateway).await;
    let began = Instant::now();
    deaf.read_exact(&mut [0; 12]).unwrap();
    // On a busy machine, the limit may end a request of this test too.
    while metric(&gateway, "tidings_open_streams{kind=\"stream\"}").await != "0" {
        assert!(began.elapsed() < PATIENCE, "the client is never disconnected");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let hits = metric(&gateway, "tidings_limits_hit_total{limit=\"request_seconds\"}").await;
    assert!(hits.parse::<u64>().unwrap() > 0, "{hits}");
    let mut bytes = Vec::new();
    let _ = deaf.read_to_end(&mut bytes);
    let had = numbers(&bytes);
    // The last event may be incomplete.
    let last = had[had.len() - 2];
    assert!(last < 600, "there was room for everything");
    let mut again = Stream::open(&gateway, "", Some(&last.to_string())).await;
    let rest = again.numbers(usize::try_from(600 - last).unwrap()).await;
    assert_eq!(rest, (last + 1..=600).collect::<Vec<_>>());
}

/// Returns the resident memory of the gateway in bytes.
fn memory(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

async fn metric(gateway: &Gateway, line: &str) -> String {
    let text = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    let found = text.lines().find_map(|told| told.strip_prefix(line).map(str::trim).map(str::to_owned));
    found.unwrap_or_default()
}

#[tokio::test]
async fn stream_count_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nstreams = 2\n");
    post(&gateway, 1).await;
    let first = Stream::open(&gateway, "?after=0", None).await;
    let mut second = Stream::open(&gateway, "?after=0", None).await;
    for path in ["/stream", "/changes?after=1&wait=5"] {
        let refused = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        assert_eq!(refused.status(), 503, "{path}");
        assert_eq!(refused.headers()["retry-after"], "5");
        assert!(refused.text().await.unwrap().contains("limits.streams"));
    }
    // A poll that need not wait is answered, and the open streams continue.
    assert_eq!(gateway.json("/changes?after=0&wait=5").await["next"], 1);
    assert_eq!(second.numbers(1).await, [1]);
    drop(first);
    let began = Instant::now();
    while Stream::ask(&gateway, "", None).await.status() != 200 {
        assert!(began.elapsed() < PATIENCE, "the connection slot is never released");
    }
}

#[tokio::test]
async fn stream_ends_after_its_maximum_duration() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nstream_seconds = 1\n");
    let began = Instant::now();
    let mut stream = Stream::open(&gateway, "", None).await;
    assert!(stream.ends_well().await);
    assert!(began.elapsed() > Duration::from_millis(800), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_ends_at_shutdown_without_delay() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\ntail_changes = 10\n");
    fill(&gateway, 600).await;
    let mut idle = Stream::open(&gateway, "", None).await;
    let at_rest = memory(&gateway);
    let mut deaf = Vec::new();
    for _ in 0..30 {
        deaf.push(connect(&gateway).await);
    }
    let poll = gateway.http.get(format!("{}/changes?after=600&wait=30", gateway.url)).send();
    let poll = tokio::spawn(poll);
    // Wait until the stalled reader's buffers are full and the other readers are idle.
    let began = Instant::now();
    let mut before = String::new();
    loop {
        let sent = metric(&gateway, "tidings_streamed_changes_total{format=\"json\"}").await;
        let polls = metric(&gateway, "tidings_open_streams{kind=\"poll\"}").await;
        if sent == before && !sent.is_empty() && polls == "1" {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the client never stops reading");
        before = sent;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The bytes for the readers are in the journal: 12 MB for each reader.
    let each = memory(&gateway).saturating_sub(at_rest) / 30;
    assert!(each < 500_000, "a reader that takes nothing holds {each} bytes");
    let began = Instant::now();
    let stopping = tokio::task::spawn_blocking(move || gateway.stop());
    assert!(idle.ends_well().await, "the stream was interrupted");
    let empty: Value = serde_json::from_slice(&poll.await.unwrap().unwrap().bytes().await.unwrap()).unwrap();
    assert_eq!(empty, json!({ "changes": [], "next": 600, "journal": empty["journal"] }));
    assert!(stopping.await.unwrap().success());
    // The grace time is ten seconds, of which requests get five and a half.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(deaf);
}

#[tokio::test]
async fn stream_over_http_1_0_has_no_chunked_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nstream_seconds = 1\n");
    post(&gateway, 1).await;
    let mut old = TcpStream::connect(gateway.url.strip_prefix("http://").unwrap()).unwrap();
    old.write_all(b"GET /stream?after=0 HTTP/1.0\r\n\r\n").unwrap();
    let mut bytes = String::new();
    old.read_to_string(&mut bytes).unwrap();
    let (head, body) = bytes.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert!(body.starts_with(":\nretry: 2000\nid: 1\nevent: add\ndata: {") && body.ends_with("}\n\n"), "{body}");
    let head = gateway.http.head(format!("{}/stream", gateway.url)).send().await.unwrap();
    assert_eq!((head.status().as_u16(), &head.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
}
