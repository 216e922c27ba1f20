//! Proxy that counts the bytes of the connections through it.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Listening proxy. Its threads end with the program.
pub(super) struct CountingProxy {
    pub(super) port: u16,
    bytes: Arc<AtomicU64>,
}

impl CountingProxy {
    /// Starts a proxy to the server at a port of this machine.
    pub(super) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, bytes) = (listener.local_addr().unwrap().port(), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&bytes);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
                let ends = [(&client, &server), (&server, &client)];
                for (from, to) in ends.map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap())) {
                    let bytes = Arc::clone(&counted);
                    thread::spawn(move || copy(from, to, &bytes));
                }
            }
        });
        Self { port, bytes }
    }

    /// Returns the number of bytes in both directions so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, bytes: &AtomicU64) {
    to.set_nodelay(true).unwrap();
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
