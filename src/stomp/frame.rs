//! A frame of STOMP 1.1 and 1.2, and how one is written.

use bytes::Bytes;

use super::modified_utf8;

/// A version of the protocol, by which headers are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// [STOMP 1.1](https://stomp.github.io/stomp-specification-1.1.html): line feed, colon and backslash are
    /// escaped.
    V1_1,
    /// [STOMP 1.2](https://stomp.github.io/stomp-specification-1.2.html): so is the carriage return.
    V1_2,
}

impl Version {
    /// Both, as they stand in `accept-version`.
    pub const ACCEPTED: &'static str = "1.1,1.2";

    /// The version of that name.
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
    /// What a frame is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Command {
        /// A client asks to be let in.
        Connect = "CONNECT",
        /// A client wants messages.
        Subscribe = "SUBSCRIBE",
        /// A client has done with a message.
        Ack = "ACK",
        /// A client goes.
        Disconnect = "DISCONNECT",
        /// A client sends a message.
        Send = "SEND",
        /// The broker has let the client in.
        Connected = "CONNECTED",
        /// A message.
        Message = "MESSAGE",
        /// The broker has done what was asked.
        Receipt = "RECEIPT",
        /// The broker complains, and ends the connection.
        Error = "ERROR",
    }
}

impl Command {
    /// Whether its headers are escaped: those of the two that settle the version are not, for the sake of
    /// STOMP 1.0.
    fn escapes(self) -> bool {
        !matches!(self, Self::Connect | Self::Connected)
    }
}

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// These octets.
    Whole(Bytes),
    /// So many that they were not kept.
    TooLarge(u64),
    /// These octets, behind a head of so many bytes that most of its headers were left out.
    LongHead(u64, Bytes),
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub command: Command,
    /// Names and values, unescaped, in order. A name may come again: then the first counts.
    pub headers: Vec<(String, String)>,
    /// What it carries.
    pub body: Body,
}

impl Frame {
    /// The first value of a header; names have a case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }
}

/// Writes a frame. A frame with a body has a `content-length`, so that the body may have any octet.
///
/// The headers of CONNECT are written as they are: they must have no line break.
pub fn encode(out: &mut Vec<u8>, version: Version, command: Command, headers: &[(&str, &str)], body: &[u8]) {
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
    if !body.is_empty() {
        header("content-length", &body.len().to_string());
    }
    out.push(b'\n');
    out.extend(body);
    out.push(0);
}

/// A name or a value as it was before it was escaped. An escape that the version does not know stays as it
/// stands: the specification has the connection ended, but then one header that nobody reads would hold up
/// its queue for ever. Java's modified UTF-8 is read as well; octets that are neither are replaced.
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
    fn what_is_escaped_depends_on_the_version_and_the_frame() {
        let value = b"http\\c//h\\r\\n\\\\c\\t";
        assert_eq!(unescape(value, Command::Message, Version::V1_2), "http://h\r\n\\c\\t");
        assert_eq!(unescape(value, Command::Message, Version::V1_1), "http://h\\r\n\\c\\t");
        assert_eq!(unescape(value, Command::Connected, Version::V1_2), String::from_utf8_lossy(value));
        assert_eq!(unescape(b"ends in \\", Command::Message, Version::V1_2), "ends in \\");
        assert_eq!(unescape(b"\xff\\c", Command::Message, Version::V1_2), "\u{fffd}:");
        assert_eq!(unescape(b"\xED\xA0\xBD\xED\xB8\x80\\c", Command::Message, Version::V1_2), "\u{1F600}:");
    }

    #[test]
    fn a_frame_is_written_as_the_specification_has_it() {
        let written = |command, body: &[u8]| {
            let mut out = Vec::new();
            encode(&mut out, Version::V1_2, command, &[("a:b", "c\\d\r\n")], body);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Command::Ack, b""), "ACK\na\\cb:c\\\\d\\r\\n\n\n\0");
        assert_eq!(written(Command::Send, b"\0x"), "SEND\na\\cb:c\\\\d\\r\\n\ncontent-length:2\n\n\0x\0");
        assert_eq!(written(Command::Connect, b""), "CONNECT\na:b:c\\d\r\n\n\n\0");
    }
}
