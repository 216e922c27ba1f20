//! The bytes of an event stream (WHATWG HTML, sections 9.2.5 and 9.2.6).
//!
//! Some clients (`httpx-sse`, `sseclient`) hand out an event at each empty line, also where a browser would not:
//! after nothing but an `id` or a `retry`. So a heartbeat is a comment without an empty line, `retry` comes with
//! an event, and an `id` by itself only where it must.

use std::io::{self, Write};

use bytes::Bytes;

use crate::{
    format::FormatKind,
    journal::{RecordedChange, store::StoreError},
    model::{Change, ItemChangeKind, Seq},
};

/// How long a client is to wait before it comes again, in milliseconds.
const RETRY_MILLIS: u32 = 2000;

/// The name of this framing among a change's encodings.
const FRAME: &str = "event-stream";

/// What keeps a connection alive and says nothing.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b":\n");

/// The change as an event, made once a format.
pub(super) fn of_change(change: &RecordedChange, format: &'static FormatKind) -> Result<Bytes, StoreError> {
    change.framed(FRAME, format.name, |told| {
        let mut event = Vec::with_capacity(change.json().len() + 64);
        // A Vec takes whatever is written to it.
        let _ = write_change(&mut event, told, format);
        event
    })
}

/// Writes the change as an event.
pub(super) fn write_change(out: &mut impl Write, told: &Change, format: &'static FormatKind) -> io::Result<()> {
    write(out, told.seq, ItemChangeKind::word(&told.modification.items), &(format.write)(told))
}

/// How long to wait before coming again, as the beginning of an event.
pub(super) fn retry() -> Bytes {
    format!("retry: {RETRY_MILLIS}\n").into()
}

/// The event with how long to wait before coming again.
pub(super) fn with_retry(event: &[u8]) -> Bytes {
    [&retry()[..], event].concat().into()
}

/// Tells a client where it is, without an event: a browser keeps it and hands out nothing.
pub(super) fn place(seq: Seq) -> Bytes {
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
    fn every_line_of_the_data_is_a_line_of_data() {
        let told = |data: &str| {
            let mut event = Vec::new();
            write(&mut event, Seq(7), "add", data.as_bytes()).unwrap();
            String::from_utf8(event).unwrap()
        };
        assert_eq!(told("{}"), "id: 7\nevent: add\ndata: {}\n\n");
        assert_eq!(told("a\nb\r\nc\rd\n"), "id: 7\nevent: add\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_eq!(told(" a\n\nb"), "id: 7\nevent: add\ndata:  a\ndata: \ndata: b\n\n");
        assert_eq!(told(""), "id: 7\nevent: add\ndata: \n\n");
    }
}
