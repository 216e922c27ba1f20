//! The bytes of an event stream (WHATWG HTML, sections 9.2.5 and 9.2.6).
//!
//! Some clients (`httpx-sse`, `sseclient`) hand out an event at each empty line, also where a browser would not:
//! after nothing but an `id` or a `retry`. So a heartbeat is a comment without an empty line, `retry` comes with
//! an event, and an `id` by itself only where it must.

use bytes::Bytes;

use crate::{
    format::FormatKind,
    journal::{Recorded, store::StoreError},
    model::{ItemChangeKind, Seq},
};

/// How long a client is to wait before it comes again, in milliseconds.
const RETRY_MILLIS: u32 = 2000;

/// The name of this framing among a change's encodings.
const FRAME: &str = "event-stream";

/// What keeps a connection alive and says nothing.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b":\n");

/// The change as an event, made once a format.
pub(super) fn of_change(change: &Recorded, format: &'static FormatKind) -> Result<Bytes, StoreError> {
    change.framed(FRAME, format.name, |told| {
        event(told.seq, ItemChangeKind::word(&told.modification.items), &(format.write)(told))
    })
}

/// The same with how long to wait before coming again.
pub(super) fn with_retry(event: &[u8]) -> Bytes {
    let mut with = format!("retry: {RETRY_MILLIS}\n").into_bytes();
    with.extend_from_slice(event);
    with.into()
}

/// Tells a client where it is, without an event: a browser keeps it and hands out nothing.
pub(super) fn place(seq: Seq) -> Bytes {
    format!("id: {seq}\n\n").into()
}

fn event(seq: Seq, kind: &str, data: &[u8]) -> Vec<u8> {
    let mut event = Vec::with_capacity(data.len() + 64);
    event.extend_from_slice(format!("id: {seq}\nevent: {kind}\n").as_bytes());
    let mut rest = data;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        event.push(b'\n');
        let Some(end) = end else { break };
        let line_end = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + line_end..];
    }
    event.push(b'\n');
    event
}

#[cfg(test)]
mod tests {
    use super::{Seq, event};

    #[test]
    fn every_line_of_the_data_is_a_line_of_data() {
        let told = |data: &str| String::from_utf8(event(Seq(7), "add", data.as_bytes())).unwrap();
        assert_eq!(told("{}"), "id: 7\nevent: add\ndata: {}\n\n");
        assert_eq!(told("a\nb\r\nc\rd\n"), "id: 7\nevent: add\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_eq!(told(" a\n\nb"), "id: 7\nevent: add\ndata:  a\ndata: \ndata: b\n\n");
        assert_eq!(told(""), "id: 7\nevent: add\ndata: \n\n");
    }
}
