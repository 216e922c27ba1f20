//! Percent-encoding of the paths that repositories put into URIs as they are stored, unencoded.

use crate::model::{InvalidUri, Uri};

/// Meaning of `?` and `#` in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delimiters {
    /// They begin a query or a fragment, as in a URI.
    Meant,
    /// They are characters of a file name.
    Encoded,
}

/// Parses a URI in which the part after the host is not, or not completely, percent-encoded, and encodes it as a REST API
/// would (RFC 3986 section 3.3). An escape stays, in upper case; a `%` that begins none is encoded.
///
/// # Errors
/// Fails if the result is not an absolute URI.
pub(super) fn encode_uri(raw: &str, delimiters: Delimiters) -> Result<Uri, InvalidUri> {
    let raw = raw.trim();
    let Some(host) = raw.find("://").map(|scheme| scheme + "://".len()) else { return Uri::parse(raw) };
    let path = raw[host..].find(['/', '?', '#']).map_or(raw.len(), |path| host + path);
    let (base, path) = raw.split_at(path);
    Uri::parse(&format!("{base}{}", encode(path, delimiters)))
}

/// Percent-encodes the part of a URI that follows the host.
fn encode(path: &str, delimiters: Delimiters) -> String {
    let mut encoded = String::with_capacity(path.len());
    let (mut rest, mut in_fragment) = (path, false);
    while let Some(c) = rest.chars().next() {
        let (this, after) = rest.split_at(c.len_utf8());
        let is_delimiter = delimiters == Delimiters::Meant
            && match c {
                '?' => true,
                '#' => !in_fragment,
                _ => false,
            };
        match c {
            '%' if is_escape(rest) => encoded.push_str(&rest[..3].to_ascii_uppercase()),
            _ if is_delimiter || c == '/' || is_path_char(c) => encoded.push(c),
            _ => this.bytes().for_each(|byte| encoded.push_str(&format!("%{byte:02X}"))),
        }
        in_fragment |= is_delimiter && c == '#';
        rest = if c == '%' && is_escape(rest) { &rest[3..] } else { after };
    }
    encoded
}

fn is_escape(text: &str) -> bool {
    text.as_bytes().get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns whether a path segment may contain the character (`pchar` of RFC 3986, without escapes).
fn is_path_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(c)
}

#[cfg(test)]
mod tests {
    use super::{Delimiters, encode_uri};

    #[test]
    fn path_is_spelt_as_by_the_rest_api() {
        for (raw, uri) in [
            ("http://h/rest/ground floor", "http://h/rest/ground%20floor"),
            ("http://h/rest/a\"<>{}|\\^`", "http://h/rest/a%22%3C%3E%7B%7D%7C%5C%5E%60"),
            ("http://h/rest/Skøyen", "http://h/rest/Sk%C3%B8yen"),
            ("http://h/rest/Sk%c3%b8yen", "http://h/rest/Sk%C3%B8yen"),
            ("http://h/a[1].mp3", "http://h/a%5B1%5D.mp3"),
            ("http://h/50%", "http://h/50%25"),
            ("http://h/50%2", "http://h/50%252"),
            ("http://h/50%ø", "http://h/50%25%C3%B8"),
            ("http://h/a,b;c=d:e@f", "http://h/a,b;c=d:e@f"),
            ("http://h/a?ext=acl#b c", "http://h/a?ext=acl#b%20c"),
            ("http://h/a#b#c?d", "http://h/a#b%23c?d"),
            ("http://[::1]:8080/a b", "http://[::1]:8080/a%20b"),
            ("http://h?a b", "http://h?a%20b"),
            ("http://h", "http://h"),
            ("info:fedora/a", "info:fedora/a"),
        ] {
            assert_eq!(encode_uri(raw, Delimiters::Meant).unwrap().as_str(), uri, "{raw}");
            assert_eq!(encode_uri(uri, Delimiters::Meant).unwrap().as_str(), uri, "{uri} stays");
        }
        assert!(encode_uri("/a b", Delimiters::Meant).is_err());
        assert!(encode_uri("urn:a b", Delimiters::Meant).is_err());
    }

    #[test]
    fn file_name_may_contain_delimiters() {
        let uri = encode_uri("http://h/rest/q?#1.mp3", Delimiters::Encoded).unwrap();
        assert_eq!(uri.as_str(), "http://h/rest/q%3F%231.mp3");
    }
}
