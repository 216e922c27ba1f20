//! Head of a MESSAGE that is too long. The headers for its acknowledgement are kept, and the others are
//! dropped as they arrive.

use bytes::{Buf, BytesMut};
use memchr::memchr;

use super::super::frame::{Command, Version, unescape};

/// The headers that are kept: those for the acknowledgement, and those that describe the body.
const KEPT_HEADERS: [&str; 8] = [
    "message-id",
    "ack",
    "subscription",
    "destination",
    "content-length",
    "content-type",
    "content-encoding",
    "redelivered",
];

/// Maximum length of a line with such a header, in bytes.
const LINE_BYTES: usize = 4096;

/// State of a long head.
#[derive(Debug, Default)]
pub(super) struct LongHead {
    /// Size of the head so far, in bytes.
    pub(super) bytes: u64,
    /// The headers that were kept, each once.
    pub(super) headers: Vec<(String, String)>,
    /// True if the beginning of the current line was dropped.
    is_within_line: bool,
}

impl LongHead {
    /// True if a frame with this beginning may have its head shortened.
    pub(super) fn is_for(buffer: &[u8]) -> bool {
        buffer.starts_with(b"MESSAGE\n") || buffer.starts_with(b"MESSAGE\r\n")
    }

    /// Reads the lines in the buffer, and returns true if the head has ended.
    pub(super) fn read(&mut self, buffer: &mut BytesMut, version: Version) -> bool {
        while let Some(end) = memchr(b'\n', buffer) {
            let line = buffer.split_to(end + 1);
            self.bytes += line.len() as u64;
            if std::mem::take(&mut self.is_within_line) {
                continue;
            }
            match line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]) {
                b"" => return true,
                line if end <= LINE_BYTES => self.keep(line, version),
                _ => {}
            }
        }
        if buffer.len() > LINE_BYTES {
            self.bytes += buffer.len() as u64;
            buffer.advance(buffer.len());
            self.is_within_line = true;
        }
        false
    }

    fn keep(&mut self, line: &[u8], version: Version) {
        let Some(colon) = memchr(b':', line) else { return };
        let [name, value] = [&line[..colon], &line[colon + 1..]].map(|text| unescape(text, Command::Message, version));
        if KEPT_HEADERS.contains(&name.as_str()) && !self.headers.iter().any(|(kept, _)| *kept == name) {
            self.headers.push((name, value));
        }
    }
}
