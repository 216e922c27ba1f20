//! Proxy in front of a broker that closes a connection as soon as the broker sends certain bytes.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
};

/// Listening proxy. Its threads end with the process.
pub(crate) struct CuttingProxy {
    /// Port of the proxy.
    pub(crate) port: u16,
}

impl CuttingProxy {
    /// Starts a proxy to the broker at `port`. The bytes of `trigger`, and all bytes that the broker sends with
    /// them, are never forwarded.
    pub(crate) fn start(port: u16, trigger: &[u8]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port() };
        let trigger: Arc<[u8]> = trigger.into();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, broker) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
                let (to_broker, from_client) = (broker.try_clone().unwrap(), client.try_clone().unwrap());
                let trigger = Arc::clone(&trigger);
                std::thread::spawn(move || forward(from_client, to_broker, &[]));
                std::thread::spawn(move || forward(broker, client, &trigger));
            }
        });
        proxy
    }
}

/// Forwards until either side closes or the trigger arrives, and then closes both sides. An empty trigger never
/// arrives.
fn forward(mut from: TcpStream, mut to: TcpStream, trigger: &[u8]) {
    let mut forward = || -> io::Result<()> {
        let (mut buffer, mut recent) = (vec![0; 64 * 1024], Vec::new());
        loop {
            let count = from.read(&mut buffer)?;
            let octets = &buffer[..count];
            recent.extend_from_slice(octets);
            let is_triggered = !trigger.is_empty() && recent.windows(trigger.len()).any(|window| window == trigger);
            if count == 0 || is_triggered {
                return Ok(());
            }
            recent.drain(..recent.len().saturating_sub(trigger.len()));
            to.write_all(octets)?;
        }
    };
    // Errors are ignored: the peer may close the connection at any time.
    let _ = forward();
    for socket in [&from, &to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
