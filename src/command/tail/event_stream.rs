//! Incremental parser for event streams (WHATWG HTML, sections 9.2.5 and 9.2.6).

/// Maximum size of an event, in bytes: far more than a gateway sends.
const MAX_BYTES: usize = 256 << 20;

/// Byte order mark, which may begin a stream and is ignored.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Type of the event.
    pub(super) kind: String,
    /// Data lines, joined by newlines.
    pub(super) data: String,
    /// Last event id at this event; empty if the stream has sent none.
    pub(super) id: String,
}

/// Error: an event is larger than [`MAX_BYTES`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {} MiB", MAX_BYTES >> 20)]
pub(super) struct TooLarge;

/// Parser that accepts a stream in pieces of any size and buffers incomplete events.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    started: bool,
    /// Incomplete line.
    line: Vec<u8>,
    /// Whether the last line ended with CR, so that a following LF belongs to the same line break.
    after_cr: bool,
    kind: String,
    data: String,
    id: String,
    last_id: String,
    retry_millis: Option<u64>,
}

impl EventParser {
    /// Creates the parser of a stream that resumes after the event with this id.
    pub(super) fn after(last_id: &str) -> Self {
        Self { id: last_id.to_owned(), last_id: last_id.to_owned(), ..Self::default() }
    }

    /// Returns the last event id, including ids of blocks without data; empty if there was none.
    pub(super) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// Returns the reconnection time that the stream requested, in milliseconds.
    pub(super) fn retry_millis(&self) -> Option<u64> {
        self.retry_millis
    }

    /// Parses a piece of the stream and returns the events that it completes.
    ///
    /// # Errors
    /// Fails if an event is too large.
    pub(super) fn feed(&mut self, mut piece: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        while let Some(first) = piece.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &piece[..end.unwrap_or(piece.len())];
            if self.line.len() + self.data.len() + part.len() > MAX_BYTES {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = piece[end] == b'\r';
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(&line));
            // The allocation is reused.
            self.line = line;
            self.line.clear();
        }
        Ok(events)
    }

    fn line(&mut self, mut line: &[u8]) -> Option<Event> {
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) => {
                self.retry_millis = value.parse().ok().or(self.retry_millis);
            }
            // A comment or an unknown field.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        self.last_id.clone_from(&self.id);
        let (kind, mut data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
        // Removes the line break after the last data line; without data lines there is no event.
        data.pop()?;
        let kind = if kind.is_empty() { "message".to_owned() } else { kind };
        Some(Event { kind, data, id: self.last_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Event, EventParser};

    fn event(kind: &str, data: &str, id: &str) -> Event {
        Event { kind: kind.to_owned(), data: data.to_owned(), id: id.to_owned() }
    }

    fn read(stream: &str) -> Vec<Event> {
        EventParser::default().feed(stream.as_bytes()).unwrap()
    }

    /// Examples of the standard, section 9.2.6.
    #[test]
    fn examples_of_the_standard_are_parsed() {
        assert_eq!(read("data: YHOO\ndata: +2\ndata: 10\n\n"), [event("message", "YHOO\n+2\n10", "")]);
        let stream = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        let expected = [
            event("message", "first event", "1"),
            event("message", "second event", ""),
            event("message", " third event", ""),
        ];
        assert_eq!(read(stream), expected);
        assert_eq!(read("data\n\ndata\ndata\n\ndata:"), [event("message", "", ""), event("message", "\n", "")]);
        assert_eq!(read("data:test\n\ndata: test\n\n"), [event("message", "test", ""), event("message", "test", "")]);
        assert_eq!(
            read("event: add\n\ndata: x\n\n"),
            [event("message", "x", "")],
            "a block without data is not an event"
        );
        assert_eq!(read("id: 1\0\nid: 7\ndata: x\n\n"), [event("message", "x", "7")]);
        assert_eq!(read("Data: x\n data: x\nda\n\n"), []);
    }

    #[test]
    fn id_without_data_is_stored_without_an_event() {
        let mut events = EventParser::after("3");
        assert_eq!(events.feed(b"id: 9\n"), Ok(vec![]));
        assert_eq!(events.last_id(), "3", "the block is incomplete");
        assert_eq!(events.feed(b"retry: 2000\nretry: 2s\nretry:\n\n:\n"), Ok(vec![]));
        assert_eq!((events.last_id(), events.retry_millis()), ("9", Some(2000)));
    }

    fn text() -> impl Strategy<Value = String> {
        "[a-zäß:\u{FEFF}\u{1F600} ]{0,12}"
    }

    #[derive(Clone, Debug)]
    struct SentEvent {
        id: u64,
        kind: String,
        lines: Vec<String>,
        ends: Vec<&'static str>,
        comment: String,
    }

    fn sent() -> impl Strategy<Value = SentEvent> {
        let end = prop_oneof![Just("\n"), Just("\r"), Just("\r\n")];
        let parts =
            (any::<u64>(), "[a-z]{1,6}", prop::collection::vec(text(), 1..4), prop::collection::vec(end, 8), text());
        parts.prop_map(|(id, kind, lines, ends, comment)| SentEvent { id, kind, lines, ends, comment })
    }

    /// Serializes the events with line breaks of every kind. An empty line after a CR does not end with LF, because
    /// that LF would belong to the CR.
    fn written(sent: &[SentEvent]) -> String {
        let mut stream = String::new();
        for SentEvent { id, kind, lines, ends, comment } in sent {
            let mut ends = ends.iter().cycle();
            let mut line = |line: String| {
                let end = *ends.next().unwrap();
                let after_cr = line.is_empty() && stream.ends_with('\r');
                stream.extend([line.as_str(), if after_cr { "\r" } else { end }]);
            };
            line(format!(":{comment}"));
            line(format!("id: {id}"));
            line(format!("event: {kind}"));
            lines.iter().for_each(|data| line(format!("data: {data}")));
            line(String::new());
        }
        stream
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_the_pieces(
            sent in prop::collection::vec(sent(), 0..6),
            mark in any::<bool>(),
            cuts in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let stream = if mark { format!("\u{FEFF}{}", written(&sent)) } else { written(&sent) };
            let expected: Vec<_> =
                sent.iter().map(|sent| event(&sent.kind, &sent.lines.join("\n"), &sent.id.to_string())).collect();
            let (mut events, mut received, mut rest) = (EventParser::default(), Vec::new(), stream.as_bytes());
            for cut in cuts.iter().cycle() {
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                received.extend(events.feed(piece).unwrap());
                rest = left;
                if rest.is_empty() { break }
            }
            prop_assert_eq!(&received, &expected);
            prop_assert_eq!(EventParser::default().feed(stream.as_bytes()).unwrap(), expected);
        }

        #[test]
        fn arbitrary_bytes_do_not_depend_on_the_pieces(stream in prop::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(0xEF), Just(0xBB), Just(0xBF), Just(b'd'),
                        any::<u8>()], 0..60), cut in 1_usize..7) {
            let mut events = EventParser::default();
            let pieces: Vec<_> = stream.chunks(cut).flat_map(|piece| events.feed(piece).unwrap()).collect();
            prop_assert_eq!(pieces, EventParser::default().feed(&stream).unwrap());
        }
    }
}
