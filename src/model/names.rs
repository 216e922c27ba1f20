//! Names of sources and subscriptions, and identifiers of events and changes.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::deserialize_str::deserialize_str;

/// Error for a text that is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name; use a-z, 0-9, - and _, starting with a letter or digit, at most 64 in all")]
pub struct InvalidName(String);

macro_rules! name {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// Fails if the text has other characters or is too long.
            pub fn parse(raw: &str) -> Result<Self, InvalidName> {
                if is_name(raw) { Ok(Self(raw.into())) } else { Err(InvalidName(raw.chars().take(64).collect())) }
            }

            /// Returns the name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserialize_str(deserializer, Self::parse)
            }
        }
    };
}

name! {
    /// Name of a configured source: `[a-z0-9][a-z0-9_-]*`, at most 64 bytes, so that it is valid in a URL path and in a
    /// routing key.
    SourceName
}
name! {
    /// Name of a subscription: `[a-z0-9][a-z0-9_-]*`, at most 64 bytes, so that it is valid in a URL path and in a
    /// label.
    SubscriptionName
}

/// Error for a text that is not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a node; use a-z, A-Z, 0-9, -, _ and ., starting with a letter or digit, at most 64 in all"
)]
pub struct InvalidNodeName(String);

/// Name of a node: `[A-Za-z0-9][A-Za-z0-9._-]*`, at most 64 bytes, so that most host names are valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Parses a name.
    ///
    /// # Errors
    /// Fails if the text has other characters or is too long.
    pub fn parse(raw: &str) -> Result<Self, InvalidNodeName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let is_name = raw.len() <= 64
            && raw.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && raw.bytes().all(allowed);
        if is_name { Ok(Self(raw.into())) } else { Err(InvalidNodeName(raw.chars().take(64).collect())) }
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

fn is_name(raw: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    raw.len() <= 64
        && raw.bytes().next().is_some_and(allowed)
        && raw.bytes().all(|b| allowed(b) || b == b'-' || b == b'_')
}

/// Identifier of an event in its source, for example an Atom id or a broker's message id: 1 to
/// [`EventId::MAX_BYTES`] bytes of characters that XML allows, without white space at either end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct EventId(Arc<str>);

impl EventId {
    /// Maximum length of an identifier, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Parses an identifier; returns `None` if the text is empty, is too long, or has control characters, because
    /// it then identifies nothing.
    #[must_use]
    pub fn parse(raw: &str) -> Option<Self> {
        let raw = raw.trim();
        let ok = !raw.is_empty()
            && raw.len() <= Self::MAX_BYTES
            && raw.chars().all(|c| crate::text::is_xml_char(c) && !c.is_control());
        ok.then(|| Self(raw.into()))
    }

    /// Returns the identifier.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, |raw| Self::parse(raw).ok_or("an event id has 1 to 1024 printable bytes"))
    }
}

/// Error for a text that is not a UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID; write it as in urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48")]
pub struct InvalidId(String);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Generates a new identifier (RFC 9562, version 7). Such identifiers are ordered by time, so that an
            /// index of them grows at its end.
            #[must_use]
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }

            /// Parses `urn:uuid:…` or a bare UUID, in upper or lower case.
            ///
            /// # Errors
            /// Fails if the text is neither.
            pub fn parse(raw: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(raw.trim()).map(Self).map_err(|_| InvalidId(raw.chars().take(64).collect()))
            }

            /// Returns the UUID.
            #[must_use]
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(raw: &str) -> Result<Self, InvalidId> {
                Self::parse(raw)
            }
        }

        /// Writes a URN, `urn:uuid:…` (RFC 9562 section 4).
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0.urn().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.urn().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserialize_str(deserializer, Self::parse)
            }
        }
    };
}

uuid_id! {
    /// Permanent identifier of a change, the same in all formats and deliveries.
    ChangeId
}
uuid_id! {
    /// Permanent identifier of one item's part of a change: the Atom id of its entry.
    ItemId
}

#[cfg(test)]
mod tests {
    use super::{ChangeId, EventId, SourceName};

    #[test]
    fn names_are_valid_in_a_path_and_a_routing_key() {
        assert_eq!(SourceName::parse("fedora3").unwrap().as_str(), "fedora3");
        for raw in ["", "Fedora", "a.b", "a/b", "-a", &"a".repeat(65)] {
            assert!(SourceName::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn ids_are_written_as_urns() {
        let urn = "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48";
        assert_eq!(ChangeId::parse(urn).unwrap().to_string(), urn);
        assert_eq!(ChangeId::parse(&urn[9..].to_uppercase()).unwrap().to_string(), urn);
        assert!(ChangeId::parse("urn:uuid:1").is_err());
    }

    #[test]
    fn an_event_id_is_not_empty_and_has_no_control_characters() {
        assert_eq!(EventId::parse(" x ").unwrap().as_str(), "x");
        assert!(EventId::parse(" ").is_none());
        assert!(EventId::parse("a\nb").is_none());
    }
}
