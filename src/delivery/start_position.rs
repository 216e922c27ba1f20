//! Position in the journal at which a subscription begins or to which it is rewound.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    journal::{Journal, JournalError},
    model::{Seq, Timestamp},
};

/// Start position of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// The next change.
    #[default]
    Now,
    /// The oldest stored change.
    Beginning,
    /// The change with this number.
    At(Seq),
    /// The first change received at this time or later, by the gateway's clock.
    Since(Timestamp),
}

/// Error of a start position.
#[derive(Debug, thiserror::Error)]
pub enum InvalidStartPosition {
    /// The change does not exist, or no longer.
    #[error(
        "there is no change {requested} in the journal, which has the changes {first} to {head}; give one of them, \"beginning\", \"now\" or a time"
    )]
    NotStored {
        /// Requested change.
        requested: Seq,
        /// Oldest stored change.
        first: Seq,
        /// Newest change.
        head: Seq,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl StartPosition {
    /// Returns the cursor of this position: delivery begins after that number.
    ///
    /// # Errors
    /// Fails if the change is not stored, or the journal cannot be read.
    pub async fn cursor(self, journal: &Journal) -> Result<Seq, InvalidStartPosition> {
        let before = |seq: Seq| Seq(seq.0.saturating_sub(1));
        let (first, head) = (journal.first(), journal.head());
        match self {
            Self::Now => Ok(head),
            Self::Beginning => Ok(before(first)),
            Self::At(requested) if requested < first || requested > head.next() => {
                Err(InvalidStartPosition::NotStored { requested, first, head })
            }
            Self::At(requested) => Ok(before(requested)),
            Self::Since(time) => Ok(journal.first_since(time).await?.map_or(head, before)),
        }
    }
}

impl Serialize for StartPosition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Now => serializer.serialize_str("now"),
            Self::Beginning => serializer.serialize_str("beginning"),
            Self::At(seq) => seq.serialize(serializer),
            Self::Since(time) => time.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StartPosition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = "give \"now\", \"beginning\", the number of a change, or a time as in \"2026-01-02T03:04:05Z\" or \"2026-01-02\"";
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => match text.as_str() {
                "now" => Ok(Self::Now),
                "beginning" => Ok(Self::Beginning),
                // An environment variable gives numbers as text.
                text => match (text.parse(), Timestamp::parse_or_day(text)) {
                    (Ok(seq), _) => Ok(Self::At(Seq(seq))),
                    (_, Ok(time)) => Ok(Self::Since(time)),
                    _ => Err(serde::de::Error::custom(format_args!("it is {text:?}; {wrong}"))),
                },
            },
            serde_json::Value::Number(number) => match number.as_u64() {
                Some(seq) if seq > 0 => Ok(Self::At(Seq(seq))),
                _ => Err(serde::de::Error::custom(format_args!("it is {number}; {wrong}"))),
            },
            _ => Err(serde::de::Error::custom(wrong)),
        }
    }
}
