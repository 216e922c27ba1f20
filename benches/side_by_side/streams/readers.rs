//! Thousands of cheap readers: they only count bytes and search for the end.

use std::{ops::Range, thread::JoinHandle, time::Duration};

use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
    task::JoinSet,
};

/// Size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Number of the last received bytes that are searched for the end: more than one event.
const TAIL: usize = 4096;

/// Maximum duration of a turn.
const PATIENCE: Duration = Duration::from_secs(120);

/// Open streams.
pub(crate) struct Readers {
    runtime: Runtime,
    open: Vec<TcpStream>,
}

impl Readers {
    pub(crate) fn new() -> Self {
        Self { runtime: runtime(), open: Vec::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Opens `count` more streams and waits for the headers of each.
    pub(crate) fn open(&mut self, address: &str, path: &str, count: usize) {
        self.runtime.block_on(async {
            let mut left = count;
            while left > 0 {
                let some = left.min(100);
                let opening = (0..some).map(|_| open(address, path));
                self.open.extend(futures_util::future::join_all(opening).await);
                left -= some;
            }
        });
    }

    /// Reads until every stream has received change `last`; returns the number of received bytes.
    pub(crate) fn until(self, last: u64) -> u64 {
        self.read(format!("id: {last}\n").as_bytes(), b"\n\n")
    }

    /// Reads until every stream has ended; returns the number of received bytes.
    pub(crate) fn until_ended(self) -> u64 {
        self.read(b"\r\n0\r\n", b"\r\n")
    }

    /// Reads each stream until `mark` and then `end` have arrived.
    fn read(self, mark: &[u8], end: &'static [u8]) -> u64 {
        let Self { runtime, open } = self;
        runtime.block_on(async {
            let mut reading = JoinSet::new();
            for stream in open {
                reading.spawn(read(stream, mark.to_vec(), end));
            }
            let mut bytes = 0;
            let all = async {
                while let Some(read) = reading.join_next().await {
                    bytes += read.unwrap();
                }
            };
            tokio::time::timeout(PATIENCE, all).await.expect("the streams do not come to their end");
            bytes
        })
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = [0; 1024];
    let read = stream.read(&mut head).await.unwrap();
    assert!(head[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..read]));
    stream
}

async fn read(stream: TcpStream, mark: Vec<u8>, end: &[u8]) -> u64 {
    let mut bytes = 0;
    let mut tail = Vec::with_capacity(2 * TAIL);
    loop {
        stream.readable().await.unwrap();
        let Some(read) = piece(&stream, &mut tail) else { continue };
        assert!(read > 0, "the stream ended after {bytes} bytes");
        bytes += read as u64;
        let at = memchr::memmem::find(&tail, &mark);
        if at.is_some_and(|at| memchr::memmem::find(&tail[at + mark.len()..], end).is_some()) {
            return bytes;
        }
    }
}

/// Reads available bytes into the buffer of the thread and copies the end of them to `tail`; returns their number.
fn piece(stream: &TcpStream, tail: &mut Vec<u8>) -> Option<usize> {
    thread_local! {
        static BUFFER: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; BUFFER_BYTES]);
    }
    BUFFER.with_borrow_mut(|buffer| {
        let read = match stream.try_read(buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        };
        let kept = (TAIL.saturating_sub(read)).min(tail.len());
        tail.drain(..tail.len() - kept);
        tail.extend_from_slice(&buffer[read.saturating_sub(TAIL)..read]);
        Some(read)
    })
}

/// Posts the changes with these numbers, 64 at the same time, in a thread that ends when all are accepted.
pub(crate) fn post(url: &str, numbers: Range<u64>) -> JoinHandle<()> {
    // Fails if the provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (url, numbers) = (format!("{url}/hooks/content-change"), numbers.collect::<Vec<_>>());
    let posting = move || {
        runtime().block_on(async {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let posts = numbers.iter().map(|number| {
                let object = format!("http://h.example/objects/{number}");
                let message = serde_json::json!({
                    "object": object, "description": "x".repeat(500), "sourceEventId": format!("event {number}"),
                    "items": [{ "uri": format!("{object}/item"), "change": "ADD" }],
                });
                http.post(&url).header("content-type", "application/json").body(message.to_string()).send()
            });
            let responses = futures_util::stream::iter(posts).buffer_unordered(64);
            responses.for_each(async |response| assert!(response.unwrap().status().is_success())).await;
        });
    };
    std::thread::spawn(posting)
}

/// Triggers the minimal handler.
pub(crate) fn release(url: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    runtime().block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        assert!(http.post(format!("{url}/release")).send().await.unwrap().status().is_success());
    });
}

/// Records the bytes of the first `changes` events from a stream.
pub(crate) fn blocks(address: &str, changes: u64) -> Vec<u8> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    runtime().block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut stream = http.get(format!("http://{address}/stream?after=0")).send().await.unwrap();
        let mut received = Vec::new();
        let last = format!("id: {changes}\n");
        loop {
            received.extend_from_slice(&stream.chunk().await.unwrap().unwrap());
            if memchr::memmem::find(&received, last.as_bytes()).is_some() && received.ends_with(b"\n\n") {
                // Removes the comment at the beginning.
                return received.split_off(2);
            }
        }
    })
}
