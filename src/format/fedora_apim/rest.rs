//! The URIs of Fedora 3's REST API, which identify objects and datastreams in the model as they do
//! in the 0.1 message, and the names that they are made of.

use std::borrow::Cow;

use serde::Deserialize;

use crate::model::{InvalidUri, Timestamp, Uri};

/// The beginning of Fedora's own URIs for objects: `info:fedora/demo:5`.
const FEDORA_URI: &str = "info:fedora/";

/// Where a repository is: an `http` or `https` URL without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BaseUrl(String);

/// Why a text is not a base URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidBaseUrl {
    /// It is no URI.
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    /// It is no address on the Web: REST would not answer there.
    #[error("a base URL begins with http or https")]
    Scheme,
    /// What is put behind it would end in the query or the fragment.
    #[error("a base URL has no query and no fragment")]
    Tail,
    /// It would stand in every identifier and be told to every subscriber.
    #[error("a base URL has no user or password in it")]
    Credentials,
}

impl BaseUrl {
    /// Takes `raw` as it is written, slashes at its end aside.
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

    /// The object: the address of its profile.
    pub(super) fn object(&self, pid: &Pid) -> Result<Uri, InvalidUri> {
        Uri::parse(&format!("{}/objects/{}", self.0, pid.0))
    }

    /// The datastream: the address of its content, which answers with the latest version.
    pub(super) fn datastream(&self, pid: &Pid, id: &DatastreamId) -> Result<Uri, InvalidUri> {
        Uri::parse(&format!("{}/objects/{}/datastreams/{}/content", self.0, pid.0, id.0))
    }
}

/// How a repository's messages name its objects and datastreams.
#[derive(Clone, Debug)]
pub struct RestNames(BaseUrl);

/// Why something has no name in messages.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(String);

impl RestNames {
    /// The names of the repository that calls itself so.
    ///
    /// # Errors
    /// When it is no base URL.
    pub fn of(base_url: &str) -> Result<Self, InvalidName> {
        BaseUrl::parse(base_url).map(Self).map_err(|error| InvalidName(error.to_string()))
    }

    /// An object, by its PID.
    ///
    /// # Errors
    /// When it is no PID, or the URI is too long.
    pub fn object(&self, pid: &str) -> Result<Uri, InvalidName> {
        let pid = Pid::parse(pid).map_err(|error| InvalidName(error.to_string()))?;
        self.0.object(&pid).map_err(|error| InvalidName(error.to_string()))
    }

    /// A datastream, by the PID of its object and its own identifier.
    ///
    /// # Errors
    /// When one is none, or the URI is too long.
    pub fn datastream(&self, pid: &str, id: &str) -> Result<Uri, InvalidName> {
        let pid = Pid::parse(pid).map_err(|error| InvalidName(error.to_string()))?;
        let id = DatastreamId::parse(id).map_err(|error| InvalidName(error.to_string()))?;
        self.0.datastream(&pid, &id).map_err(|error| InvalidName(error.to_string()))
    }

    /// The content of a datastream in the version that was made at that time.
    ///
    /// # Errors
    /// When the URI is too long.
    pub fn version(datastream: &Uri, created: Timestamp) -> Result<Uri, InvalidName> {
        version(datastream, created).map_err(|error| InvalidName(error.to_string()))
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = InvalidBaseUrl;

    fn try_from(raw: String) -> Result<Self, InvalidBaseUrl> {
        Self::parse(&raw)
    }
}

/// The address of a datastream's version: its content as it was at that time.
pub(super) fn version(datastream: &Uri, created: Timestamp) -> Result<Uri, InvalidUri> {
    Uri::parse(&format!("{datastream}?asOfDateTime={created}"))
}

/// The identifier of an object, in the normal form of Fedora's `PID` class: a caller may write
/// `demo%3A5` or `info:fedora/demo:5`, and there must be one URI for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pid(String);

/// Why a text is not a PID.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a Fedora PID: a namespace of A-Z a-z 0-9 - . and a colon and an id of the same, ~, _ and %HH, at most {max} in all",
    max = Pid::MAX_CHARS
)]
pub(super) struct InvalidPid(String);

impl Pid {
    const MAX_CHARS: usize = 64;

    /// Takes any spelling that Fedora takes.
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

/// `None` where a `%` is not followed by two hexadecimal digits.
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

/// The subject of a relationship (`demo:5`, `info:fedora/demo:5` or `info:fedora/demo:5/DC`) as its
/// PID and its datastream, which is empty where the subject is the object.
pub(super) fn split_subject(raw: &str) -> (&str, &str) {
    raw.strip_prefix(FEDORA_URI).and_then(|plain| plain.split_once('/')).unwrap_or((raw, ""))
}

/// The identifier of a datastream in its object: an `NCName` (Namespaces in XML 1.0, section 3), as
/// FOXML has it, of at most 64 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatastreamId(Cow<'static, str>);

/// Why a text is not a datastream's identifier.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a datastream ID: a letter or _ and then letters, digits, . - and _, at most {max} in all",
    max = DatastreamId::MAX_CHARS
)]
pub(super) struct InvalidDatastreamId(String);

impl DatastreamId {
    /// The datastream of the object's own relationships.
    pub(super) const RELS_EXT: Self = Self(Cow::Borrowed("RELS-EXT"));
    /// The datastream of the relationships of the object's datastreams.
    pub(super) const RELS_INT: Self = Self(Cow::Borrowed("RELS-INT"));

    const MAX_CHARS: usize = 64;

    /// Takes `raw` as it is: no character of an `NCName` needs escaping in an IRI.
    pub(super) fn parse(raw: &str) -> Result<Self, InvalidDatastreamId> {
        let fits = raw.chars().nth(Self::MAX_CHARS).is_none();
        if fits && raw.starts_with(is_name_start) && raw.chars().all(is_name_char) {
            Ok(Self(Cow::Owned(raw.to_owned())))
        } else {
            Err(InvalidDatastreamId(raw.chars().take(Self::MAX_CHARS).collect()))
        }
    }
}

/// XML 1.0 (fifth edition) production 4, `NameStartChar`, without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// Production 4a, `NameChar`, without the colon.
fn is_name_char(c: char) -> bool {
    is_name_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

#[cfg(test)]
mod tests {
    use super::{DatastreamId, Pid, split_subject};

    #[test]
    fn a_pid_has_one_normal_form() {
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
    fn a_datastream_id_is_an_ncname() {
        for raw in ["DC", "RELS-EXT", "_x.1", "Übersicht", &"é".repeat(64)] {
            assert!(DatastreamId::parse(raw).is_ok(), "{raw}");
        }
        for raw in ["", "1DC", "-x", "a b", "a/b", "a:b", "a%20b", "a?b", "a#b", "..", &"a".repeat(65)] {
            assert!(DatastreamId::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_subject_may_be_a_datastream() {
        assert_eq!(split_subject("demo:5"), ("demo:5", ""));
        assert_eq!(split_subject("info:fedora/demo:5"), ("info:fedora/demo:5", ""));
        assert_eq!(split_subject("info:fedora/demo:5/DC"), ("demo:5", "DC"));
    }
}
