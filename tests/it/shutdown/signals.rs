//! SIGTERM and Ctrl-C: the gateway accepts no new requests, finishes active ones, closes the journal, and exits
//! with 0 within ten seconds, whatever its clients do.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::support::{fedora3_messages::Call, gateway::Gateway};

#[tokio::test]
async fn sigterm_and_sigint_close_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    for (number, signal) in [(1, "TERM"), (2, "INT")] {
        let mut gateway = Gateway::start(folder.path());
        let call = Call { number, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
        assert_eq!(gateway.post("fedora3", "text/xml", call.message()).await.0, if number == 1 { 201 } else { 200 });
        gateway.signal(signal);
        assert!(gateway.wait().success());
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(
            !left.iter().any(|name| name.to_string_lossy().ends_with("-wal")),
            "the journal is not closed: {left:?}"
        );
    }
}

#[tokio::test]
async fn shutdown_finishes_active_requests_and_ignores_idle_clients() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path());
    let address = gateway.url.strip_prefix("http://").unwrap().to_owned();
    let _idle = TcpStream::connect(&address).unwrap();
    let call = Call { number: 1, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
    let message = call.message();
    let (first, rest) = message.split_at(100);
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.set_read_timeout(Some(crate::support::gateway::PATIENCE)).unwrap();
    let length = message.len();
    write!(
        slow,
        "POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    // The gateway has asked for the body with 100 Continue, so the request is active.
    let mut interim = [0; 25];
    slow.read_exact(&mut interim).unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    slow.write_all(first.as_bytes()).unwrap();
    gateway.signal("TERM");
    while TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    slow.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(gateway.wait().success());
    assert_eq!(Gateway::start(folder.path()).changes().await.len(), 1);
}

#[tokio::test]
async fn shutdown_disconnects_endless_clients_within_the_grace_time() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, "[server]\ngrace_seconds = 3\n").unwrap();
    let mut gateway = Gateway::start_with(folder.path(), &["--config", config.to_str().unwrap()]);
    let mut slow = TcpStream::connect(gateway.url.strip_prefix("http://").unwrap()).unwrap();
    write!(
        slow,
        "POST /hooks/fedora3 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n"
    )
    .unwrap();
    slow.read_exact(&mut [0; 25]).unwrap();
    gateway.signal("TERM");
    let stopped_at = Instant::now();
    assert!(gateway.wait().success());
    assert!(stopped_at.elapsed() < Duration::from_secs(10), "{:?}", stopped_at.elapsed());
}
