//! What every dialect has in common: what it is given, what it gives back, and how it is set up.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Limits, Rejection};
use crate::{
    model::{Draft, NonEmpty},
    suggestion::plain_reason,
};

/// The reading side of a wire format, set up for one source.
pub trait Dialect: Send + Sync {
    /// Turns one message into drafts.
    ///
    /// It is pure: the same message gives the same reading, and nothing outside is touched.
    ///
    /// # Errors
    /// When the message cannot be read in this dialect; the rejection names the place and the reason.
    fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection>;
}

/// One message as its transport delivered it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The media type that the sender gave, if any; it is a hint, since senders get it wrong.
    pub content_type: Option<&'a str>,
    /// The transport's headers.
    pub headers: &'a Headers,
    /// The bytes.
    pub body: &'a [u8],
}

/// Headers of a message: HTTP fields, AMQP or STOMP headers. Names compare without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds a header; a name may occur more than once.
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_ascii_lowercase(), value.into()));
    }

    /// The first value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(held, _)| held.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Names, in lower case, and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Those alone whose name begins with one of `prefixes`: what a dialect reads may be kept,
    /// and what it does not read may be a credential.
    #[must_use]
    pub fn only(&self, prefixes: &[&str]) -> Self {
        let wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(&prefix.to_ascii_lowercase()));
        Self(self.0.iter().filter(|(name, _)| wanted(name)).cloned().collect())
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let mut all = Self::default();
        headers.into_iter().for_each(|(name, value)| all.push(name.as_ref(), value));
        all
    }
}

/// What a dialect made of a message that it understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It tells of these modifications.
    Drafts(NonEmpty<Draft>),
    /// It tells of nothing that changed: a read-only method, a call that did nothing. The reason
    /// is for people.
    Nothing(&'static str),
}

impl Reading {
    /// A reading of one draft.
    #[must_use]
    pub fn one(draft: Draft) -> Self {
        Self::Drafts(NonEmpty::one(draft))
    }
}

/// A dialect as it is offered to the configuration.
pub struct DialectKind {
    /// The name in the configuration.
    pub name: &'static str,
    /// Whose messages it reads, in one line.
    pub about: &'static str,
    /// The media types it reads, best first: what the AtomPub service document lists.
    pub accepts: &'static [&'static str],
    /// Beginnings of the names of the headers that it reads, in lower case.
    pub headers: &'static [&'static str],
    /// What it means when the same message comes again.
    pub repeats: Repeats,
    /// Takes out of a body what must not be kept, before anything else is done with it. `None` where the messages of the format
    /// have no place for a secret.
    pub redact: Option<fn(&[u8]) -> Redacted>,
    /// The repository that sends its messages, if the gateway can ask that repository over HTTP.
    pub repository: Option<RepositoryKind>,
    /// Valid settings of sources, as JSON: first the fewest, last all. Tests and fuzzing set the dialect up with them.
    pub sample_settings: &'static [&'static str],
    /// Sets it up from the source's `settings`, to read no more than the limits allow.
    pub build: fn(Value, Limits) -> Result<Box<dyn Dialect>, InvalidSettings>,
}

/// The kind of repository that sends a dialect's messages.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryKind {
    /// Its API over HTTP.
    pub api: RepositoryApi,
    /// The reason why a walk through it does not find the objects of its messages, if there is one.
    pub not_walkable: Option<&'static str>,
}

/// The API of a repository over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryApi {
    /// The REST API of Fedora 3.
    Fedora3,
    /// The Linked Data Platform, as Fedora 4 to 6 have it.
    Ldp,
}

/// A body without what must not be kept of it.
#[derive(Debug)]
pub enum Redacted {
    /// It has nothing of the kind.
    AsItCame,
    /// It is well-formed, and this is it without.
    Without(Vec<u8>),
    /// It is not well-formed, so that nobody knows how far the secret goes: all that may belong to it
    /// is blanked out. The place in the rejection fits both the body that came and this one.
    Blanked(Vec<u8>, Rejection),
    /// It is compressed, encoded or no JSON, so that nobody knows what is in it: nothing of it is kept unless the dialect can read
    /// it.
    Opaque,
}

/// How a repeated event is known where the source gives its events no identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// The same bytes are the same event: the messages have a time, or all that distinguishes one
    /// event from the next.
    SameBody,
    /// The same bytes may be another event: the messages have no time, so that two changes of one
    /// object look alike, and taking the second for a repeat would lose it.
    Unknowable,
    /// The same bytes are the same event, unless they are news: the messages tell a state, may have
    /// no time of their own, and an activity may come back into a state. They are news if the state
    /// is no longer the one that the registry holds, they are not late, and the transport does not
    /// say that it has delivered them before.
    SameBodyUnlessNews,
}

/// Why settings of a source do not fit its dialect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

impl InvalidSettings {
    /// What is wrong with them, in a sentence.
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

/// Reads a dialect's settings, refusing what it does not know.
///
/// # Errors
/// When a member is unknown, missing or of the wrong type; the message names it.
pub fn settings<T: DeserializeOwned>(value: Value) -> Result<T, InvalidSettings> {
    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value };
    serde_path_to_error::deserialize(value).map_err(|error| InvalidSettings(describe(&error)))
}

/// Describes an error of serde and its location in the words of the configuration.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, message) = (error.path().to_string(), error.inner().to_string());
    let reason = plain_reason(&message);
    if path == "." || message.starts_with("unknown field") { reason } else { format!("{path}: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::Headers;

    #[test]
    fn header_names_have_no_case() {
        let headers: Headers =
            [("org.fcrepo.jms.baseURL", "http://h"), ("Authorization", "Bearer x")].into_iter().collect();
        assert_eq!(headers.get("ORG.fcrepo.jms.baseurl"), Some("http://h"));
        assert_eq!(headers.only(&["org.fcrepo.jms."]).iter().count(), 1);
    }
}
