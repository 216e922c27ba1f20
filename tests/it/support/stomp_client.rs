//! STOMP 1.2 client besides the one in Python: it sends fast and browses queues. It shares no code with the
//! gateway.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use super::broker_process::PATIENCE;

/// Connection to a broker.
pub(crate) struct Client {
    socket: BufReader<TcpStream>,
}

/// Command and raw headers of a frame. Its body is ignored.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) command: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Frame {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(held, _)| held == name).map_or("", |(_, value)| value)
    }
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut client = Self { socket: BufReader::new(socket) };
        client.write(&frame("CONNECT", &[("accept-version", "1.2"), ("host", "h")], b""));
        assert_eq!(client.read().command, "CONNECTED");
        client
    }

    /// Sends persistent messages; the broker has all of them when this returns.
    pub(crate) fn send_all<B: AsRef<[u8]>>(
        &mut self,
        destination: &str,
        headers: &[(&str, &str)],
        bodies: impl IntoIterator<Item = B>,
    ) {
        let headers = [&[("destination", destination), ("persistent", "true")], headers].concat();
        // One transaction makes the broker sync its disk only once.
        let mut frames = frame("BEGIN", &[("transaction", "t")], b"");
        let headers = [&headers[..], &[("transaction", "t")]].concat();
        for body in bodies {
            frames.extend(frame("SEND", &headers, body.as_ref()));
        }
        frames.extend(frame("COMMIT", &[("transaction", "t"), ("receipt", "sent")], b""));
        self.write(&frames);
        let answer = self.read();
        assert_eq!((answer.command.as_str(), answer.header("receipt-id")), ("RECEIPT", "sent"), "{answer:?}");
    }

    /// Returns the messages of a queue without removing them.
    pub(crate) fn browse(&mut self, queue: &str) -> Vec<Frame> {
        let headers = [("id", "browsing"), ("destination", queue), ("browser", "true"), ("ack", "auto")];
        self.write(&frame("SUBSCRIBE", &headers, b""));
        let mut found = Vec::new();
        loop {
            let message = self.read();
            assert_eq!(message.command, "MESSAGE", "{message:?}");
            if message.header("browser") == "end" {
                self.write(&frame("UNSUBSCRIBE", &[("id", "browsing")], b""));
                return found;
            }
            found.push(message);
        }
    }

    fn write(&mut self, octets: &[u8]) {
        self.socket.get_mut().write_all(octets).unwrap();
    }

    fn read(&mut self) -> Frame {
        read(&mut self.socket).unwrap()
    }
}

/// Encodes a frame; a body gets a `content-length`.
pub(crate) fn frame(command: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut frame = format!("{command}\n").into_bytes();
    let length = body.len().to_string();
    let length: &[_] = if body.is_empty() { &[] } else { &[("content-length", length.as_str())] };
    for (name, value) in headers.iter().chain(length) {
        let value = match command {
            "CONNECT" | "CONNECTED" => (*value).to_owned(),
            _ => value.replace('\\', "\\\\").replace(':', "\\c").replace('\n', "\\n").replace('\r', "\\r"),
        };
        frame.extend(format!("{name}:{value}\n").bytes());
    }
    frame.push(b'\n');
    frame.extend(body);
    frame.push(0);
    frame
}

/// Reads one frame; returns `None` if the connection has ended.
pub(crate) fn read(socket: &mut impl BufRead) -> Option<Frame> {
    let line = |socket: &mut dyn BufRead| {
        let mut line = Vec::new();
        socket.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8(line).unwrap();
        line.ends_with('\n').then(|| line.trim_end_matches(['\n', '\r']).to_owned())
    };
    let mut command = line(socket)?;
    while command.is_empty() {
        command = line(socket)?;
    }
    let mut headers = Vec::new();
    loop {
        let header = line(socket)?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut body = Vec::new();
    match headers.iter().find(|(name, _)| name == "content-length") {
        Some((_, length)) => {
            body.resize(length.parse::<usize>().unwrap() + 1, 1);
            socket.read_exact(&mut body).ok()?;
        }
        None => {
            socket.read_until(0, &mut body).ok()?;
        }
    }
    (body.pop() == Some(0)).then_some(Frame { command, headers })
}
