//! Fan-out to a thousand and to ten thousand streams, compared with a minimal axum handler that sends the same
//! encoded bytes to the same number of connections. A second table shows the memory of an idle stream.
//!
//! Each server and the client run in their own processes. The gateway receives the changes by posts while all streams
//! are open; the minimal handler has all of them in memory. The time ends when each stream has received the last
//! byte.

mod bare;
pub(crate) mod readers;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) use self::bare::{SERVE as SERVE_BARE, serve as serve_bare};
pub(crate) use self::readers::Readers;
use super::measure::{Contender, compare};

const ROUNDS: usize = 5;

/// Approximate number of bytes sent in a turn.
const TURN_BYTES: u64 = 1_600_000_000;

/// Server in its own process, which is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(url.starts_with("http://"), "{line:?}");
        Self { child, url }
    }

    /// Starts the real program with a new journal and limits for ten thousand streams.
    fn gateway(folder: &Path) -> Self {
        let config = folder.join("tidings.toml");
        let lines = "[limits]\nconnections = 12000\nstreams = 11000\nstream_seconds = 86400\n[server]\nheartbeat_seconds = 3600\n";
        fs::write(&config, lines).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
        serve.arg("--data").arg(folder.join("data"));
        Self::start(serve)
    }

    /// Starts this program as the minimal handler with these blocks.
    fn bare(blocks: &Path) -> Self {
        let mut serve = Command::new(std::env::current_exe().unwrap());
        serve.env(SERVE_BARE, blocks);
        Self::start(serve)
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Returns the identifier of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn measure() {
    let folder = tempfile::tempdir().unwrap();
    memory(&folder.path().join("idle"));
    for streams in [1_000, 10_000] {
        fan_out(&folder.path().join(streams.to_string()), streams);
    }
}

fn memory(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let gateway = Server::gateway(folder);
    // The first streams are the baseline, because they cause one-time costs such as loading pages of the program.
    let mut readers = Readers::new();
    readers.open(gateway.address(), "/stream", 100);
    println!("\n| idle streams | resident memory, MB | of it a stream, kB |\n| ---: | ---: | ---: |");
    let before = (100, stable_memory(&gateway));
    println!("| {} | {:.1} | |", before.0, before.1 as f64 / 1e6);
    for streams in [1_000, 10_000] {
        readers.open(gateway.address(), "/stream", streams - readers.count());
        let now = stable_memory(&gateway);
        let each = now.saturating_sub(before.1) as f64 / (streams - before.0) as f64;
        println!("| {streams} | {:.1} | {:.1} |", now as f64 / 1e6, each / 1e3);
    }
}

/// Returns the memory once it no longer changes.
fn stable_memory(gateway: &Server) -> u64 {
    let mut before = 0;
    loop {
        let now = gateway.memory();
        if now == before {
            return now;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn fan_out(folder: &Path, streams: usize) {
    fs::create_dir(folder).unwrap();
    let gateway = Server::gateway(folder);
    let changes = TURN_BYTES / 1_000 / streams as u64;
    let mut next = 0;
    let mut post = |count: u64| {
        let posting = readers::post(&gateway.url, next..next + count);
        next += count;
        posting
    };
    post(changes).join().unwrap();
    // The minimal handler sends the same bytes in the same pieces.
    let blocks = folder.join("blocks");
    fs::write(&blocks, readers::blocks(gateway.address(), changes)).unwrap();
    let bare = Server::bare(&blocks);
    let head = std::cell::Cell::new(changes);
    compare(
        &format!("{changes} changes to {streams} streams"),
        "bytes",
        ROUNDS,
        vec![
            Contender::timed("a bare handler with the bytes at hand", || {
                let mut readers = Readers::new();
                readers.open(bare.address(), "/stream", streams);
                let began = Instant::now();
                readers::release(&bare.url);
                let bytes = readers.until_ended();
                (bytes, began.elapsed())
            }),
            Contender::timed("Tidings, from the posts of the changes on", || {
                let mut readers = Readers::new();
                readers.open(gateway.address(), "/stream", streams);
                let last = head.get() + changes;
                let began = Instant::now();
                let posting = post(changes);
                let bytes = readers.until(last);
                let took = began.elapsed();
                posting.join().unwrap();
                head.set(last);
                (bytes, took)
            }),
        ],
    );
}
