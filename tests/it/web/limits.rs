//! Limits on time, connections and rates, through the real program: a client beyond a limit is disconnected or
//! told when to retry, and other clients are served meanwhile.

use std::{
    io::{Read, Write},
    time::Instant,
};

use serde_json::Value;

use crate::support::{
    gateway::PATIENCE,
    resource_watch::{WatchedGateway, answer},
};

const MESSAGE: &str = r#"{"object":"http://h/1","purge":true}"#;

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn header_timeout_disconnects_slow_clients_only() {
    let gateway = WatchedGateway::start("[limits]\nhead_seconds = 1\n");
    let mut half = gateway.connect();
    half.write_all(b"GET /feed HTTP/1.1\r\nHost: ").unwrap();
    let mut silent = gateway.connect();
    let mut dripping = gateway.connect();
    dripping.write_all(b"GET /feed HTTP/1.1\r\nX: ").unwrap();
    gateway.still_serves("slow clients");
    // Each byte arrives in time, but the headers never end.
    until("the slow client is disconnected", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        dripping.write_all(b"x").is_err()
    });
    for stream in [&mut half, &mut silent] {
        assert_eq!(answer(stream).0, 0);
    }
    gateway.still_serves("slow clients");
}

#[tokio::test]
async fn body_timeout_is_reported_as_503() {
    let gateway = WatchedGateway::start("[limits]\nrequest_seconds = 1\n");
    let mut slow = gateway.connect();
    slow.write_all(
        b"POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nConnection: close\r\n\r\n<",
    )
    .unwrap();
    let (status, body) = answer(&mut slow);
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("urn:tidings:problem:timeout"), "{body}");
}

#[tokio::test]
async fn write_timeout_disconnects_a_client_that_reads_nothing() {
    let gateway = WatchedGateway::start("[limits]\nrequest_seconds = 5\n");
    // The response is larger than the buffers of both sockets.
    let item = |n: usize| format!(r#"{{"uri":"http://h/o/{n}","change":"UPDATE","stateAfter":"A"}}"#);
    let items = (0..10_000).map(item).collect::<Vec<_>>().join(",");
    for n in 0..16 {
        let message = format!(r#"{{"object":"http://h/{n}","items":[{items}]}}"#);
        assert_eq!(gateway.post("content-change", "application/json", message).await.0, 201);
    }
    let before = gateway.sockets();
    let mut deaf = gateway.connect();
    deaf.write_all(b"GET /changes?limit=16 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    until("the answer begins", || deaf.peek(&mut [0]).is_ok_and(|read| read == 1));
    until("the client that reads nothing is disconnected", || gateway.sockets() <= before);
    let mut bytes = Vec::new();
    let _ = deaf.read_to_end(&mut bytes);
    let head = String::from_utf8_lossy(&bytes[..1000]).to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse::<usize>().unwrap();
    assert!(bytes.len() < length, "it was sent whole: {length} bytes");
    gateway.still_serves("a deaf client");
}

#[tokio::test]
async fn connection_limit_makes_further_connections_wait() {
    let gateway = WatchedGateway::start("[limits]\nconnections = 2\n");
    let mut open: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    for stream in &mut open {
        stream
            .write_all(
                b"POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
            )
            .unwrap();
        // The request for the body (100 Continue) shows that the connection is served.
        stream.read_exact(&mut [0; 25]).unwrap();
    }
    let mut waiting = gateway.connect();
    waiting.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    waiting.set_nonblocking(true).unwrap();
    assert!(waiting.read(&mut [0]).is_err(), "the connection was served beyond the limit");
    waiting.set_nonblocking(false).unwrap();
    drop(open.pop());
    assert_eq!(answer(&mut waiting).0, 200);
}

#[tokio::test]
async fn idle_connections_do_not_exhaust_the_connection_limit() {
    let gateway = WatchedGateway::start("[limits]\nconnections = 1\n");
    let mut idle = gateway.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 12]).unwrap();
    gateway.still_serves("an idle client");
}

#[tokio::test]
async fn rate_limit_returns_429_with_retry_after() {
    let gateway = WatchedGateway::start("[sources.content-change]\nrate = 1\nburst = 3\n");
    let url = format!("{}/hooks/content-change", gateway.url);
    let mut statuses = Vec::new();
    let refused = loop {
        let answer = gateway.http.post(&url).body(MESSAGE).send().await.unwrap();
        if answer.status() == 429 {
            break answer;
        }
        statuses.push(answer.status().as_u16());
        assert!(statuses.len() < 50, "the disk never filled up");
    };
    assert!(statuses.len() >= 3, "{statuses:?}");
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["type"], "urn:tidings:problem:too-many-messages");
    assert!(problem["detail"].as_str().unwrap().contains("sources.content-change.rate"), "{problem}");
    // Another source has a separate rate limit, or none.
    assert_ne!(gateway.post("fedora3", "text/xml", "x").await.0, 429);
    let began = Instant::now();
    while gateway.http.post(&url).body(MESSAGE).send().await.unwrap().status() == 429 {
        assert!(began.elapsed() < PATIENCE, "the event is never accepted again");
    }
}

#[tokio::test]
async fn body_memory_limit_returns_503() {
    let gateway = WatchedGateway::start("[limits]\nheld_bytes = 1048576\nbody_bytes = 1048576\n");
    let length = 1_000_000;
    let url = format!("{}/hooks/fedora3", gateway.url);
    let began = Instant::now();
    let refused = 'open: loop {
        let mut open = gateway.connect();
        let head = format!("POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
        open.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
        open.write_all(&vec![b' '; length - 1]).unwrap();
        // The gateway may still be reading the requests above. If it accepts one of these instead, one of those
        // was refused.
        for _ in 0..50 {
            let refused = gateway.http.post(&url).body(" ".repeat(100_000)).send().await.unwrap();
            if refused.status() == 503 {
                let _ = open.write_all(b" ");
                // The bytes can still be those of an earlier round, which then refused this one.
                if answer(&mut open).0 == 400 {
                    break 'open refused;
                }
                break;
            }
        }
        assert!(began.elapsed() < PATIENCE, "the disk never filled up");
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.text().await.unwrap().contains("limits.held_bytes"));
    // The bytes are released shortly after the response.
    let began = Instant::now();
    while gateway.http.post(&url).body(" ".repeat(100_000)).send().await.unwrap().status() != 400 {
        assert!(began.elapsed() < PATIENCE, "the bytes are never released");
    }
}

#[tokio::test]
async fn wait_parameter_extends_only_long_polls() {
    let gateway = WatchedGateway::start("[limits]\nrequest_seconds = 1\nwait_seconds = 600\n");
    for route in ["POST /hooks/content-change?wait=600", "POST /hooks/fedora3?wait=600", "POST /hub?wait=600"] {
        let mut slow = gateway.connect();
        let head = format!("{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nConnection: close\r\n\r\n<");
        slow.write_all(head.as_bytes()).unwrap();
        let (status, body) = answer(&mut slow);
        assert_eq!(status, 503, "{route}: {body}");
        assert!(body.contains("urn:tidings:problem:timeout"), "{route}: {body}");
    }
    let began = Instant::now();
    let poll = gateway.http.get(format!("{}/changes?wait=3", gateway.url)).send().await.unwrap();
    assert_eq!((poll.status().as_u16(), began.elapsed().as_secs() >= 3), (200, true));
}

#[tokio::test]
async fn slow_headers_do_not_exhaust_the_connection_limit() {
    let gateway = WatchedGateway::start("[limits]\nconnections = 3\nhead_seconds = 3600\nrequest_seconds = 3600\n");
    let mut half: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"GET /feed HTTP/1.1\r\nHost: ").unwrap();
    }
    gateway.still_serves("slow heads");
    // It is the one whose bytes the gateway has read first, which need not be the first one here.
    half.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    until("one connection is closed", || half.iter().any(|stream| matches!(stream.peek(&mut [0]), Ok(0))));
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains(r#"tidings_limits_hit_total{limit="head_seconds"}"#), "{metrics}");
}

#[tokio::test]
async fn slow_anonymous_bodies_do_not_exhaust_the_body_memory() {
    let digest = tidings::web::Secret::new("tdg_reader").digest().to_hex();
    let config = format!(
        "[limits]\nconnections = 3\nhead_seconds = 3600\nrequest_seconds = 3600\n\
         [sources.fedora3.signature]\nsecret = \"a key of the source\"\n\
         [access.tokens.reader]\nsha256 = \"{digest}\"\nscopes = [\"read\"]\n"
    );
    let gateway = WatchedGateway::start(&config);
    let mut slow: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    for (stream, field) in slow.iter_mut().zip(["", "Authorization: Bearer tdg_x\r\n", "X-Hub-Signature-256: sha256="])
    {
        let digits = if field.ends_with('=') { format!("{}\r\n", "0".repeat(64)) } else { String::new() };
        let head = format!("POST /hooks/fedora3 HTTP/1.1\r\nHost: h\r\n{field}{digits}Content-Length: 9\r\n\r\n<");
        stream.write_all(head.as_bytes()).unwrap();
    }
    for _ in 0..3 {
        gateway.still_serves("slow bodies");
    }
}

#[tokio::test]
async fn stream_limit_per_token_leaves_streams_for_others() {
    let digest = |token: &str| tidings::web::Secret::new(token).digest().to_hex();
    let token = |name: &str| {
        format!("[access.tokens.{name}]\nsha256 = \"{}\"\nscopes = [\"read\"]\n", digest(&format!("tdg_{name}")))
    };
    let config = format!("[limits]\nstreams = 4\nclient_percent = 50\n{}{}", token("greedy"), token("other"));
    let gateway = WatchedGateway::start(&config);
    let stream = async |token: &str| {
        let request = gateway.http.get(format!("{}/stream", gateway.url)).bearer_auth(token);
        request.send().await.unwrap()
    };
    let open = [stream("tdg_greedy").await, stream("tdg_greedy").await];
    assert!(open.iter().all(|stream| stream.status() == 200));
    let refused = stream("tdg_greedy").await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(refused.text().await.unwrap().contains("limits.client_percent"));
    let poll = gateway.http.get(format!("{}/changes?wait=1", gateway.url)).bearer_auth("tdg_greedy");
    assert_eq!(poll.send().await.unwrap().status(), 503);
    assert_eq!(stream("tdg_other").await.status(), 200);
    drop(open);
    let began = Instant::now();
    while stream("tdg_greedy").await.status() != 200 {
        assert!(began.elapsed() < PATIENCE, "the stream slots are never released");
    }
}

#[tokio::test]
async fn body_limit_applies_to_compressed_bytes() {
    let gateway = WatchedGateway::start("[limits]\nbody_bytes = 65536\n");
    // Skippable frame of zstd (RFC 8878 section 3.1.2).
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 0, 4, 0, 0][..], &[0; 1024]].concat();
    let zstd = zstd::encode_all(MESSAGE.as_bytes(), 3).unwrap();
    let post = async |count: usize| {
        let body = [skippable.repeat(count), zstd.clone()].concat();
        let request =
            gateway.http.post(format!("{}/hooks/content-change", gateway.url)).header("content-encoding", "zstd");
        request.body(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(post(100).await, 413);
    assert!(matches!(post(3).await, 200 | 201));
}
