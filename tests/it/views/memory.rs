//! Memory of the views is independent of the size of changes and of slow readers, and every response is
//! complete.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post},
};

/// Number of items in the largest accepted change.
const ITEMS: usize = 10_000;

/// Maximum peak resident memory of the gateway, in KiB. The peak is mostly 200 to 270 MiB and depends on how the
/// allocations of the two writers of responses fall together. Without a bound, forty clients would need over 1 GiB.
const MOST_KIB: u64 = 450 << 10;

/// Time limit of one client.
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns a message about a separate object with `items` items; with the most items it is just below the
/// default of `limits.body_bytes`.
fn message(number: usize, items: usize) -> String {
    let mut message = format!(r#"{{"object":"http://h.example/{number}","sourceEventId":"large {number}","items":["#);
    for item in 0..items {
        let uri = format!("http://h.example/{number}/{item:05}/{}", "x".repeat(158));
        let separator = if item == 0 { "" } else { "," };
        let _ = write!(message, r#"{separator}{{"uri":"{uri}","change":"ADD","content":{{"url":"{uri}"}}}}"#);
    }
    message + "]}"
}

async fn post_large(gateway: &Gateway, number: usize, items: usize) {
    let message = message(number, items);
    assert!(message.len() <= 4 << 20, "{}", message.len());
    let (status, answer) = gateway.post("content-change", "application/json", message).await;
    assert_eq!(status, 201, "{answer}");
}

/// Returns a value of the process status in KiB.
fn memory(gateway: &Gateway, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().unwrap()
}

/// Response that a slow client reads.
struct SlowResponse {
    reader: BufReader<TcpStream>,
    head: String,
}

impl SlowResponse {
    fn to(url: &str, path: &str, headers: &str) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        let address: std::net::SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        socket.connect(&address.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let (mut reader, mut head) = (BufReader::with_capacity(64 * 1024, stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{path}: {head}");
        }
        assert!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
        Self { reader, head: head.to_ascii_lowercase() }
    }

    fn length(&self) -> Option<u64> {
        let length = self.head.split("content-length: ").nth(1)?;
        length.split("\r\n").next()?.parse().ok()
    }
}

/// Request of a client, and the end of its body if the client reads all of it.
struct Surface {
    path: String,
    headers: &'static str,
    end: Option<&'static str>,
}

/// Forty clients: some read to the end, the others disconnect when all responses have begun.
fn surfaces(id: &str) -> Vec<Surface> {
    let mut all = Vec::new();
    let mut add = |count: usize, path: &str, headers: &'static str, end: &'static str| {
        all.extend((0..count).map(|n| Surface { path: path.to_owned(), headers, end: (n == 0).then_some(end) }));
    };
    let gzip = "Accept-Encoding: gzip\r\n";
    add(5, "/feed", "", "</feed>");
    add(2, "/feed", gzip, "");
    add(5, "/feed/archive/1", "", "</feed>");
    add(1, "/feed/archive/1", gzip, "");
    add(4, "/feed?change=ADD&limit=1000", "", "</feed>");
    add(3, "/snapshot?limit=1000", "", "}");
    add(4, "/changes?limit=1000", "", "}");
    add(3, "/changes?limit=1000", "Accept: application/cloudevents-batch+json\r\n", "]");
    add(1, &format!("/changes/{id}"), "Accept: application/json\r\n", "}");
    add(1, &format!("/changes/{id}"), "Accept: application/atom+xml\r\n", "</feed>\n");
    add(1, &format!("/changes/{id}"), "Accept: application/xml\r\n", ">\n");
    add(1, &format!("/changes/{id}"), "Accept: application/cloudevents+json\r\n", "}");
    add(1, &format!("/changes/{id}"), "Accept: application/activity+json\r\n", "}");
    add(4, "/objects?uri=http://h.example/1", "", "}");
    for format in ["json", "atom", "xml", "cloudevents"] {
        all.push(Surface { path: format!("/stream?after=0&format={format}"), headers: "", end: None });
    }
    all
}

/// Reads slowly until all responses have begun, and then reads to the end or disconnects.
fn read_slowly(url: &str, surface: &Surface, begun: &AtomicUsize, clients: usize) {
    let mut answer = SlowResponse::to(url, &surface.path, surface.headers);
    let (mut read, mut end, mut piece) = (0, Vec::new(), vec![0; 64 * 1024]);
    begun.fetch_add(1, Ordering::SeqCst);
    let began = Instant::now();
    loop {
        let is_slow = begun.load(Ordering::SeqCst) < clients;
        assert!(began.elapsed() < PATIENCE, "{}: not all clients were answered", surface.path);
        if !is_slow && surface.end.is_none() {
            return;
        }
        let length = if is_slow { 512 } else { piece.len() };
        let count = answer.reader.read(&mut piece[..length]).unwrap();
        if count == 0 {
            break;
        }
        read += count as u64;
        end.extend_from_slice(&piece[..count]);
        end.drain(..end.len().saturating_sub(64));
        if is_slow {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    if let Some(length) = answer.length() {
        assert_eq!(read, length, "{} is not whole", surface.path);
    }
    let end = String::from_utf8_lossy(&end).into_owned();
    assert!(end.ends_with(surface.end.unwrap_or_default()), "{} ends with {end:?}", surface.path);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn view_memory_is_bounded_for_the_largest_changes_and_slow_readers() {
    const LARGE: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    // Time for a build without optimization on a busy machine.
    let gateway = gateway(folder.path(), "[limits]\nrequest_seconds = 240\n");
    // The first archive page and the newest document have equally many large changes, and small ones.
    for number in 1..=2 * LARGE {
        post_large(&gateway, number, ITEMS).await;
        let small = (0..13).map(|small| post(&gateway, (number * 100 + small) as u64));
        futures_util::future::join_all(small).await;
    }
    let head = gateway.json("/snapshot?limit=1").await["head"].as_u64().unwrap();
    assert_eq!(head, 2 * LARGE as u64 * 14);
    assert!(head >= 200, "there is no archive page");
    let settled = (memory(&gateway, "RssAnon"), memory(&gateway, "VmRSS"), memory(&gateway, "VmHWM"));

    let first = gateway.json("/changes?limit=1").await;
    let id = first["changes"][0]["id"].as_str().unwrap();
    let surfaces = surfaces(id);
    assert_eq!(surfaces.len(), 40);
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for surface in &surfaces {
            scope.spawn(|| read_slowly(&gateway.url, surface, &begun, surfaces.len()));
        }
    });
    let read = (memory(&gateway, "RssAnon"), memory(&gateway, "VmRSS"), memory(&gateway, "VmHWM"));
    println!(
        "KiB of its own, resident, and resident at the most: {settled:?} when all was posted, {read:?} when all was read"
    );
    assert!(read.2 < MOST_KIB, "{read:?} KiB, and {settled:?} KiB before anybody read");

    // The whole stream: every change in order, and each large change complete.
    let mut stream = SlowResponse::to(&gateway.url, "/stream?after=0", "").reader;
    let (mut line, mut at, mut large) = (String::new(), 0, 0);
    while at < head || line != "\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ends at {at}");
        if let Some(id) = line.strip_prefix("id: ") {
            at += 1;
            assert_eq!(id.trim(), at.to_string());
        }
        if line.starts_with("data: ") && line.len() > 1 << 20 {
            assert_eq!(line.matches("\"change\":\"ADD\"").count(), ITEMS, "change {at} is not whole");
            large += 1;
        }
    }
    assert_eq!(large, 2 * LARGE);
    assert!(memory(&gateway, "VmHWM") < MOST_KIB, "{} KiB", memory(&gateway, "VmHWM"));
}

#[tokio::test]
async fn pages_of_large_changes_end_early_with_a_next_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    // Three changes fit into 4 MiB. The last change alone is larger, so it shares a page with no other.
    for (number, items) in [(1, 2500), (2, 2500), (3, 2500), (4, 2500), (5, 9500), (6, 10)] {
        post_large(&gateway, number, items).await;
    }
    for (path, expected) in [("/changes", vec![3, 1, 1, 1]), ("/changes?limit=2", vec![2, 2, 1, 1])] {
        let (mut counts, mut after) = (Vec::new(), json!(0));
        while after != json!(6) {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = gateway.json(&format!("{path}{separator}after={after}")).await;
            counts.push(page["changes"].as_array().unwrap().len());
            after = page["next"].clone();
        }
        assert_eq!(counts, expected, "{path}");
    }

    let (mut link, mut seqs) = (Some("/feed?change=ADD".to_owned()), Vec::new());
    let mut documents = 0;
    while let Some(path) = link {
        let answer = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/atom+xml;type=feed;charset=utf-8");
        let document = answer.text().await.unwrap();
        let found = document.split("<tidings:change ").skip(1).map(|rest| {
            let (_, rest) = rest.split_once("seq=\"").unwrap();
            rest.split('"').next().unwrap().parse::<u64>().unwrap()
        });
        seqs.extend(found);
        documents += 1;
        let next = document.split("rel=\"next\"").next().filter(|before| before.len() < document.len());
        link = next.map(|before| {
            let href = before.rsplit("href=\"").next().unwrap().split('"').next().unwrap();
            href[gateway.url.len()..].replace("&amp;", "&")
        });
    }
    let count = |seq| seqs.iter().filter(|found| **found == seq).count();
    assert_eq!((1..=6).map(count).collect::<Vec<_>>(), [2500, 2500, 2500, 2500, 9500, 10]);
    assert!(documents > 2, "{documents}");
}
