//! Keys of indexes of web archives: URLs in a form that sorts by host (SURT), as in `org,example)/path?query`.
//!
//! The rules are those of the package `surt` 0.3.1 of PyPI, which pywb, cdxj-indexer and Sandcrawler use: a reader computes
//! the key of a URL by itself and looks that up, so a key by other rules is never found. They work on bytes, because a URL
//! need not be text after it was unescaped.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use url::Url;

/// Length of the values of session identifiers in queries, and in paths.
const SESSION_CHARS: usize = 32;
const SHORT_SESSION_CHARS: usize = 24;

/// Returns the key of a URL. A text that is no URL is its own key, in lower case.
pub(super) fn surt(text: &str) -> String {
    let Ok(url) = Url::parse(text) else { return text.to_lowercase() };
    let host = url.host_str().unwrap_or_default().to_lowercase();
    let reversed = without_www(&host).rsplit('.').collect::<Vec<_>>().join(",");
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let path = path(url.path());
    let query = url.query().map(query).filter(|query| !query.is_empty());
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{reversed}{port}){path}{query}")
}

/// Returns a host without a first label of `www` and digits.
fn without_www(host: &str) -> &str {
    let rest = host.strip_prefix("www").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest.and_then(|rest| rest.strip_prefix('.')).unwrap_or(host)
}

fn path(path: &str) -> String {
    let path = unescaped(path.as_bytes());
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|b| *b == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if kept.is_empty() => kept.push(segment),
            b".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    // An empty last segment is a slash at the end.
    let last = kept.pop().unwrap_or_default();
    let folders = kept.into_iter().filter(|segment| !segment.is_empty());
    let joined: Vec<u8> = folders.flat_map(|segment| segment.iter().chain(b"/")).chain(last).copied().collect();
    let path = without_session_in_path(format!("/{}", escaped(&joined)));
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(&path).to_owned()
}

fn query(query: &str) -> String {
    let mut query = escaped(&unescaped(query.as_bytes()));
    let is_value = |b: u8| b.is_ascii_alphanumeric();
    let named = |rest: &[u8], name: &[u8]| {
        let value = rest.strip_prefix(name)?.get(..SESSION_CHARS)?;
        value.iter().copied().all(is_value).then_some(name.len() + SESSION_CHARS)
    };
    let asp = |rest: &[u8]| {
        let rest = rest.strip_prefix(b"aspsessionid")?;
        let (name, value) = (rest.get(..8)?, rest.get(9..9 + SHORT_SESSION_CHARS)?);
        let is_session = rest[8] == b'=' && name.iter().chain(value).all(u8::is_ascii_alphabetic);
        is_session.then_some(b"aspsessionid".len() + 9 + SHORT_SESSION_CHARS)
    };
    let parameter = |rest: &[u8], name: &[u8]| {
        let value = rest.strip_prefix(name)?.split(|b| *b == b'&').next().filter(|value| !value.is_empty())?;
        Some(name.len() + value.len())
    };
    let cold_fusion = |rest: &[u8]| {
        let first = parameter(rest, b"cfid=")?;
        Some(first + parameter(&rest[first..], b"&cftoken=")?)
    };
    for name in [b"jsessionid=".as_slice(), b"phpsessid=", b"sid="] {
        query = without_session_in_query(query, |rest| named(rest, name));
    }
    query = without_session_in_query(query, asp);
    query = without_session_in_query(query, cold_fusion);
    if query.len() <= 1 {
        return query;
    }
    // A parameter without a value comes before one with an empty value.
    let mut parameters: Vec<_> =
        query.split('&').map(|one| one.split_once('=').map_or((one, None), |(n, v)| (n, Some(v)))).collect();
    parameters.sort_unstable();
    let text =
        |(name, value): (&str, Option<&str>)| value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
    parameters.into_iter().map(text).collect::<Vec<_>>().join("&")
}

/// Removes the last session of a query, whose length a function finds at its beginning, with the `&` after it.
fn without_session_in_query(mut query: String, length: impl Fn(&[u8]) -> Option<usize>) -> String {
    let bytes = query.as_bytes();
    let ends = |end: usize| bytes.get(end).is_none_or(|b| *b == b'&');
    let found =
        (0..bytes.len()).rev().find_map(|at| Some((at, at + length(&bytes[at..])?)).filter(|(_, end)| ends(*end)));
    if let Some((start, end)) = found {
        query.replace_range(start..(end + 1).min(query.len()), "");
    }
    query
}

/// Removes the segment with a session before a page of ASP.NET, as in `/(CHARACTERS)/page.aspx`.
fn without_session_in_path(path: String) -> String {
    let is_id = |text: &[u8]| text.len() == SHORT_SESSION_CHARS && text.iter().all(u8::is_ascii_alphanumeric);
    let is_marked = |text: &[u8]| {
        // Each part is a letter with an identifier in parentheses.
        let parts = text.chunks(SHORT_SESSION_CHARS + 3);
        !text.is_empty()
            && parts
                .clone()
                .all(|part| matches!(part, [mark, b'(', id @ .., b')'] if mark.is_ascii_alphabetic() && is_id(id)))
    };
    let is_session = |segment: &[u8]| match segment {
        [b'(', inner @ .., b')'] => is_id(inner) || is_marked(inner),
        _ => false,
    };
    let is_page = |rest: &str| rest.find(".aspx").is_some_and(|at| at > 0 && !rest[..at].contains('?'));
    let starts = path.match_indices('/').map(|(at, _)| at + 1).collect::<Vec<_>>();
    let session = starts.into_iter().rev().find_map(|start| {
        let (segment, rest) = path[start..].split_once('/')?;
        (is_session(segment.as_bytes()) && is_page(rest)).then_some(start..start + segment.len() + 1)
    });
    let mut path = path;
    if let Some(session) = session {
        path.replace_range(session, "");
    }
    path
}

/// Unescapes bytes until nothing changes.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = Cow::Borrowed(bytes);
    loop {
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded.len() == bytes.len() {
            return decoded;
        }
        bytes = Cow::Owned(decoded);
    }
}

/// Escapes spaces, `#`, `%` and what is not printable ASCII; the letters are in lower case.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'#' | b'%') => text.push(byte.to_ascii_lowercase().into()),
            other => text += &format!("%{other:02x}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{path, query, surt};

    /// Keys of the package `surt` 0.3.1.
    const VECTORS: &str = include_str!("../../fixtures/surt/vectors.tsv");

    #[test]
    fn keys_are_those_of_the_reference_implementation() {
        for line in VECTORS.lines() {
            let (url, key) = line.split_once('\t').unwrap();
            assert_eq!(surt(url), key, "{url}");
        }
        assert_eq!(surt("no URL"), "no url");
    }

    proptest! {
        #[test]
        fn key_of_a_key_is_the_key(place in "(/[a-z.%0-9A-F;~é ]{0,8}){0,4}", text in "[a-zA-Z=&%0-9+/#é ]{0,30}") {
            let once = (path(&place), query(&text));
            prop_assert_eq!((path(&once.0), query(&once.1)), once);
        }
    }
}
