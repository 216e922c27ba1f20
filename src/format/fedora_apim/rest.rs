//! URIs of Fedora 3's REST API, which identify objects and datastreams in the model and in the 0.1 message, and
//! their components.

use std::borrow::Cow;

use serde::Deserialize;

use crate::model::{InvalidUri, Timestamp, Uri};

/// Prefix of Fedora's internal URIs: `info:fedora/demo:5`.
const FEDORA_URI: &str = "info:fedora/";

/// Base URL of a repository: `http` or `https`, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BaseUrl(String);

/// Error of a base URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidBaseUrl {
    /// The base URL is not a URI.
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    /// The base URL is not a web URL, so REST cannot work there.
    #[error("a base URL begins with http or https")]
    Scheme,
    /// The base URL has a query or a fragment, to which paths cannot be appended.
    #[error("a base URL has no query and no fragment")]
    Tail,
    /// The base URL contains credentials, which would be part of every identifier and visible to all subscribers.
    #[error("a base URL has no user or password in it")]
    Credentials,
}

impl BaseUrl {
    /// Parses a base URL and removes trailing slashes.
    pub(super) fn parse(raw: &str) -> Result<Self, InvalidBaseUrl> {
        let uri = Uri::parse(raw)?;
        let url = url::Url::parse(uri.as_str()).map_err(InvalidUri::Syntax)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidBaseUrl::Scheme);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidBaseUrl::Tail);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidBaseUrl::Credentials);
        }
        Ok(Self(uri.as_str().trim_end_matches('/').to_owned()))
    }

    /// Returns the URI of an object, which is the URL of its profile.
    pub(super) fn object(&self, pid: &Pid) -> Result<Uri, InvalidUri> {
        Uri::parse(&format!("{}/objects/{}", self.0, pid.0))
    }

    /// Returns the URI of a datastream, which is the URL of its latest content.
    pub(super) fn datastream(&self, pid: &Pid, id: &DatastreamId) -> Result<Uri, InvalidUri> {
        Uri::parse(&format!("{}/objects/{}/datastreams/{}/content", self.0, pid.0, id.0))
    }
}

/// Builds the URIs that a repository's messages use for its objects and datastreams.
#[derive(Clone, Debug)]
pub struct RestUris(BaseUrl);

/// Reason why no URI can be built.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRestUri(String);

impl RestUris {
    /// Creates a builder for the repository with this base URL.
    ///
    /// # Errors
    /// Fails if it is not a valid base URL.
    pub fn new(base_url: &str) -> Result<Self, InvalidRestUri> {
        BaseUrl::parse(base_url).map(Self).map_err(|error| InvalidRestUri(error.to_string()))
    }

    /// Returns the URI of an object from its PID.
    ///
    /// # Errors
    /// Fails if the PID is invalid or the URI is too long.
    pub fn object(&self, pid: &str) -> Result<Uri, InvalidRestUri> {
        let pid = Pid::parse(pid).map_err(|error| InvalidRestUri(error.to_string()))?;
        self.0.object(&pid).map_err(|error| InvalidRestUri(error.to_string()))
    }

    /// Returns the URI of a datastream from its object's PID and its identifier.
    ///
    /// # Errors
    /// Fails if the PID or the identifier is invalid or the URI is too long.
    pub fn datastream(&self, pid: &str, id: &str) -> Result<Uri, InvalidRestUri> {
        let pid = Pid::parse(pid).map_err(|error| InvalidRestUri(error.to_string()))?;
        let id = DatastreamId::parse(id).map_err(|error| InvalidRestUri(error.to_string()))?;
        self.0.datastream(&pid, &id).map_err(|error| InvalidRestUri(error.to_string()))
    }

    /// Returns the URI of a datastream's version from its creation time.
    ///
    /// # Errors
    /// Fails if the URI is too long.
    pub fn version(datastream: &Uri, created: Timestamp) -> Result<Uri, InvalidRestUri> {
        version(datastream, created).map_err(|error| InvalidRestUri(error.to_string()))
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = InvalidBaseUrl;

    fn try_from(raw: String) -> Result<Self, InvalidBaseUrl> {
        Self::parse(&raw)
    }
}

/// Returns the URI of a datastream's content at a time.
pub(super) fn version(datastream: &Uri, created: Timestamp) -> Result<Uri, InvalidUri> {
    Uri::parse(&format!("{datastream}?asOfDateTime={created}"))
}

/// Identifier of an object, in the normal form of Fedora's class `PID`. Callers may also write `demo%3A5` or
/// `info:fedora/demo:5`; all spellings must give one URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pid(String);

/// Error of a PID.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a Fedora PID: a namespace of A-Z a-z 0-9 - . and a colon and an id of the same, ~, _ and %HH, at most {max} in all",
    max = Pid::MAX_CHARS
)]
pub(super) struct InvalidPid(String);

impl Pid {
    const MAX_CHARS: usize = 64;

    /// Parses any spelling that Fedora accepts.
    pub(super) fn parse(raw: &str) -> Result<Self, InvalidPid> {
        let invalid = || InvalidPid(raw.chars().take(Self::MAX_CHARS).collect());
        let plain = raw.strip_prefix(FEDORA_URI).unwrap_or(raw);
        let colon = [":", "%3A", "%3a"].into_iter().find_map(|colon| plain.split_once(colon));
        let (namespace, id) = colon.ok_or_else(invalid)?;
        let id = upper_case_escapes(id).ok_or_else(invalid)?;
        let pid = format!("{namespace}:{id}");
        let in_namespace = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let in_id = |b: u8| in_namespace(b) || matches!(b, b'~' | b'_' | b'%');
        let well_formed =
            !namespace.is_empty() && namespace.bytes().all(in_namespace) && !id.is_empty() && id.bytes().all(in_id);
        if well_formed && pid.len() <= Self::MAX_CHARS { Ok(Self(pid)) } else { Err(invalid()) }
    }
}

/// Converts escapes to upper case; `None` if a `%` is not followed by two hexadecimal digits.
fn upper_case_escapes(id: &str) -> Option<String> {
    let mut pieces = id.split('%');
    let mut normal = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (octet, rest) = piece.split_at_checked(2).filter(|(o, _)| o.bytes().all(|b| b.is_ascii_hexdigit()))?;
        normal.push('%');
        normal.push_str(&octet.to_ascii_uppercase());
        normal.push_str(rest);
    }
    Some(normal)
}

/// Splits the subject of a relationship (`demo:5`, `info:fedora/demo:5` or `info:fedora/demo:5/DC`) into PID
/// and datastream. The datastream is empty if the subject is the object.
pub(super) fn split_subject(raw: &str) -> (&str, &str) {
    raw.strip_prefix(FEDORA_URI).and_then(|plain| plain.split_once('/')).unwrap_or((raw, ""))
}

/// Identifier of a datastream in its object: an `NCName` (Namespaces in XML 1.0, section 3) of at most 64
/// characters, as FOXML requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatastreamId(Cow<'static, str>);

/// Error of a datastream identifier.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a datastream ID: a letter or _ and then letters, digits, . - and _, at most {max} in all",
    max = DatastreamId::MAX_CHARS
)]
pub(super) struct InvalidDatastreamId(String);

impl DatastreamId {
    /// Datastream with the relationships of the object.
    pub(super) const RELS_EXT: Self = Self(Cow::Borrowed("RELS-EXT"));
    /// Datastream with the relationships of the object's datastreams.
    pub(super) const RELS_INT: Self = Self(Cow::Borrowed("RELS-INT"));

    const MAX_CHARS: usize = 64;

    /// Parses an identifier. It is not escaped, because no character of an `NCName` needs that in an IRI.
    pub(super) fn parse(raw: &str) -> Result<Self, InvalidDatastreamId> {
        let fits = raw.chars().nth(Self::MAX_CHARS).is_none();
        if fits && raw.starts_with(is_name_start) && raw.chars().all(is_name_char) {
            Ok(Self(Cow::Owned(raw.to_owned())))
        } else {
            Err(InvalidDatastreamId(raw.chars().take(Self::MAX_CHARS).collect()))
        }
    }
}

/// Returns whether a character matches `NameStartChar` without the colon (XML 1.0 fifth edition, production 4).
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// Returns whether a character matches `NameChar` without the colon (production 4a).
fn is_name_char(c: char) -> bool {
    is_name_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

#[cfg(test)]
mod tests {
    use super::{DatastreamId, Pid, split_subject};

    #[test]
    fn pid_has_one_normal_form() {
        for (raw, normal) in [
            ("demo:5", "demo:5"),
            ("info:fedora/demo:5", "demo:5"),
            ("demo%3a5", "demo:5"),
            ("uuid:c917da11-a6c4-458d-877b-8c35b7a67ee7", "uuid:c917da11-a6c4-458d-877b-8c35b7a67ee7"),
            ("a.b-1:x~y_z%2f", "a.b-1:x~y_z%2F"),
            ("demo:a%3ab", "demo:a%3Ab"),
        ] {
            assert_eq!(Pid::parse(raw).unwrap().0, normal);
        }
        let longest = format!("demo:{}", "a".repeat(59));
        assert!(Pid::parse(&longest).is_ok());
        for raw in
            ["", "demo", "demo:", ":5", "de_mo:5", "demo:5/DC", "demo:a:b", "demo:%2", "demo:%zz", "demo:%é", "é:1"]
        {
            assert!(Pid::parse(raw).is_err(), "{raw}");
        }
        assert!(Pid::parse(&format!("{longest}a")).is_err());
    }

    #[test]
    fn datastream_id_is_an_ncname() {
        for raw in ["DC", "RELS-EXT", "_x.1", "Übersicht", &"é".repeat(64)] {
            assert!(DatastreamId::parse(raw).is_ok(), "{raw}");
        }
        for raw in ["", "1DC", "-x", "a b", "a/b", "a:b", "a%20b", "a?b", "a#b", "..", &"a".repeat(65)] {
            assert!(DatastreamId::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn subject_may_be_a_datastream() {
        assert_eq!(split_subject("demo:5"), ("demo:5", ""));
        assert_eq!(split_subject("info:fedora/demo:5"), ("info:fedora/demo:5", ""));
        assert_eq!(split_subject("info:fedora/demo:5/DC"), ("demo:5", "DC"));
    }
}
