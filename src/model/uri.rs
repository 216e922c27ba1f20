//! URIs of objects and items, in the spelling of their source.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};

use super::deserialize_str::deserialize_str;

/// An absolute URI (RFC 3986) or IRI (RFC 3987), which Atom allows as well.
///
/// The spelling never changes, because Fedora's REST API writes the colon of a PID unencoded, and a normalized URI
/// would no longer be the repository's identifier. Two URIs are equal if their characters are equal (RFC 4287
/// section 4.2.6.1 compares Atom ids in the same way).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Uri(Arc<str>);

/// Error for a text that is not a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUri {
    /// The text has a character that must be percent-encoded in a URI.
    #[error("a URI cannot contain {0:?}; percent-encode it")]
    Character(char),
    /// The text cannot be parsed as a URI, or is a relative reference.
    #[error("it is not an absolute URI ({0})")]
    Syntax(url::ParseError),
    /// The text is longer than [`Uri::MAX_BYTES`].
    #[error("it has {0} bytes; the maximum is {max}", max = Uri::MAX_BYTES)]
    TooLong(usize),
}

impl Uri {
    /// Maximum length of a URI, in bytes.
    pub const MAX_BYTES: usize = 2048;

    /// Validates `raw` and removes white space at either end; the spelling stays.
    ///
    /// # Errors
    /// Fails if the text is not an absolute URI, is too long, or has a character that must be percent-encoded.
    pub fn parse(raw: &str) -> Result<Self, InvalidUri> {
        let raw = raw.trim();
        if raw.len() > Self::MAX_BYTES {
            return Err(InvalidUri::TooLong(raw.len()));
        }
        if !is_plain_ascii(raw)
            && let Some(bad) = raw.chars().find(|c| !is_uri_char(*c))
        {
            return Err(InvalidUri::Character(bad));
        }
        if !is_plainly_absolute(raw) {
            url::Url::parse(raw).map_err(InvalidUri::Syntax)?;
        }
        Ok(Self(raw.into()))
    }

    /// Returns the URI in the spelling of its source.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether all characters are ASCII and allowed in a URI, which is true for nearly all URIs. The function
/// checks every byte without an early exit, because the compiler then checks several bytes at a time.
fn is_plain_ascii(raw: &str) -> bool {
    raw.bytes().fold(true, |plain, byte| {
        let excluded = matches!(byte, b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'`');
        plain & matches!(byte, b'!'..=b'~') & !excluded
    })
}

/// Returns whether the URI has a simple form that is certainly absolute, as nearly all URIs have. Complete parsing
/// takes longer than all other work on a URI. The caller has checked the characters.
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

/// Returns whether the host has only letters, digits, hyphens and dots, and is neither numeric like an IP address
/// (`127.1`) nor an internationalized name (`xn--…`).
fn is_plain_host(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_alphabetic())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !host.contains("xn--")
}

/// Returns whether a URI may contain the character according to RFC 3986 and RFC 3987, and XML may, too.
pub(super) fn is_uri_char(c: char) -> bool {
    match c {
        '<' | '>' | '"' | '{' | '}' | '|' | '\\' | '^' | '`' => false,
        c if c.is_whitespace() || c.is_control() => false,
        c => crate::text::is_xml_char(c),
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
    fn plain_ascii_characters_are_uri_characters() {
        for c in '\0'..='\u{ff}' {
            let plain = super::is_plain_ascii(c.encode_utf8(&mut [0; 4]));
            assert_eq!(plain, c.is_ascii() && super::is_uri_char(c), "{c:?}");
        }
    }

    #[test]
    fn plainly_absolute_uris_can_be_parsed() {
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
    fn refuses_other_texts() {
        assert!(matches!(Uri::parse("/fedora/objects/demo:5"), Err(InvalidUri::Syntax(_))));
        assert!(matches!(Uri::parse("http://h/${ns}:1"), Err(InvalidUri::Character('{'))));
        assert!(matches!(Uri::parse("http://h/a b"), Err(InvalidUri::Character(' '))));
        assert!(matches!(Uri::parse(&format!("urn:x:{}", "a".repeat(3000))), Err(InvalidUri::TooLong(_))));
    }
}
