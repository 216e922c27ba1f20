//! HTTP server that records the requests of the gateway and replies by a script, with correct or faulty
//! replies.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

use crate::support::gateway::PATIENCE;

/// Recorded request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Number of the connection, from 1.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl ReceivedRequest {
    /// Returns the value of a header, or an empty string.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Reply to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Response with this status, these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The same with a body that is no text.
    Bytes(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Response with this status and these headers that breaks off in the middle of this body.
    Cut(u16, Vec<(&'static str, String)>, String),
    /// No response, as long as the client waits.
    Hang,
    /// Close of the socket.
    Close,
    /// Response with that status and a body of 10 GB.
    Flood(u16),
    /// Another reply after a delay.
    After(Duration, Box<Reply>),
    /// Another reply once the test allows it.
    When(watch::Receiver<bool>, Box<Reply>),
}

impl Reply {
    /// Returns a response with that status and a short body.
    pub(crate) fn of(status: u16) -> Self {
        Self::Answer(status, Vec::new(), format!("the answer is {status}"))
    }
}

/// Decides the reply from the number of the request, from 0, and from the request itself.
type Script = dyn Fn(usize, &ReceivedRequest) -> Reply + Send + Sync;

struct State {
    requests: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    /// Number of bytes of floods that clients have read.
    flooded: AtomicU64,
    script: Box<Script>,
}

/// Running server; dropping it stops it.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _serving: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts a server on a free port of this host.
    pub(crate) async fn start(script: impl Fn(usize, &ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// Starts a server at a socket address as soon as the previous server has released it.
    pub(crate) async fn at(
        address: SocketAddr,
        script: impl Fn(usize, &ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let (requests, connections, flooded) = (Mutex::default(), AtomicUsize::default(), AtomicU64::default());
        let state = Arc::new(State { requests, connections, flooded, script: Box::new(script) });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&state))));
        Self { address, state, _serving: serving }
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    /// Returns the recorded requests.
    pub(crate) fn requests(&self) -> MutexGuard<'_, Vec<ReceivedRequest>> {
        self.state.requests.lock().unwrap()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of floods that clients have read.
    pub(crate) fn flooded(&self) -> u64 {
        self.state.flooded.load(Ordering::Relaxed)
    }

    /// Waits until `count` requests have arrived and returns them.
    pub(crate) async fn until(&self, count: usize) -> Vec<ReceivedRequest> {
        let began = Instant::now();
        while self.requests().len() < count {
            assert!(began.elapsed() < PATIENCE, "{} of {count} requests have come", self.requests().len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.requests().clone()
    }
}

async fn bind(address: SocketAddr) -> TcpListener {
    let began = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            bound => return bound.unwrap(),
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let number = state.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let _ = talk(stream, number, &state).await;
        });
    }
}

/// Serves one connection until it ends.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, number: usize, state: &State) -> std::io::Result<()> {
    let mut read = Vec::new();
    while let Some(request) = request(&mut stream, &mut read, number).await? {
        let nth = {
            let mut all = state.requests.lock().unwrap();
            all.push(request.clone());
            all.len() - 1
        };
        let mut reply = (state.script)(nth, &request);
        loop {
            reply = match reply {
                Reply::After(wait, then) => {
                    tokio::time::sleep(wait).await;
                    *then
                }
                Reply::When(mut said, then) => {
                    // The sender may be gone when its test has ended.
                    let _ = said.wait_for(|said| *said).await;
                    *then
                }
                _ => break,
            }
        }
        if let Reply::Answer(status, headers, body) = reply {
            reply = Reply::Bytes(status, headers, body.into_bytes());
        }
        match reply {
            Reply::Bytes(status, headers, body) => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).await?;
            }
            Reply::Cut(status, headers, body) => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body.as_bytes()[..body.len() / 2]).await?;
                return Ok(());
            }
            Reply::Flood(status) => {
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: 10000000000\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                for _ in 0..1_000_000 {
                    stream.write_all(&[b'x'; 10_000]).await?;
                    state.flooded.fetch_add(10_000, Ordering::Relaxed);
                }
            }
            Reply::Hang => {
                // Reads the next byte or the end of the connection, so that the task does not live for ever.
                stream.read_u8().await?;
            }
            Reply::Close | Reply::After(..) | Reply::When(..) | Reply::Answer(..) => return Ok(()),
        }
    }
    Ok(())
}

/// Reads one request; bytes after it stay in `read`.
async fn request(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<ReceivedRequest>> {
    let end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(read.drain(..end).collect()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap(), first.next().unwrap());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<_, _> = lines.filter_map(header).collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while read.len() < length {
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
    let body = read.drain(..length).collect();
    Ok(Some(ReceivedRequest { connection, method, path, headers, body, at: Instant::now() }))
}
