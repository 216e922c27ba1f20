//! Limits on time, connections and rates, through the real program: who meets one is cut off or told
//! when to come back, and others are served meanwhile.

use std::{
    io::{Read, Write},
    time::Instant,
};

use serde_json::Value;

use crate::{
    gateway::PATIENCE,
    hostile::{Hostile, answer},
};

const MESSAGE: &str = r#"{"object":"http://h/1","purge":true}"#;

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_is_cut_off_and_others_are_served() {
    let gateway = Hostile::start("[limits]\nhead_seconds = 1\n");
    let mut half = gateway.connect();
    half.write_all(b"GET /feed HTTP/1.1\r\nHost: ").unwrap();
    let mut silent = gateway.connect();
    let mut dripping = gateway.connect();
    dripping.write_all(b"GET /feed HTTP/1.1\r\nX: ").unwrap();
    gateway.still_serves("slow clients");
    // Each byte comes well in time; the whole head never does.
    until("the dripping client is cut off", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        dripping.write_all(b"x").is_err()
    });
    for stream in [&mut half, &mut silent] {
        assert_eq!(answer(stream).0, 0);
    }
    gateway.still_serves("slow clients");
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_body_is_told_so() {
    let gateway = Hostile::start("[limits]\nrequest_seconds = 1\n");
    let mut slow = gateway.connect();
    slow.write_all(b"POST /hooks/fedora3 HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nConnection: close\r\n\r\n<")
        .unwrap();
    let (status, body) = answer(&mut slow);
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("urn:tidings:problem:timeout"), "{body}");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    let gateway = Hostile::start("[limits]\nrequest_seconds = 5\n");
    // An answer that does not fit into what the two sockets hold.
    let item = |n: usize| format!(r#"{{"uri":"http://h/o/{n}","change":"UPDATE","stateAfter":"A"}}"#);
    let items = (0..10_000).map(item).collect::<Vec<_>>().join(",");
    for n in 0..16 {
        let message = format!(r#"{{"object":"http://h/{n}","items":[{items}]}}"#);
        assert_eq!(gateway.post("content-change", "application/json", message).await.0, 201);
    }
    let before = gateway.sockets();
    let mut deaf = gateway.connect();
    deaf.write_all(b"GET /changes?limit=16 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    until("the answer begins", || deaf.peek(&mut [0]).is_ok_and(|read| read == 1));
    until("the deaf client is cut off", || gateway.sockets() <= before);
    let mut came = Vec::new();
    let _ = deaf.read_to_end(&mut came);
    let head = String::from_utf8_lossy(&came[..1000]).to_lowercase();
    let told = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse::<usize>().unwrap();
    assert!(came.len() < told, "it was sent whole: {told} bytes");
    gateway.still_serves("a deaf client");
}

#[tokio::test]
async fn more_connections_than_are_served_wait_until_one_is_free() {
    let gateway = Hostile::start("[limits]\nconnections = 2\n");
    let mut held: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    for stream in &mut held {
        stream
            .write_all(b"POST /hooks/fedora3 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
            .unwrap();
        // It is being served once it is asked for its body.
        stream.read_exact(&mut [0; 25]).unwrap();
    }
    let mut waiting = gateway.connect();
    waiting.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    waiting.set_nonblocking(true).unwrap();
    assert!(waiting.read(&mut [0]).is_err(), "it was served beyond the limit");
    waiting.set_nonblocking(false).unwrap();
    drop(held.pop());
    assert_eq!(answer(&mut waiting).0, 200);
}

#[tokio::test]
async fn who_keeps_a_connection_for_later_keeps_nobody_out() {
    let gateway = Hostile::start("[limits]\nconnections = 1\n");
    let mut idle = gateway.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 12]).unwrap();
    gateway.still_serves("an idle client");
}

#[tokio::test]
async fn a_source_that_is_too_fast_is_told_when_to_come_back() {
    let gateway = Hostile::start("[sources.content-change]\nrate = 1\nburst = 3\n");
    let url = format!("{}/hooks/content-change", gateway.url);
    let mut statuses = Vec::new();
    let refused = loop {
        let answer = gateway.http.post(&url).body(MESSAGE).send().await.unwrap();
        if answer.status() == 429 {
            break answer;
        }
        statuses.push(answer.status().as_u16());
        assert!(statuses.len() < 50, "it is never refused");
    };
    assert!(statuses.len() >= 3, "{statuses:?}");
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["type"], "urn:tidings:problem:too-many-messages");
    assert!(problem["detail"].as_str().unwrap().contains("sources.content-change.rate"), "{problem}");
    // Another source has a bucket of its own, or none.
    assert_ne!(gateway.post("fedora3", "text/xml", "x").await.0, 429);
    let began = Instant::now();
    while gateway.http.post(&url).body(MESSAGE).send().await.unwrap().status() == 429 {
        assert!(began.elapsed() < PATIENCE, "it is never taken again");
    }
}

#[tokio::test]
async fn more_bytes_than_are_held_at_once_are_refused_for_the_moment() {
    let gateway = Hostile::start("[limits]\nheld_bytes = 1048576\nbody_bytes = 1048576\n");
    let length = 1_000_000;
    let url = format!("{}/hooks/fedora3", gateway.url);
    let began = Instant::now();
    let (mut held, refused) = 'held: loop {
        let mut held = gateway.connect();
        let head = format!("POST /hooks/fedora3 HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n");
        held.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
        held.write_all(&vec![b' '; length - 1]).unwrap();
        // Until what was sent above has been read; one of these may have come in between, and then it
        // is that one which was refused.
        for _ in 0..50 {
            let answer = gateway.http.post(&url).body(" ".repeat(100_000)).send().await.unwrap();
            if answer.status() == 503 {
                break 'held (held, answer);
            }
        }
        assert!(began.elapsed() < PATIENCE, "it is never refused");
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.text().await.unwrap().contains("limits.held_bytes"));
    held.write_all(b" ").unwrap();
    assert_eq!(answer(&mut held).0, 400);
    // The bytes are let go soon after the answer.
    let began = Instant::now();
    while gateway.http.post(&url).body(" ".repeat(100_000)).send().await.unwrap().status() != 400 {
        assert!(began.elapsed() < PATIENCE, "the bytes are never let go");
    }
}
