//! Names and identifiers that are not URIs of content.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::deserialize_str::deserialize_str;

/// Why a text is not a name.
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
            /// Takes a name.
            ///
            /// # Errors
            /// When it has other characters or is too long.
            pub fn parse(raw: &str) -> Result<Self, InvalidName> {
                if is_name(raw) { Ok(Self(raw.into())) } else { Err(InvalidName(raw.chars().take(64).collect())) }
            }

            /// The name.
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
    /// The name of a configured source: `[a-z0-9][a-z0-9_-]*`, at most 64 bytes, so that it can stand
    /// in a URL path and in a routing key.
    SourceName
}
name! {
    /// The name of a subscription: as a source's, so that it can stand in a URL path and in a label.
    SubscriptionName
}

fn is_name(raw: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    raw.len() <= 64
        && raw.bytes().next().is_some_and(allowed)
        && raw.bytes().all(|b| allowed(b) || b == b'-' || b == b'_')
}

/// The source's own identifier of an event, whatever its form: an Atom id, a broker's message id.
/// Between 1 and [`EventId::MAX_BYTES`] bytes of what XML can carry, without white space around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct EventId(Arc<str>);

impl EventId {
    /// The longest identifier taken, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Takes an identifier; `None` when it is empty, too long, or has control characters: such a
    /// text identifies nothing.
    #[must_use]
    pub fn parse(raw: &str) -> Option<Self> {
        let raw = raw.trim();
        let ok = !raw.is_empty()
            && raw.len() <= Self::MAX_BYTES
            && raw.chars().all(|c| super::text::is_xml_char(c) && !c.is_control());
        ok.then(|| Self(raw.into()))
    }

    /// The identifier.
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

/// Why a text is not an identifier of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID; write it as in urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48")]
pub struct InvalidId(String);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new one, ordered by the time of making (RFC 9562, version 7), so that an
            /// index over many of them grows at its end.
            #[must_use]
            pub fn mint() -> Self {
                Self(Uuid::now_v7())
            }

            /// Takes `urn:uuid:…` or a bare UUID, in either case of letters.
            ///
            /// # Errors
            /// When it is neither.
            pub fn parse(raw: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(raw.trim()).map(Self).map_err(|_| InvalidId(raw.chars().take(64).collect()))
            }

            /// The UUID itself.
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

        /// Written as a URN, `urn:uuid:…` (RFC 9562 section 4).
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
    /// Identifies a change for ever, through every format and delivery.
    ChangeId
}
uuid_id! {
    /// Identifies one item's part of a change for ever: the Atom id of its entry.
    ItemId
}

#[cfg(test)]
mod tests {
    use super::{ChangeId, EventId, SourceName};

    #[test]
    fn names_fit_a_path_and_a_routing_key() {
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
    fn an_event_id_identifies_something() {
        assert_eq!(EventId::parse(" x ").unwrap().as_str(), "x");
        assert!(EventId::parse(" ").is_none());
        assert!(EventId::parse("a\nb").is_none());
    }
}
