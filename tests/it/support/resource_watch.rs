//! Gateway under attack: the test watches its log, memory and sockets, and checks that it still serves after
//! each attack.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    ops::Deref,
    process::ExitStatus,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::gateway::{Gateway, PATIENCE};

/// Gateway, and the folder with its journal and its log.
pub(crate) struct WatchedGateway {
    gateway: Gateway,
    folder: TempDir,
}

impl Deref for WatchedGateway {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl WatchedGateway {
    /// Starts a gateway with this configuration.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidings.toml");
        fs::write(&path, config).unwrap();
        let data = folder.path().join("data");
        let log = folder.path().join("log");
        let arguments = ["--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()];
        let gateway = Gateway::start_elsewhere(&data, &arguments, Some(&log));
        Self { gateway, folder }
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(self) -> ExitStatus {
        self.gateway.stop()
    }

    /// Panics unless the gateway still answers and its log contains no panic.
    pub(crate) fn still_serves(&self, after: &str) {
        let (ready, _) = self.raw(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(ready, 200, "after {after}");
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(!log.contains("panicked"), "after {after}:\n{log}");
    }

    /// Returns the peak resident memory in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Returns the number of open sockets.
    pub(crate) fn sockets(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap();
        let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// Opens a plain TCP connection to the gateway.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes unchanged; returns the status and the body of the response.
    pub(crate) fn raw(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        // The gateway may refuse the request before it has read all of it.
        let _ = stream.write_all(request);
        answer(&mut stream)
    }
}

/// Reads until the connection is closed; the status is 0 if there is no response.
pub(crate) fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&some[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&answer)),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Returns true for a success, and for an error whose problem document says what to do.
pub(crate) fn is_clear(status: u16, answer: &Value) -> bool {
    let is_problem = answer["type"].as_str().is_some_and(|kind| kind.starts_with("urn:tidings:problem:"));
    match status {
        200..=399 => !is_problem,
        400..=499 => is_problem && answer["detail"].as_str().is_some_and(|detail| detail.len() < 4000),
        _ => false,
    }
}
