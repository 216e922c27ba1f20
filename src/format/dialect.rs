//! Interface of dialects: their input, their output and their settings.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Limits, Rejection};
use crate::{
    model::{Draft, NonEmpty},
    suggestion::plain_reason,
};

/// Parser of a wire format, configured for one source.
pub trait Dialect: Send + Sync {
    /// Parses one message into drafts.
    ///
    /// The function is pure: the same message always gives the same result.
    ///
    /// # Errors
    /// Returns a rejection with location and reason if the message is not valid in this dialect.
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection>;

    /// Returns the origin of each member of the drafts, as far as the message can be read; `None` if the dialect has no
    /// settings that decide it.
    fn explain(&self, _message: &Message<'_>) -> Option<Vec<ExplainedElement>> {
        None
    }
}

/// An element of a message, with the origins of the members of its draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedElement {
    /// Location of the element in the message.
    pub place: String,
    /// Members of the draft for which the settings have a value.
    pub members: Vec<ExplainedMember>,
}

/// A member of a draft with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedMember {
    /// Name in the settings.
    pub member: String,
    /// Text that the message has for it; `None` if it has none.
    pub value: Option<String>,
    /// Pointer, template or constant of the settings, and the preset if it comes from there.
    pub origin: String,
}

/// A message as received from its transport.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Media type from the sender; only a hint, because senders often give a wrong one.
    pub content_type: Option<&'a str>,
    /// Headers of the transport.
    pub headers: &'a Headers,
    /// Body.
    pub body: &'a [u8],
}

/// Headers of a message from HTTP, AMQP or STOMP. Names are case-insensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds a header; a name may occur several times.
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_ascii_lowercase(), value.into()));
    }

    /// Returns the first value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Iterates over the names, in lower case, and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the headers whose names begin with one of `prefixes`. Other headers may contain credentials, so
    /// they are not stored.
    #[must_use]
    pub fn with_prefixes(&self, prefixes: &[&str]) -> Self {
        let is_selected = |name: &str| prefixes.iter().any(|prefix| name.starts_with(&prefix.to_ascii_lowercase()));
        Self(self.0.iter().filter(|(name, _)| is_selected(name)).cloned().collect())
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let mut all = Self::default();
        headers.into_iter().for_each(|(name, value)| all.push(name.as_ref(), value));
        all
    }
}

/// Result of parsing a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedMessage {
    /// The message reports these modifications.
    Drafts(NonEmpty<Draft>),
    /// The message reports no change, as for a read-only method or a call without effect. The reason is for
    /// people.
    NoChange(&'static str),
}

impl ParsedMessage {
    /// Returns the result for a single draft.
    #[must_use]
    pub fn one(draft: Draft) -> Self {
        Self::Drafts(NonEmpty::one(draft))
    }
}

/// A dialect that the configuration offers.
pub struct DialectKind {
    /// Name in the configuration.
    pub name: &'static str,
    /// One-line description of its messages.
    pub about: &'static str,
    /// Accepted media types, preferred ones first, as the AtomPub service document lists them.
    pub accepts: &'static [&'static str],
    /// Lower-case prefixes of the headers that it reads.
    pub headers: &'static [&'static str],
    /// Duplicate detection for events without an identifier.
    pub duplicates: DuplicateDetection,
    /// Removes secrets from a body, before anything else processes it. `None` if messages of this dialect
    /// contain none.
    pub redact: Option<fn(&[u8]) -> Redaction>,
    /// Repository that sends the messages, if the gateway can query it over HTTP.
    pub repository: Option<RepositoryKind>,
    /// Valid source settings as JSON, from the fewest to all. Tests and fuzzing use them.
    pub sample_settings: &'static [&'static str],
    /// Creates the dialect from the source's `settings` and the message limits.
    pub build: fn(Value, Limits) -> Result<Box<dyn Dialect>, InvalidSettings>,
}

impl DialectKind {
    /// Returns a sample value of a setting, as JSON; `None` if no sample has the setting.
    #[must_use]
    pub fn sample(&self, setting: &str) -> Option<Value> {
        let samples = self.sample_settings.iter().filter_map(|sample| serde_json::from_str(sample).ok());
        samples.filter_map(|mut sample: serde_json::Map<_, _>| sample.remove(setting)).next()
    }
}

/// Kind of repository that sends a dialect's messages.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryKind {
    /// HTTP API of the repository.
    pub api: RepositoryApi,
    /// Reason why a crawl does not find the objects of its messages, if there is one.
    pub not_crawlable: Option<&'static str>,
}

/// HTTP API of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryApi {
    /// The REST API of Fedora 3.
    Fedora3,
    /// Linked Data Platform, as implemented by Fedora 4 to 6.
    Ldp,
}

/// Result of removing secrets from a body.
#[derive(Debug)]
pub enum Redaction {
    /// The body contains no secret.
    Unchanged,
    /// The body is well-formed; this is the body without its secrets.
    Removed(Vec<u8>),
    /// The body is malformed, so the end of a secret is unknown. Everything that may belong to it is replaced
    /// by spaces. The location in the rejection is valid for both bodies.
    Blanked(Vec<u8>, Rejection),
    /// The body is compressed, encoded or not JSON, so its content is unknown. It is stored only if the dialect
    /// can parse it.
    Opaque,
}

/// Duplicate detection for events to which the source gives no identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateDetection {
    /// Equal bodies are the same event if the draft has a time with a fraction of a second, which distinguishes events.
    /// Without one they are the same event only if the transport has delivered the message before and the registry has all
    /// that it says.
    ByBody,
    /// Equal bodies may be different events, because messages contain no time. Two changes of one object look
    /// alike, and dropping the second would lose a change.
    Impossible,
    /// Equal bodies are the same event unless they are news. Messages report a state, possibly without a time,
    /// and an activity may return to an earlier state. A message is news if the registry holds another state,
    /// the message is not late, and the transport does not mark it as redelivered.
    ByBodyUnlessNews,
    /// A change that the journal has under its identifier is the same change, whatever source it came from.
    ByChange,
}

/// Error in the settings of a source for its dialect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

impl InvalidSettings {
    /// Creates an error with a reason in one sentence.
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

/// Parses the settings of a dialect and rejects unknown members.
///
/// # Errors
/// Names the member that is unknown, missing or of the wrong type.
pub fn parse_settings<T: DeserializeOwned>(value: Value) -> Result<T, InvalidSettings> {
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
    fn header_names_are_case_insensitive() {
        let headers: Headers =
            [("org.fcrepo.jms.baseURL", "http://h"), ("Authorization", "Bearer x")].into_iter().collect();
        assert_eq!(headers.get("ORG.fcrepo.jms.baseurl"), Some("http://h"));
        assert_eq!(headers.with_prefixes(&["org.fcrepo.jms."]).iter().count(), 1);
    }
}
