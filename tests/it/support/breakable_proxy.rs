//! Proxy in front of a server, whose connections a test breaks and repairs.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU16, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// State of the network between the clients and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
    #[default]
    Open,
    /// Connections are closed, and new ones too.
    Refusing,
    /// Connections stay open, and what is sent arrives only when the link is open again.
    Silent,
    /// Each connection carries ten kilobytes per second in each direction.
    Narrow,
}

/// Number of octets that a narrow link carries at once.
const PIECE: usize = 250;

/// Time that a narrow link needs for them.
const PIECE_TIME: Duration = Duration::from_millis(25);

/// Listening proxy. Its threads end with the process.
pub(crate) struct BreakableProxy {
    /// Port of the proxy.
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Port of the server.
    server: AtomicU16,
    /// Time that everything needs in each direction.
    delay: Duration,
    connections: Mutex<Connections>,
    changed: Condvar,
}

#[derive(Default)]
struct Connections {
    link: Link,
    next: u64,
    /// Sockets of each connection.
    open: BTreeMap<u64, [TcpStream; 2]>,
}

impl Connections {
    fn close_all(&mut self) {
        for socket in std::mem::take(&mut self.open).into_values().flatten() {
            // The peer may have closed it before.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl BreakableProxy {
    /// Starts a proxy to the server at `port`.
    pub(crate) fn start(port: u16) -> Self {
        Self::start_distant(port, Duration::ZERO)
    }

    /// Starts a proxy to the server at `port`, which is so far away that everything needs a time in each direction.
    pub(crate) fn start_distant(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let state = Arc::new(State { server: port.into(), delay, ..State::default() });
        let proxy = Self { port: listener.local_addr().unwrap().port(), state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, state) = (client.unwrap(), Arc::clone(&state));
                thread::spawn(move || {
                    // A client sees a closed connection if there is no server, as it would without the proxy.
                    let _ = state.serve(client);
                });
            }
        });
        proxy
    }

    /// Changes the state of the network.
    pub(crate) fn set_link(&self, link: Link) {
        let mut connections = self.state.connections();
        connections.link = link;
        if link == Link::Refusing {
            connections.close_all();
        }
        self.state.changed.notify_all();
    }

    /// Closes all connections; the clients can connect again.
    pub(crate) fn reset(&self) {
        self.state.connections().close_all();
    }

    /// Forwards new connections to another server.
    pub(crate) fn set_server(&self, port: u16) {
        self.state.server.store(port, Ordering::SeqCst);
    }
}

impl State {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap()
    }

    /// Waits while the link is silent; returns whether it carries anything then.
    fn until_open(&self) -> bool {
        let connections = self.connections();
        let connections = self.changed.wait_while(connections, |connections| connections.link == Link::Silent).unwrap();
        connections.link != Link::Refusing
    }

    /// Writes octets as fast as the link allows; returns whether they have arrived.
    fn carry(&self, octets: &[u8], to: &mut TcpStream) -> bool {
        let is_narrow = || self.connections().link == Link::Narrow;
        let piece = if is_narrow() { PIECE } else { octets.len() };
        octets.chunks(piece).all(|piece| {
            if is_narrow() {
                thread::sleep(PIECE_TIME);
            }
            self.until_open() && to.write_all(piece).is_ok()
        })
    }

    /// Serves one connection until it ends.
    fn serve(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        if !self.until_open() {
            return Ok(());
        }
        let server = TcpStream::connect(("127.0.0.1", self.server.load(Ordering::SeqCst)))?;
        for socket in [&client, &server] {
            socket.set_nodelay(true)?;
        }
        let (to_server, to_client) = (server.try_clone()?, client.try_clone()?);
        let number = {
            let mut connections = self.connections();
            if connections.link == Link::Refusing {
                return Ok(());
            }
            connections.next += 1;
            let number = connections.next;
            connections.open.insert(number, [client.try_clone()?, server.try_clone()?]);
            number
        };
        let other = Arc::clone(&self);
        thread::spawn(move || other.forward(server, to_client, number));
        self.forward(client, to_server, number);
        Ok(())
    }

    /// Forwards in one direction until either side closes, and then closes both sides.
    fn forward(&self, mut from: TcpStream, mut to: TcpStream, number: u64) {
        if self.delay.is_zero() {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if !self.carry(&buffer[..count], &mut to) {
                    break;
                }
            }
        } else {
            self.forward_late(&mut from, &mut to);
        }
        // The end of a connection does not arrive either while the link is silent.
        self.until_open();
        for socket in [&from, &to] {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.connections().open.remove(&number);
    }

    /// Forwards each piece after the delay. Pieces on the way do not wait for each other.
    fn forward_late(&self, from: &mut TcpStream, to: &mut TcpStream) {
        let (pieces, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
        thread::scope(|scope| {
            scope.spawn(move || {
                for (at, piece) in arriving {
                    thread::sleep(at.saturating_duration_since(Instant::now()));
                    if !self.until_open() || to.write_all(&piece).is_err() {
                        // The reader of the other direction ends too.
                        let _ = to.shutdown(Shutdown::Both);
                        break;
                    }
                }
            });
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if pieces.send((Instant::now() + self.delay, buffer[..count].to_vec())).is_err() {
                    break;
                }
            }
            drop(pieces);
        });
    }
}
