//! A reader with nothing to it: it takes messages as they come and acknowledges each by itself. What it has to say goes
//! out when there is nothing more to read at once, so that it makes few calls of the system.

use std::{
    io::{BufReader, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::stomp_client::{frame, read};

/// How many messages may be read and not acknowledged; the gateway's default.
const PREFETCH: &str = "1000";

/// How much is read at once, in bytes.
const READ: usize = 64 * 1024;

/// Drains the queue. From the first message to the broker's word that it has the last acknowledgement: how many more
/// came, and how long that took.
pub(crate) fn drain(port: u16, queue: &str, count: u64) -> (u64, Duration) {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut writing = socket.try_clone().unwrap();
    let mut reading = BufReader::with_capacity(READ, socket);
    let mut out = frame("CONNECT", &[("accept-version", "1.2"), ("host", "h")], b"");
    let ack = [("ack", "client-individual"), ("activemq.prefetchSize", PREFETCH)];
    out.extend(frame("SUBSCRIBE", &[&[("id", "1"), ("destination", queue)], &ack[..]].concat(), b""));
    writing.write_all(&out).unwrap();
    out.clear();
    assert_eq!(read(&mut reading).unwrap().command, "CONNECTED");
    let mut began = None;
    for number in 1..=count {
        let message = read(&mut reading).unwrap();
        assert_eq!(message.command, "MESSAGE");
        began.get_or_insert_with(Instant::now);
        let id = message.header("ack").replace("\\c", ":");
        let receipt: &[_] = if number == count { &[("receipt", "last")] } else { &[] };
        out.extend(frame("ACK", &[&[("id", id.as_str())], receipt].concat(), b""));
        // Behind a frame ActiveMQ sends an end of line, which belongs to none.
        if reading.buffer().trim_ascii().is_empty() || number == count {
            writing.write_all(&out).unwrap();
            out.clear();
        }
    }
    assert_eq!(read(&mut reading).unwrap().command, "RECEIPT");
    (count - 1, began.unwrap().elapsed())
}
