//! Frames of STOMP 1.1 and 1.2, and their encoder.

use bytes::Bytes;

use super::modified_utf8;

/// A version of the protocol. It determines the escapes in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// [STOMP 1.1](https://stomp.github.io/stomp-specification-1.1.html): escapes line feed, colon and
    /// backslash.
    V1_1,
    /// [STOMP 1.2](https://stomp.github.io/stomp-specification-1.2.html): escapes the carriage return as well.
    V1_2,
}

impl Version {
    /// Value of the header `accept-version`.
    pub const ACCEPTED: &'static str = "1.1,1.2";

    /// Returns the version with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name.trim() {
            "1.1" => Some(Self::V1_1),
            "1.2" => Some(Self::V1_2),
            _ => None,
        }
    }

    fn escaped(self, octet: u8) -> Option<&'static [u8; 2]> {
        match octet {
            b'\n' => Some(b"\\n"),
            b':' => Some(b"\\c"),
            b'\\' => Some(b"\\\\"),
            b'\r' if self == Self::V1_2 => Some(b"\\r"),
            _ => None,
        }
    }

    fn unescaped(self, octet: u8) -> Option<u8> {
        match octet {
            b'n' => Some(b'\n'),
            b'c' => Some(b':'),
            b'\\' => Some(b'\\'),
            b'r' if self == Self::V1_2 => Some(b'\r'),
            _ => None,
        }
    }
}

named_values! {
    /// Command of a frame.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Command {
        /// A client connects.
        Connect = "CONNECT",
        /// A client subscribes to a destination.
        Subscribe = "SUBSCRIBE",
        /// A client acknowledges a message.
        Ack = "ACK",
        /// A client disconnects.
        Disconnect = "DISCONNECT",
        /// A client sends a message.
        Send = "SEND",
        /// The broker has accepted the connection.
        Connected = "CONNECTED",
        /// The broker delivers a message.
        Message = "MESSAGE",
        /// The broker has processed a frame of the client.
        Receipt = "RECEIPT",
        /// The broker reports an error and closes the connection.
        Error = "ERROR",
    }
}

impl Command {
    /// True if headers are escaped. CONNECT and CONNECTED are exempt for compatibility with STOMP 1.0.
    fn escapes(self) -> bool {
        !matches!(self, Self::Connect | Self::Connected)
    }
}

/// Body of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The complete body.
    Whole(Bytes),
    /// Size of a body that was too large and was discarded.
    TooLarge(u64),
    /// Size of a head that was too long, so that most headers were dropped, and the complete body.
    LongHead(u64, Bytes),
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The command.
    pub command: Command,
    /// Names and values, unescaped, in order. If a name repeats, the first value counts.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Frame {
    /// Returns the first value of a header. Names are case-sensitive.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Encodes a frame. A frame with a body gets a `content-length`, so the body may contain any octet.
///
/// The headers of CONNECT are not escaped and must contain no line break.
pub fn encode(out: &mut Vec<u8>, version: Version, command: Command, headers: &[(&str, &str)], body: &[u8]) {
    encode_head(out, version, command, headers, body.len());
    out.extend(body);
    out.push(END);
}

/// Octet after the body of a frame.
pub(super) const END: u8 = 0;

/// Encodes the part of a frame before its body.
pub(super) fn encode_head(
    out: &mut Vec<u8>,
    version: Version,
    command: Command,
    headers: &[(&str, &str)],
    body_bytes: usize,
) {
    out.extend(command.name().as_bytes());
    out.push(b'\n');
    let mut header = |name: &str, value: &str| {
        for (text, end) in [(name, b':'), (value, b'\n')] {
            for octet in text.bytes() {
                match version.escaped(octet).filter(|_| command.escapes()) {
                    Some(escaped) => out.extend(escaped),
                    None => out.push(octet),
                }
            }
            out.push(end);
        }
    };
    for (name, value) in headers {
        header(name, value);
    }
    if body_bytes > 0 {
        header("content-length", &body_bytes.to_string());
    }
    out.push(b'\n');
}

/// Decodes the name or the value of a header. Unknown escapes are kept as they are: the specification requires
/// closing the connection, but then an irrelevant header would block its queue forever. Java's modified UTF-8
/// is accepted as well; other invalid octets are replaced.
pub(super) fn unescape(text: &[u8], command: Command, version: Version) -> String {
    if !command.escapes() || !text.contains(&b'\\') {
        return plain_text(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut octets = text.iter().copied().peekable();
    while let Some(octet) = octets.next() {
        let meant = (octet == b'\\').then(|| octets.peek().and_then(|next| version.unescaped(*next))).flatten();
        if meant.is_some() {
            octets.next();
        }
        out.push(meant.unwrap_or(octet));
    }
    plain_text(&out)
}

fn plain_text(octets: &[u8]) -> String {
    match std::str::from_utf8(octets) {
        Ok(text) => text.to_owned(),
        Err(_) => modified_utf8::decode(octets).unwrap_or_else(|| String::from_utf8_lossy(octets).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Version, encode, unescape};

    #[test]
    fn escapes_depend_on_the_version_and_the_command() {
        let value = b"http\\c//h\\r\\n\\\\c\\t";
        assert_eq!(unescape(value, Command::Message, Version::V1_2), "http://h\r\n\\c\\t");
        assert_eq!(unescape(value, Command::Message, Version::V1_1), "http://h\\r\n\\c\\t");
        assert_eq!(unescape(value, Command::Connected, Version::V1_2), String::from_utf8_lossy(value));
        assert_eq!(unescape(b"ends in \\", Command::Message, Version::V1_2), "ends in \\");
        assert_eq!(unescape(b"\xff\\c", Command::Message, Version::V1_2), "\u{fffd}:");
        assert_eq!(unescape(b"\xED\xA0\xBD\xED\xB8\x80\\c", Command::Message, Version::V1_2), "\u{1F600}:");
    }

    #[test]
    fn frame_is_encoded_according_to_the_specification() {
        let encoded = |command, body: &[u8]| {
            let mut out = Vec::new();
            encode(&mut out, Version::V1_2, command, &[("a:b", "c\\d\r\n")], body);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encoded(Command::Ack, b""), "ACK\na\\cb:c\\\\d\\r\\n\n\n\0");
        assert_eq!(encoded(Command::Send, b"\0x"), "SEND\na\\cb:c\\\\d\\r\\n\ncontent-length:2\n\n\0x\0");
        assert_eq!(encoded(Command::Connect, b""), "CONNECT\na:b:c\\d\r\n\n\n\0");
    }
}
