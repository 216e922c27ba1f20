//! Proxy in front of a server that closes a connection as soon as one side sends certain bytes.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Listening proxy. Its threads end with the process.
pub(crate) struct CuttingProxy {
    /// Port of the proxy.
    pub(crate) port: u16,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    /// Number of connections to cut.
    cuts: AtomicUsize,
    /// Whether no connection is possible after the next cut.
    is_last: AtomicBool,
    is_refusing: AtomicBool,
}

impl ProxyState {
    /// Counts a cut; returns whether the connection is to be cut.
    fn cut(&self) -> bool {
        let cut = self.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if cut && self.is_last.load(Ordering::SeqCst) {
            self.is_refusing.store(true, Ordering::SeqCst);
        }
        cut
    }
}

/// Bytes at which the proxy closes a connection. They, and all bytes that are sent with them, are never forwarded.
#[derive(Clone)]
enum Trigger {
    Request(Arc<[u8]>),
    Response(Arc<[u8]>),
}

impl CuttingProxy {
    /// Starts a proxy to the server at `port`, which cuts each connection over which the server sends `trigger`.
    pub(crate) fn start(port: u16, trigger: &[u8]) -> Self {
        Self::start_with(port, Trigger::Response(trigger.into()), usize::MAX)
    }

    /// Starts a proxy to the server at `port`, which cuts a connection over which a client sends `trigger`, as often as
    /// [`CuttingProxy::cut`] says.
    pub(crate) fn at_request(port: u16, trigger: &[u8]) -> Self {
        Self::start_with(port, Trigger::Request(trigger.into()), 0)
    }

    /// Starts a proxy to the server at `port`, which cuts a connection over which the server sends `trigger`, as often
    /// as [`CuttingProxy::cut`] says.
    pub(crate) fn at_response(port: u16, trigger: &[u8]) -> Self {
        Self::start_with(port, Trigger::Response(trigger.into()), 0)
    }

    /// Cuts that many connections from now on.
    pub(crate) fn cut(&self, times: usize) {
        self.state.cuts.store(times, Ordering::SeqCst);
    }

    /// Cuts one connection, and then refuses all.
    pub(crate) fn cut_for_good(&self) {
        self.state.is_last.store(true, Ordering::SeqCst);
        self.cut(1);
    }

    /// Returns how many connections will be cut.
    pub(crate) fn cuts_left(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }

    fn start_with(port: u16, trigger: Trigger, cuts: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let state = Arc::new(ProxyState { cuts: AtomicUsize::new(cuts), ..ProxyState::default() });
        let proxy = Self { port: listener.local_addr().unwrap().port(), state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if state.is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                // Without a server the client sees a closed connection, as it would without the proxy.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (to_server, from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (request, response) = match trigger.clone() {
                    Trigger::Request(bytes) => (bytes, Arc::default()),
                    Trigger::Response(bytes) => (Arc::default(), bytes),
                };
                let (of_requests, of_responses) = (Arc::clone(&state), Arc::clone(&state));
                std::thread::spawn(move || forward(from_client, to_server, &request, &of_requests));
                std::thread::spawn(move || forward(server, client, &response, &of_responses));
            }
        });
        proxy
    }
}

/// Forwards until either side closes or the connection is cut, and then closes both sides. An empty trigger never
/// arrives.
fn forward(mut from: TcpStream, mut to: TcpStream, trigger: &[u8], state: &ProxyState) {
    let mut forward = || -> io::Result<()> {
        let (mut buffer, mut recent) = (vec![0; 64 * 1024], Vec::new());
        loop {
            let count = from.read(&mut buffer)?;
            let octets = &buffer[..count];
            recent.extend_from_slice(octets);
            let is_triggered = !trigger.is_empty() && recent.windows(trigger.len()).any(|window| window == trigger);
            if count == 0 || is_triggered && state.cut() {
                return Ok(());
            }
            // So that the same bytes do not trigger again.
            let retained = if is_triggered { 0 } else { trigger.len().saturating_sub(1) };
            recent.drain(..recent.len().saturating_sub(retained));
            to.write_all(octets)?;
        }
    };
    // Errors are ignored: the peer may close the connection at any time.
    let _ = forward();
    for socket in [&from, &to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
