//! Publisher that writes AMQP frames itself, to send messages that no client library would.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::PATIENCE;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const END: u8 = 0xce;

/// Flags of properties.
const CONTENT_TYPE: u16 = 1 << 15;
const HEADERS: u16 = 1 << 13;

/// Connection with one channel in confirm mode.
pub(crate) struct RawPublisher(TcpStream);

/// Message with the parts that a test chooses.
#[derive(Clone, Default)]
pub(crate) struct RawMessage {
    pub(crate) routing_key: Vec<u8>,
    pub(crate) content_type: Vec<u8>,
    /// Entries of the header table.
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

pub(crate) fn long(octets: &[u8]) -> Vec<u8> {
    [&u32::try_from(octets.len()).unwrap().to_be_bytes()[..], octets].concat()
}

/// Returns the entries of a table with `depth` nested tables.
pub(crate) fn nested(depth: usize) -> Vec<u8> {
    (1..depth).fold(Vec::new(), |inner, _| [&b"\x01aF"[..], &long(&inner)].concat())
}

impl RawPublisher {
    pub(crate) fn connect(port: u16, vhost: &str) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut this = Self(socket);
        this.0.write_all(b"AMQP\0\0\x09\x01").unwrap();
        this.until([0, 10, 0, 10]);
        let response = [&[0, 10, 0, 11][..], &long(b""), &short(b"PLAIN"), &long(b"\0guest\0guest"), &short(b"en_US")];
        this.send(METHOD, 0, &response.concat());
        this.until([0, 10, 0, 30]);
        // 2047 channels, frames of 128 KiB, no heartbeat.
        this.send(METHOD, 0, &[0, 10, 0, 31, 7, 0xff, 0, 2, 0, 0, 0, 0]);
        this.send(METHOD, 0, &[&[0, 10, 0, 40][..], &short(vhost.as_bytes()), &[0, 0]].concat());
        this.until([0, 10, 0, 41]);
        this.send(METHOD, 1, &[0, 20, 0, 10, 0]);
        this.until([0, 20, 0, 11]);
        this.send(METHOD, 1, &[0, 85, 0, 10, 0]);
        this.until([0, 85, 0, 11]);
        this
    }

    /// Publishes a message and waits for its confirmation.
    pub(crate) fn publish(&mut self, exchange: &str, message: &RawMessage) {
        let RawMessage { routing_key, content_type, headers, body } = message;
        let method = [&[0, 60, 0, 40, 0, 0][..], &short(exchange.as_bytes()), &short(routing_key), &[0]];
        self.send(METHOD, 1, &method.concat());
        let flags = (CONTENT_TYPE | HEADERS).to_be_bytes();
        let size = (body.len() as u64).to_be_bytes();
        let header = [&[0, 60, 0, 0][..], &size, &flags, &short(content_type), &long(headers)];
        self.send(HEADER, 1, &header.concat());
        self.send(BODY, 1, body);
        self.until([0, 60, 0, 80]);
    }

    fn send(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let head = [&[kind][..], &channel.to_be_bytes(), &u32::try_from(payload.len()).unwrap().to_be_bytes()];
        self.0.write_all(&[&head.concat(), payload, &[END]].concat()).unwrap();
    }

    /// Reads frames until that method arrives.
    fn until(&mut self, method: [u8; 4]) {
        loop {
            let mut head = [0; 7];
            self.0.read_exact(&mut head).unwrap();
            let [kind, _, _, size @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes(size) as usize + 1];
            self.0.read_exact(&mut payload).unwrap();
            if kind == METHOD {
                let text = String::from_utf8_lossy(&payload).into_owned();
                assert!(![[0, 10, 0, 50], [0, 20, 0, 40]].contains(payload.first_chunk().unwrap()), "{text}");
                if payload.starts_with(&method) {
                    return;
                }
            }
        }
    }
}
