//! Identifiers of objects and items, kept as their source wrote them.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// An absolute URI (RFC 3986), or an IRI (RFC 3987) as Atom allows in its place.
///
/// It is kept character for character: Fedora's REST API writes the colon of a PID unencoded, and a
/// normalised spelling would no longer be the identifier that the repository uses. Two URIs are the
/// same when their characters are (RFC 4287 section 4.2.6.1 compares Atom ids in the same way).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Uri(Arc<str>);

/// Why a text is not a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUri {
    /// It has a character that no URI may have unescaped.
    #[error("{0:?} may not stand in a URI; percent-encode it")]
    Character(char),
    /// It cannot be parsed, or it is relative.
    #[error("it is not an absolute URI ({0})")]
    Syntax(url::ParseError),
    /// It is longer than [`Uri::MAX_BYTES`].
    #[error("it has {0} bytes; at most {max} are taken", max = Uri::MAX_BYTES)]
    TooLong(usize),
}

impl Uri {
    /// The longest URI taken, in bytes.
    pub const MAX_BYTES: usize = 2048;

    /// Takes `raw` as it is, white space around it aside.
    ///
    /// # Errors
    /// When it is not an absolute URI, is too long, or has a character that must be escaped.
    pub fn parse(raw: &str) -> Result<Self, InvalidUri> {
        let raw = raw.trim();
        if raw.len() > Self::MAX_BYTES {
            return Err(InvalidUri::TooLong(raw.len()));
        }
        if !is_plain_ascii(raw)
            && let Some(bad) = raw.chars().find(|c| !may_stand_in_uri(*c))
        {
            return Err(InvalidUri::Character(bad));
        }
        if !is_plainly_absolute(raw) {
            url::Url::parse(raw).map_err(InvalidUri::Syntax)?;
        }
        Ok(Self(raw.into()))
    }

    /// The URI as its source wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether there are only characters of ASCII that may stand in a URI, as nearly always. To look at
/// every byte is faster than to stop at the first that is not: several are looked at at once.
fn is_plain_ascii(raw: &str) -> bool {
    raw.bytes().fold(true, |plain, byte| {
        let excluded = matches!(byte, b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'`');
        plain & matches!(byte, b'!'..=b'~') & !excluded
    })
}

/// Whether the URI is of a form that is absolute at sight, as nearly all are: parsing one in full
/// takes longer than all else that is done with it. Its characters have been looked at.
fn is_plainly_absolute(raw: &str) -> bool {
    let Some((scheme, rest)) = raw.split_once(':') else { return false };
    match scheme {
        "http" | "https" => rest.strip_prefix("//").is_some_and(|rest| {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
            is_plain_host(host) && port.parse::<u16>().is_ok()
        }),
        "urn" | "info" => !rest.is_empty(),
        _ => false,
    }
}

/// Letters, digits, hyphens and dots, and not what may be a number of an address or has a meaning of
/// its own: `127.1`, `xn--…`.
fn is_plain_host(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_alphabetic())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !host.contains("xn--")
}

/// What RFC 3986 and RFC 3987 exclude is excluded; so is what XML cannot carry.
pub(super) fn may_stand_in_uri(c: char) -> bool {
    match c {
        '<' | '>' | '"' | '{' | '}' | '|' | '\\' | '^' | '`' => false,
        c if c.is_whitespace() || c.is_control() => false,
        c => super::text::is_xml_char(c),
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", self.0)
    }
}

impl FromStr for Uri {
    type Err = InvalidUri;

    fn from_str(raw: &str) -> Result<Self, InvalidUri> {
        Self::parse(raw)
    }
}

impl<'de> Deserialize<'de> for Uri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidUri, Uri};

    #[test]
    fn keeps_the_spelling_of_the_source() {
        for raw in [
            "http://localhost:80/fedora/objects/demo:SmileyBeerGlass",
            "info:fedora/demo:5/DC",
            "urn:uuid:C4bf3a5c-69e7-4a1a-941b-dfd328bb4a48",
            "http://example.org/straße",
        ] {
            assert_eq!(Uri::parse(raw).unwrap().as_str(), raw);
        }
    }

    #[test]
    fn what_is_plain_may_stand_in_a_uri() {
        for c in '\0'..='\u{ff}' {
            let plain = super::is_plain_ascii(c.encode_utf8(&mut [0; 4]));
            assert_eq!(plain, c.is_ascii() && super::may_stand_in_uri(c), "{c:?}");
        }
    }

    #[test]
    fn what_is_absolute_at_sight_can_be_parsed_in_full() {
        for raw in ["http://h", "https://a.b-c.d:8080/x?y#z", "http://localhost:80/a:b", "urn:x", "info:fedora/a:1/DC"]
        {
            assert!(super::is_plainly_absolute(raw) && url::Url::parse(raw).is_ok(), "{raw}");
        }
        for raw in [
            "http:///a",
            "http://127.0.0.1/",
            "http://1.2.3.999/",
            "http://h:99999/",
            "http://[::1]/",
            "http://u@h/",
            "http://xn--a/",
            "ftp://h/",
            "/a:b",
            "a",
            "urn:",
        ] {
            assert!(!super::is_plainly_absolute(raw), "{raw}");
        }
        assert!(Uri::parse("http://1.2.3.999/").is_err() && Uri::parse("http://h:99999/").is_err());
        assert!(Uri::parse("http://127.0.0.1:8080/a").is_ok());
    }

    #[test]
    fn refuses_what_is_not_an_absolute_uri() {
        assert!(matches!(Uri::parse("/fedora/objects/demo:5"), Err(InvalidUri::Syntax(_))));
        assert!(matches!(Uri::parse("http://h/${ns}:1"), Err(InvalidUri::Character('{'))));
        assert!(matches!(Uri::parse("http://h/a b"), Err(InvalidUri::Character(' '))));
        assert!(matches!(Uri::parse(&format!("urn:x:{}", "a".repeat(3000))), Err(InvalidUri::TooLong(_))));
    }
}
