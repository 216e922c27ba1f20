//! Minimal reader: it receives messages and acknowledges each one individually. Acknowledgements are sent when the
//! input buffer is empty, to need few system calls.

use std::{
    io::{BufReader, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::stomp_client::{frame, read};

/// Maximum number of unacknowledged messages: the default of the gateway.
const PREFETCH: &str = "1000";

/// Size of the input buffer, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Drains the queue. Returns, from the first message to the receipt for the last acknowledgement: the number of further
/// messages and the elapsed time.
pub(crate) fn drain(port: u16, queue: &str, count: u64) -> (u64, Duration) {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut writing = socket.try_clone().unwrap();
    let mut reading = BufReader::with_capacity(BUFFER_BYTES, socket);
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
        // After a frame ActiveMQ sends a line break, which belongs to no frame.
        if reading.buffer().trim_ascii().is_empty() || number == count {
            writing.write_all(&out).unwrap();
            out.clear();
        }
    }
    assert_eq!(read(&mut reading).unwrap().command, "RECEIPT");
    (count - 1, began.unwrap().elapsed())
}
