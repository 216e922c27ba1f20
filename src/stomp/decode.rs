//! Incremental decoder of frames, independent of how the octets are split into reads.
//!
//! Memory is limited: a head to [`HEAD_BYTES`], and a body to the limit of the decoder. A larger body is
//! discarded as it arrives, and the frame is returned without it. If the head of a MESSAGE is too long, the
//! headers that its acknowledgement does not need are dropped; without the others the broker would deliver the
//! message again forever.

mod long_head;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use self::long_head::LongHead;
use super::{
    error::MalformedFrame,
    frame::{Body, Command, Frame, Version, unescape},
};

/// Maximum size of the command and the headers of a frame, in bytes.
pub const HEAD_BYTES: usize = 64 * 1024;

/// State of the decoder. Undecoded octets are in the caller's buffer; the state records how far they were
/// searched, so no octet is searched twice.
#[derive(Debug)]
pub struct Decoder {
    version: Version,
    max_body_bytes: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Between frames, or in a head. `searched` octets contain no end of the head.
    Head { searched: usize },
    /// In a head that is too long.
    LongHead(LongHead),
    /// In a body. `searched` octets contain no NUL.
    Body { head: Head, searched: usize },
    /// In a body that is too large. `skipped` octets are discarded.
    Skipped { head: Head, skipped: u64 },
}

#[derive(Debug)]
struct Head {
    command: Command,
    headers: Vec<(String, String)>,
    /// Length of the body, if the frame declares it. Otherwise the body ends at the first NUL.
    length: Option<u64>,
    /// Size of the whole head in bytes, if headers were dropped.
    shortened_from: Option<u64>,
}

impl Head {
    fn frame(self, body: Bytes) -> Frame {
        let body = match self.shortened_from {
            Some(bytes) => Body::LongHead(bytes, body),
            None => Body::Whole(body),
        };
        Frame { command: self.command, headers: self.headers, body }
    }
}

impl Decoder {
    /// Creates a decoder for bodies of up to `max_body_bytes` bytes.
    #[must_use]
    pub fn new(version: Version, max_body_bytes: usize) -> Self {
        Self { version, max_body_bytes, state: State::Head { searched: 0 } }
    }

    /// Sets the version whose escapes apply from the next frame on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// True if a frame has begun and not ended.
    #[must_use]
    pub fn is_within(&self, buffer: &BytesMut) -> bool {
        !matches!(self.state, State::Head { .. }) || buffer.iter().any(|octet| !is_end_of_line(*octet))
    }

    /// Returns the next frame if it is complete, and removes it from the buffer. Heart-beats are skipped.
    ///
    /// # Errors
    /// Fails if the octets are no STOMP. No more frames can be decoded then.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, MalformedFrame> {
        loop {
            let state = std::mem::replace(&mut self.state, State::Head { searched: 0 });
            match state {
                State::Head { searched } => {
                    if let Some(head) = self.head(buffer, searched)? {
                        self.begin_body(head);
                    } else if !matches!(self.state, State::LongHead(_)) {
                        return Ok(None);
                    }
                }
                State::LongHead(mut long) => {
                    if !long.read(buffer, self.version) {
                        self.state = State::LongHead(long);
                        return Ok(None);
                    }
                    let LongHead { bytes, headers, .. } = long;
                    let (command, length) = (Command::Message, content_length(&headers)?);
                    self.begin_body(Head { command, headers, length, shortened_from: Some(bytes) });
                }
                State::Body { head, searched } => match body(&head, searched, self.max_body_bytes, buffer)? {
                    BodyScan::Body(body) => {
                        return Ok(Some(head.frame(body)));
                    }
                    BodyScan::More(searched) => {
                        self.state = State::Body { head, searched };
                        return Ok(None);
                    }
                    BodyScan::TooLarge => self.state = State::Skipped { head, skipped: 0 },
                },
                State::Skipped { head, skipped } => {
                    let (skipped, ended) = skip(head.length, skipped, buffer)?;
                    if ended {
                        let Head { command, headers, .. } = head;
                        return Ok(Some(Frame { command, headers, body: Body::TooLarge(skipped) }));
                    }
                    self.state = State::Skipped { head, skipped };
                    return Ok(None);
                }
            }
        }
    }

    fn begin_body(&mut self, head: Head) {
        self.state = match head.length {
            Some(length) if length > self.max_body_bytes as u64 => State::Skipped { head, skipped: 0 },
            _ => State::Body { head, searched: 0 },
        };
    }

    fn head(&mut self, buffer: &mut BytesMut, searched: usize) -> Result<Option<Head>, MalformedFrame> {
        if searched == 0 {
            let beats = buffer.iter().take_while(|octet| is_end_of_line(**octet)).count();
            buffer.advance(beats);
        }
        match end_of_head(buffer, searched) {
            Ok(end) if end <= HEAD_BYTES => head(&buffer.split_to(end), self.version).map(Some),
            Err(searched) if buffer.len() <= HEAD_BYTES => {
                self.state = State::Head { searched };
                Ok(None)
            }
            _ if LongHead::is_for(buffer) => {
                self.state = State::LongHead(LongHead::default());
                Ok(None)
            }
            _ => Err(MalformedFrame::LongHead),
        }
    }
}

fn is_end_of_line(octet: u8) -> bool {
    matches!(octet, b'\n' | b'\r')
}

/// Returns the end of the empty line after the headers. The error is the number of octets that were searched.
fn end_of_head(buffer: &[u8], searched: usize) -> Result<usize, usize> {
    let mut at = searched;
    while let Some(line_end) = memchr(b'\n', &buffer[at..]) {
        at += line_end;
        match &buffer[at + 1..] {
            [b'\n', ..] => return Ok(at + 2),
            [b'\r', b'\n', ..] => return Ok(at + 3),
            [] | [b'\r'] => return Err(at),
            _ => at += 1,
        }
    }
    Err(buffer.len())
}

fn head(octets: &[u8], version: Version) -> Result<Head, MalformedFrame> {
    if memchr(0, octets).is_some() {
        return Err(MalformedFrame::NulInHead);
    }
    let mut lines = octets.split(|octet| *octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let name = lines.next().unwrap_or_default();
    let command = Command::ALL.into_iter().find(|command| command.name().as_bytes() == name);
    let command = command.ok_or_else(|| MalformedFrame::command(name))?;
    let mut headers = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = memchr(b':', line).ok_or(MalformedFrame::NoColon)?;
        let [name, value] = [&line[..colon], &line[colon + 1..]].map(|text| unescape(text, command, version));
        headers.push((name, value));
    }
    let length = content_length(&headers)?;
    Ok(Head { command, headers, length, shortened_from: None })
}

fn content_length(headers: &[(String, String)]) -> Result<Option<u64>, MalformedFrame> {
    let length = headers.iter().find(|(name, _)| name == "content-length");
    length.map(|(_, length)| length.trim().parse().map_err(|_| MalformedFrame::ContentLength)).transpose()
}

enum BodyScan {
    Body(Bytes),
    /// The body is incomplete. The value is the number of octets that were searched.
    More(usize),
    TooLarge,
}

fn body(
    head: &Head,
    searched: usize,
    max_body_bytes: usize,
    buffer: &mut BytesMut,
) -> Result<BodyScan, MalformedFrame> {
    let length = match head.length {
        // The length is not larger than `max_body_bytes`.
        Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
        None => match memchr(0, &buffer[searched..]) {
            Some(nul) => searched + nul,
            None if buffer.len() > max_body_bytes => return Ok(BodyScan::TooLarge),
            None => return Ok(BodyScan::More(buffer.len())),
        },
    };
    if length > max_body_bytes {
        return Ok(BodyScan::TooLarge);
    }
    match buffer.get(length) {
        Some(0) => {
            let body = buffer.split_to(length).freeze();
            buffer.advance(1);
            Ok(BodyScan::Body(body))
        }
        Some(_) => Err(MalformedFrame::NoEnd),
        None => Ok(BodyScan::More(0)),
    }
}

/// Discards the available part of a body. Returns the number of octets discarded so far, and true if the body
/// has ended.
fn skip(length: Option<u64>, skipped: u64, buffer: &mut BytesMut) -> Result<(u64, bool), MalformedFrame> {
    let rest = match length {
        Some(length) => usize::try_from(length - skipped).unwrap_or(usize::MAX),
        None => memchr(0, buffer).unwrap_or(usize::MAX),
    };
    let discarded = rest.min(buffer.len());
    buffer.advance(discarded);
    let skipped = skipped + discarded as u64;
    match buffer.first() {
        Some(0) if discarded == rest => {
            buffer.advance(1);
            Ok((skipped, true))
        }
        Some(_) => Err(MalformedFrame::NoEnd),
        None => Ok((skipped, false)),
    }
}

#[cfg(test)]
mod tests;
