//! Frames out of octets as they come, however they are cut.
//!
//! What is held is bounded: a head by [`HEAD_BYTES`], a body by what the decoder is told. A body that is
//! larger is thrown away as it comes, and the frame is given without it. Of a message with a longer head the headers
//! are left out that its acknowledgement does not need, or it would come again for ever.

mod long_head;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use self::long_head::LongHead;
use super::{
    error::Malformed,
    frame::{Body, Command, Frame, Version, unescape},
};

/// How many bytes the command and the headers of a frame may have together.
pub const HEAD_BYTES: usize = 64 * 1024;

/// What has not been read yet is in the caller's buffer; what is known of it is here, so that nothing is looked at
/// twice.
#[derive(Debug)]
pub struct Decoder {
    version: Version,
    largest: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Between frames, or in a head of which so much has been searched for its end.
    Head { searched: usize },
    /// In a head that is too long.
    LongHead(LongHead),
    /// In a body.
    Body { head: Head, searched: usize },
    /// In a body that is too large, of which so much has been thrown away.
    Skipped { head: Head, skipped: u64 },
}

#[derive(Debug)]
struct Head {
    command: Command,
    headers: Vec<(String, String)>,
    /// How long the body is, where the frame tells it; else it ends at the first NUL.
    length: Option<u64>,
    /// Size of the head in bytes, where headers were left out.
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
    /// A decoder that keeps bodies of up to `largest` bytes.
    #[must_use]
    pub fn new(version: Version, largest: usize) -> Self {
        Self { version, largest, state: State::Head { searched: 0 } }
    }

    /// The version by which headers are unescaped from the next frame on.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Whether a frame has begun, and has not ended.
    #[must_use]
    pub fn is_within(&self, buffer: &BytesMut) -> bool {
        !matches!(self.state, State::Head { .. }) || buffer.iter().any(|octet| !is_end_of_line(*octet))
    }

    /// The next frame, if all of it is there; what belongs to it leaves the buffer. Heart-beats are passed over.
    ///
    /// # Errors
    /// When this is not STOMP. Nothing more can be read then.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
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
                State::Body { head, searched } => match body(&head, searched, self.largest, buffer)? {
                    Found::Body(body) => {
                        return Ok(Some(head.frame(body)));
                    }
                    Found::More(searched) => {
                        self.state = State::Body { head, searched };
                        return Ok(None);
                    }
                    Found::TooLarge => self.state = State::Skipped { head, skipped: 0 },
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
            Some(length) if length > self.largest as u64 => State::Skipped { head, skipped: 0 },
            _ => State::Body { head, searched: 0 },
        };
    }

    fn head(&mut self, buffer: &mut BytesMut, searched: usize) -> Result<Option<Head>, Malformed> {
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
            _ => Err(Malformed::LongHead),
        }
    }
}

fn is_end_of_line(octet: u8) -> bool {
    matches!(octet, b'\n' | b'\r')
}

/// Where the empty line ends; or how far there is none.
fn end_of_head(buffer: &[u8], searched: usize) -> Result<usize, usize> {
    let mut at = searched;
    while let Some(found) = memchr(b'\n', &buffer[at..]) {
        at += found;
        match &buffer[at + 1..] {
            [b'\n', ..] => return Ok(at + 2),
            [b'\r', b'\n', ..] => return Ok(at + 3),
            [] | [b'\r'] => return Err(at),
            _ => at += 1,
        }
    }
    Err(buffer.len())
}

fn head(octets: &[u8], version: Version) -> Result<Head, Malformed> {
    if memchr(0, octets).is_some() {
        return Err(Malformed::NulInHead);
    }
    let mut lines = octets.split(|octet| *octet == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let name = lines.next().unwrap_or_default();
    let command = Command::ALL.into_iter().find(|command| command.name().as_bytes() == name);
    let command = command.ok_or_else(|| Malformed::command(name))?;
    let mut headers = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = memchr(b':', line).ok_or(Malformed::NoColon)?;
        let [name, value] = [&line[..colon], &line[colon + 1..]].map(|text| unescape(text, command, version));
        headers.push((name, value));
    }
    let length = content_length(&headers)?;
    Ok(Head { command, headers, length, shortened_from: None })
}

fn content_length(headers: &[(String, String)]) -> Result<Option<u64>, Malformed> {
    let length = headers.iter().find(|(name, _)| name == "content-length");
    length.map(|(_, length)| length.trim().parse().map_err(|_| Malformed::ContentLength)).transpose()
}

enum Found {
    Body(Bytes),
    /// Not all of it is there; so much has been searched.
    More(usize),
    TooLarge,
}

fn body(head: &Head, searched: usize, largest: usize, buffer: &mut BytesMut) -> Result<Found, Malformed> {
    let length = match head.length {
        // It is no more than the largest.
        Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
        None => match memchr(0, &buffer[searched..]) {
            Some(found) => searched + found,
            None if buffer.len() > largest => return Ok(Found::TooLarge),
            None => return Ok(Found::More(buffer.len())),
        },
    };
    if length > largest {
        return Ok(Found::TooLarge);
    }
    match buffer.get(length) {
        Some(0) => {
            let body = buffer.split_to(length).freeze();
            buffer.advance(1);
            Ok(Found::Body(body))
        }
        Some(_) => Err(Malformed::NoEnd),
        None => Ok(Found::More(0)),
    }
}

/// Throws away what is there of a body. Says how much of it is gone by now, and whether that was all.
fn skip(length: Option<u64>, skipped: u64, buffer: &mut BytesMut) -> Result<(u64, bool), Malformed> {
    let rest = match length {
        Some(length) => usize::try_from(length - skipped).unwrap_or(usize::MAX),
        None => memchr(0, buffer).unwrap_or(usize::MAX),
    };
    let gone = rest.min(buffer.len());
    buffer.advance(gone);
    let skipped = skipped + gone as u64;
    match buffer.first() {
        Some(0) if gone == rest => {
            buffer.advance(1);
            Ok((skipped, true))
        }
        Some(_) => Err(Malformed::NoEnd),
        None => Ok((skipped, false)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::{
        super::{Body, Command, Frame, Malformed, Version, encode},
        Decoder, HEAD_BYTES,
    };

    fn all(octets: &[u8], largest: usize) -> Result<Vec<Frame>, Malformed> {
        let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, largest), BytesMut::from(octets));
        let mut frames = Vec::new();
        while let Some(frame) = decoder.decode(&mut buffer)? {
            frames.push(frame);
        }
        assert_eq!(decoder.is_within(&buffer), !buffer.is_empty());
        Ok(frames)
    }

    fn one(octets: &[u8]) -> Frame {
        let mut frames = all(octets, 100).unwrap();
        assert_eq!(frames.len(), 1);
        frames.remove(0)
    }

    fn whole(body: &'static [u8]) -> Body {
        Body::Whole(body.into())
    }

    #[test]
    fn frames_are_read_between_heart_beats_with_any_end_of_line() {
        let frame = one(b"\n\r\n\nMESSAGE\r\na:b\\c\r\na:second\n\r\nbody\0\n\n");
        assert_eq!(
            (frame.command, frame.header("a"), frame.body.clone()),
            (Command::Message, Some("b:"), whole(b"body"))
        );
        assert_eq!(frame.headers.len(), 2);
        assert_eq!(one(b"RECEIPT\n\n\0").headers, []);
        assert_eq!(one(b"CONNECTED\na: b\\c:d \n\n\0").header("a"), Some(" b\\c:d "));
        assert_eq!(one(b"MESSAGE\ncontent-length:3\n\n\0a\0\0").body, whole(b"\0a\0"));
        assert_eq!(all(b"RECEIPT\nreceipt-id:1\n\n\0\nMESSAGE\n\nx\0ERROR\n", 100).unwrap().len(), 2);
    }

    #[test]
    fn a_body_that_is_too_large_is_left_out_and_what_follows_is_read() {
        for (message, bytes) in [
            (&b"MESSAGE\nid:1\ncontent-length:6\n\n123\x0056\0RECEIPT\n\n\0"[..], 6),
            (b"MESSAGE\nid:1\n\n1234567\0RECEIPT\n\n\0", 7),
        ] {
            let frames = all(message, 5).unwrap();
            assert_eq!((frames[0].header("id"), &frames[0].body), (Some("1"), &Body::TooLarge(bytes)));
            assert_eq!(frames[1].command, Command::Receipt);
        }
        assert_eq!(all(b"MESSAGE\n\n12345\0", 5).unwrap()[0].body, whole(b"12345"));
    }

    #[test]
    fn a_long_head_is_shortened_and_the_next_frame_is_read() {
        let long = "x".repeat(9000);
        for cut in [1, 7, 4096, usize::MAX] {
            for (line, ends) in [("\n", "\n\n"), ("\r\n", "\r\n\r\n")] {
                let lines: String = (0..9).map(|number| format!("{line}h{number}:{long}")).collect();
                let head =
                    format!("MESSAGE{line}ack:1\\c2{lines}{line}message-id:m{line}ack:3{line}content-length:3{ends}");
                let octets = [head.as_bytes(), b"a\0b\0RECEIPT\n\n\0"].concat();
                let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, 100), BytesMut::new());
                let mut frames = Vec::new();
                for part in octets.chunks(cut.min(octets.len())) {
                    buffer.extend_from_slice(part);
                    frames.extend(std::iter::from_fn(|| decoder.decode(&mut buffer).unwrap()));
                    assert!(buffer.len() <= HEAD_BYTES + part.len());
                }
                assert_eq!(frames.len(), 2, "{cut}");
                assert_eq!(frames[0].body, Body::LongHead(head.len() as u64, b"a\0b"[..].into()), "{cut}");
                let kept: Vec<_> = frames[0].headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
                assert_eq!(kept, ["ack=1:2", "message-id=m", "content-length=3"]);
            }
        }
    }

    #[test]
    fn what_is_not_stomp_is_refused() {
        let long = [b"RECEIPT\n", "a:b\n".repeat(HEAD_BYTES / 4).as_bytes()].concat();
        for (octets, told) in [
            (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], Malformed::command(b"HTTP/1.1 400 Bad Request")),
            (b"MESSAGE\nno colon\n\n\0", Malformed::NoColon),
            (b"MESSAGE\ncontent-length:-1\n\n\0", Malformed::ContentLength),
            (b"MESSAGE\ncontent-length:1\n\nab\0", Malformed::NoEnd),
            (b"MESSAGE\ncontent-length:101\n\n", Malformed::NoEnd),
            (b"MESSAGE\na:b\0c\n\n", Malformed::NulInHead),
            (&long, Malformed::LongHead),
        ] {
            let octets = if octets.ends_with(b"101\n\n") { [octets, &[b'x'; 103]].concat() } else { octets.to_vec() };
            assert_eq!(all(&octets, 100).unwrap_err(), told);
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z:\\\\\n\r]{0,6}", "\\PC{0,6}"]
    }

    fn frames() -> impl Strategy<Value = (Vec<(String, String)>, Vec<u8>)> {
        (prop::collection::vec((texts(), texts()), 0..5), prop::collection::vec(any::<u8>(), 0..40))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            frames in prop::collection::vec(frames(), 1..5),
            cuts in prop::collection::vec(1..30usize, 1..20),
            newer in any::<bool>(),
        ) {
            let version = if newer { Version::V1_2 } else { Version::V1_1 };
            let mut octets = Vec::new();
            let mut expected = Vec::new();
            for (mut headers, body) in frames {
                headers.retain(|(name, _)| name != "content-length");
                if version == Version::V1_1 {
                    // It cannot be written in that version.
                    headers.iter_mut().for_each(|(name, value)| {
                        *name = name.replace('\r', "");
                        *value = value.replace('\r', "");
                    });
                }
                let told: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                encode(&mut octets, version, Command::Message, &told, &body);
                octets.push(b'\n');
                if !body.is_empty() {
                    headers.push(("content-length".to_owned(), body.len().to_string()));
                }
                let body = if body.len() > 30 { Body::TooLarge(body.len() as u64) } else { Body::Whole(body.into()) };
                expected.push(Frame { command: Command::Message, headers, body });
            }
            let (mut decoder, mut buffer) = (Decoder::new(version, 30), BytesMut::new());
            let mut read = Vec::new();
            let (mut rest, mut cuts) = (&octets[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                buffer.extend_from_slice(now);
                rest = later;
                while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, expected);
            prop_assert!(!decoder.is_within(&buffer));
        }

        #[test]
        fn nothing_makes_it_panic_and_nothing_is_held_beyond_the_bounds(
            octets in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(0), Just(b':')], 0..400),
            beginning in prop_oneof![Just(""), Just("MESSAGE\n"), Just("MESSAGE\ncontent-length:7\n"), Just("ERROR\n\n")],
        ) {
            let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, 50), BytesMut::from(beginning.as_bytes()));
            for octet in octets {
                buffer.extend_from_slice(&[octet]);
                match decoder.decode(&mut buffer) {
                    Ok(Some(Frame { body: Body::Whole(body), .. })) => prop_assert!(body.len() <= 50),
                    Ok(_) => prop_assert!(buffer.len() <= HEAD_BYTES + 50),
                    Err(_) => return Ok(()),
                }
            }
        }
    }
}
