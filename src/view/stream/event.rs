//! Encoding of server-sent events (WHATWG HTML, sections 9.2.5 and 9.2.6).
//!
//! Some clients (`httpx-sse`, `sseclient`) return an event at each empty line, even where a browser would not: after
//! only an `id` or a `retry`. Therefore a heartbeat is a comment without an empty line, `retry` is sent with an
//! event, and an `id` is sent alone only where necessary.

use std::io::{self, Write};

use bytes::Bytes;

use crate::{
    format::FormatKind,
    journal::{RecordedChange, store::StoreError},
    model::{Change, ItemChangeKind, Seq},
};

/// Time after which a client reconnects, in milliseconds.
const RETRY_MILLIS: u32 = 2000;

/// Name of this framing among the cached encodings of a change.
const FRAME: &str = "event-stream";

/// Comment that keeps a connection alive.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b":\n");

/// Returns a change as an event, encoded once per format.
pub(super) fn of_change(recorded: &RecordedChange, format: &'static FormatKind) -> Result<Bytes, StoreError> {
    recorded.framed(FRAME, format.name, |change| {
        let mut event = Vec::with_capacity(recorded.json().len() + 64);
        // Writing to a Vec cannot fail.
        let _ = write_change(&mut event, change, format);
        event
    })
}

/// Writes a change as an event.
pub(super) fn write_change(out: &mut impl Write, change: &Change, format: &'static FormatKind) -> io::Result<()> {
    write(out, change.seq, ItemChangeKind::word(change), &(format.write)(change))
}

/// Returns the reconnection time as the beginning of an event.
pub(super) fn retry() -> Bytes {
    format!("retry: {RETRY_MILLIS}\n").into()
}

/// Returns an event with the reconnection time.
pub(super) fn with_retry(event: &[u8]) -> Bytes {
    [&retry()[..], event].concat().into()
}

/// Returns the cursor without an event: a browser stores it and dispatches no event.
pub(super) fn cursor(seq: Seq) -> Bytes {
    format!("id: {seq}\n\n").into()
}

fn write(out: &mut impl Write, seq: Seq, kind: &str, data: &[u8]) -> io::Result<()> {
    write!(out, "id: {seq}\nevent: {kind}\n")?;
    let mut rest = data;
    loop {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        out.write_all(b"data: ")?;
        out.write_all(&rest[..end.unwrap_or(rest.len())])?;
        out.write_all(b"\n")?;
        let Some(end) = end else { break };
        let line_end = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + line_end..];
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::{Seq, write};

    #[test]
    fn each_line_of_data_is_a_data_field() {
        let encoded = |data: &str| {
            let mut event = Vec::new();
            write(&mut event, Seq(7), "add", data.as_bytes()).unwrap();
            String::from_utf8(event).unwrap()
        };
        assert_eq!(encoded("{}"), "id: 7\nevent: add\ndata: {}\n\n");
        assert_eq!(encoded("a\nb\r\nc\rd\n"), "id: 7\nevent: add\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_eq!(encoded(" a\n\nb"), "id: 7\nevent: add\ndata:  a\ndata: \ndata: b\n\n");
        assert_eq!(encoded(""), "id: 7\nevent: add\ndata: \n\n");
    }
}
