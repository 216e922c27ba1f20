//! Position of the harvest of a feed: everything that the next run needs.

use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};

use super::looks::Look;
use crate::model::Timestamp;

/// Number of successive responses without a change after which the feed is requested without a condition, because some
/// servers repeat the validators of an old or broken document.
const MAX_UNCHANGED: u32 = 50;

/// Time after which the feed is requested without a condition, because 50 runs can be 50 days, in milliseconds.
const MAX_CONDITIONAL_MILLIS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Maximum length of a validator, in bytes.
const MAX_VALIDATOR_BYTES: usize = 1024;

/// Position of a harvest, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Position {
    /// Digest of the settings that the position depends on.
    pub(super) settings: String,
    /// Validators of the last document that was read completely.
    pub(super) validators: Validators,
    /// Whether every id that looks like a URI is one, as in earlier versions; `None` in their positions.
    pub(super) any_scheme: Option<bool>,
    /// Number of successive responses with the status 304.
    pub(super) unchanged: u32,
    /// Time of the last response with a document; absent before the first one of this version.
    pub(super) document_at: Option<Timestamp>,
    /// Digest of the last body that was read completely.
    pub(super) body: String,
    /// Number of successive responses with the status 410.
    pub(super) gone: u32,
    /// Interval at which the publisher updates the feed, as the last document says, in seconds.
    pub(super) interval: Option<u64>,
    /// Time before which the feed is not requested again.
    pub(super) earliest: Option<Timestamp>,
    /// Digests of the ids and links that several entries of a document had.
    pub(super) ambiguous: Vec<String>,
    /// Digests of the keys of the entries that the last document had, to notice that later ones were missed.
    pub(super) entries: Vec<String>,
    /// The hub that the last document names.
    pub(super) hub: Option<HubLink>,
    /// The last subscription that was requested at a hub.
    pub(super) subscription: Option<HubSubscription>,
    /// Further documents of the present run.
    pub(super) walk: Option<Walk>,
    /// Facts about the newest document of the present run, which count when the run is complete.
    pub(super) pending: Option<DocumentFacts>,
    /// Reason why an archive of the present run is not available at present.
    pub(super) interruption: Option<String>,
    /// Number of successive runs that an archive or a page has interrupted.
    pub(super) interruptions: u32,
    /// Digest of the entries of the last complete feed, if too many were missing.
    pub(super) doubt: Option<String>,
    /// Digests of the unreadable entries of the last document, which are in the quarantine already.
    pub(super) unreadable: Vec<String>,
    /// The readable entries, as the last look found them.
    pub(super) looks: Vec<Look>,
    /// Whether the last document said that it has all entries; `None` in a position of a former version.
    pub(super) is_complete: Option<bool>,
    /// Whether an audit has read all archives of the feed.
    pub(super) has_archives: bool,
    /// Digest of what other feeds claim of the entries; empty if they claim nothing.
    pub(super) claims: String,
    /// Whether a document was read since the claims were compared.
    pub(super) is_unchecked: bool,
}

/// Facts about a document that was read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DocumentFacts {
    pub(super) validators: Validators,
    pub(super) body: String,
    pub(super) interval: Option<u64>,
    pub(super) earliest: Option<Timestamp>,
    pub(super) entries: Vec<String>,
}

/// Further documents of a run (RFC 5005). URLs are without the credentials of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Walk {
    /// Archives are looked for, from the newest to the oldest. The last one of `archives` is next.
    Search {
        /// Archives so far.
        archives: Vec<String>,
    },
    /// Archives are read, from the oldest, which is the last one of `archives`, to the newest. The feed follows.
    Archives {
        /// Archives that are still to be read.
        archives: Vec<String>,
        /// The newest archive.
        newest: String,
    },
    /// Pages are read, from the newest to the oldest.
    Pages {
        /// The next page.
        next: String,
        /// Digests of the URLs of the pages so far.
        visited: Vec<String>,
    },
    /// Entries that a complete feed no longer has are deleted.
    Missing {
        /// Start of the run.
        since: Timestamp,
        /// Digest of the entries that the feed has.
        entries: String,
        /// Whether their number is plausible.
        is_plausible: bool,
    },
    /// The run is complete, and its subscription is to be requested.
    Subscribe,
}

/// A WebSub hub that a feed names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HubLink {
    /// URL of the hub.
    pub(super) url: String,
    /// URL of the feed, as the hub knows it.
    pub(super) topic: String,
}

/// A subscription at a hub, which the hub may not have confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HubSubscription {
    #[serde(flatten)]
    pub(super) hub: HubLink,
    /// Last part of the URL to which the hub sends its notifications. Nobody else knows it.
    pub(super) token: String,
    /// Time of the last request.
    pub(super) requested: Timestamp,
}

/// Validators of a document (RFC 9110 section 8.8), as the server sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Validators {
    pub(super) etag: Option<Validator>,
    pub(super) last_modified: Option<Validator>,
}

/// Value of a header. Each character stands for the byte with its number, because values need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Validator(String);

impl Validator {
    /// Returns the validator; `None` if it is too long to be stored.
    pub(super) fn of(value: &HeaderValue) -> Option<Self> {
        let is_short = (1..=MAX_VALIDATOR_BYTES).contains(&value.len());
        is_short.then(|| Self(value.as_bytes().iter().copied().map(char::from).collect()))
    }

    /// Returns the value as the server sent it.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let bytes: Option<Vec<u8>> = self.0.chars().map(|c| u8::try_from(c).ok()).collect();
        HeaderValue::from_bytes(&bytes?).ok()
    }
}

impl Position {
    /// Parses a position. One of other settings, or one that this version cannot parse, begins the harvest again, which
    /// changes nothing in the registry.
    pub(super) fn parse(text: &str, settings: &str) -> Self {
        let stored = serde_json::from_str(text).ok().filter(|position: &Self| position.settings == settings);
        let begin = || Self { settings: settings.to_owned(), ..Self::default() };
        let mut position: Self = stored.unwrap_or_else(begin);
        // The objects of an earlier version keep their URIs.
        position.any_scheme.get_or_insert(!position.body.is_empty());
        position
    }

    /// Returns the position as text.
    pub(super) fn text(&self) -> String {
        // Serialization cannot fail: every value has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Completes a run with the facts about its newest document.
    pub(super) fn complete(&mut self, facts: DocumentFacts) {
        let DocumentFacts { validators, body, interval, earliest, entries } = facts;
        (self.interruption, self.interruptions, self.is_unchecked) = (None, 0, true);
        let former = std::mem::take(self);
        *self = Self { validators, body, interval, earliest, entries, ..former };
    }

    /// Returns the validators of a request at this time; none if it is to be unconditional.
    pub(super) fn condition(&self, now: Timestamp) -> Validators {
        let is_recent = |at: Timestamp| now.millis().saturating_sub(at.millis()) < MAX_CONDITIONAL_MILLIS;
        let is_conditional = self.unchanged < MAX_UNCHANGED && self.document_at.is_none_or(is_recent);
        if is_conditional { self.validators.clone() } else { Validators::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{HeaderValue, MAX_CONDITIONAL_MILLIS, MAX_UNCHANGED, Position, Timestamp, Validator, Validators};

    #[test]
    fn validators_return_as_received() {
        for bytes in [&b"W/\"a b\""[..], b"unquoted", b"\"\xe9\xff\""] {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            let position = Position {
                validators: Validators { etag: Validator::of(&value), ..Validators::default() },
                ..Position::default()
            };
            let stored = Position::parse(&position.text(), "");
            assert_eq!(stored.condition(Timestamp::now()).etag.unwrap().header().unwrap(), value);
        }
        assert_eq!(Validator::of(&HeaderValue::from_str(&"x".repeat(2000)).unwrap()), None);
    }

    #[test]
    fn request_after_many_unchanged_responses_is_unconditional() {
        let etag = Validator::of(&HeaderValue::from_static("\"a\""));
        let position = |unchanged| Position {
            validators: Validators { etag: etag.clone(), last_modified: None },
            unchanged,
            ..Position::default()
        };
        let condition = |unchanged, now| position(unchanged).condition(Timestamp::from_millis(now).unwrap()).etag;
        assert_eq!(condition(MAX_UNCHANGED - 1, 0), etag);
        assert_eq!(condition(MAX_UNCHANGED, 0), None);
    }

    #[test]
    fn request_after_a_week_without_a_document_is_unconditional() {
        let etag = Validator::of(&HeaderValue::from_static("\"a\""));
        let position = Position {
            validators: Validators { etag: etag.clone(), last_modified: None },
            document_at: Timestamp::from_millis(1000),
            ..Position::default()
        };
        let condition = |now| position.condition(Timestamp::from_millis(now).unwrap()).etag;
        assert_eq!(condition(MAX_CONDITIONAL_MILLIS), etag);
        assert_eq!(condition(1000 + MAX_CONDITIONAL_MILLIS), None);
    }

    #[test]
    fn other_positions_begin_again() {
        let begin =
            |settings: &str| Position { settings: settings.to_owned(), any_scheme: Some(false), ..Position::default() };
        let position = Position { gone: 2, ..begin("s") };
        assert_eq!(Position::parse(&position.text(), "s"), position);
        assert_eq!(Position::parse(&position.text(), "other"), begin("other"));
        assert_eq!(Position::parse("", "s"), begin("s"));
    }
}
