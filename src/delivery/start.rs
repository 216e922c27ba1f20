//! Where a subscription begins, and where a rewind leads.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    journal::{Journal, JournalError},
    model::{Seq, Timestamp},
};

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the next change.
    #[default]
    Now,
    /// With the oldest change that is kept.
    Beginning,
    /// With the change of this number.
    At(Seq),
    /// With the first change that was received at this time or later, by the gateway's clock.
    Since(Timestamp),
}

/// Why a subscription cannot begin there.
#[derive(Debug, thiserror::Error)]
pub enum InvalidStart {
    /// There is no such change, or no longer.
    #[error(
        "there is no change {asked}: the changes {first} to {head} are kept; give one of them, \"beginning\", \"now\" or a time"
    )]
    NotKept {
        /// What was asked for.
        asked: Seq,
        /// The oldest change.
        first: Seq,
        /// The newest change.
        head: Seq,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Start {
    /// The cursor of who begins there: the number after which changes are delivered.
    ///
    /// # Errors
    /// When that change is not kept, or the journal cannot be read.
    pub async fn cursor(self, journal: &Journal) -> Result<Seq, InvalidStart> {
        let before = |seq: Seq| Seq(seq.0.saturating_sub(1));
        let (first, head) = (journal.first(), journal.head());
        match self {
            Self::Now => Ok(head),
            Self::Beginning => Ok(before(first)),
            Self::At(asked) if asked < first || asked > head.next() => {
                Err(InvalidStart::NotKept { asked, first, head })
            }
            Self::At(asked) => Ok(before(asked)),
            Self::Since(time) => Ok(journal.first_since(time).await?.map_or(head, before)),
        }
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Now => serializer.serialize_str("now"),
            Self::Beginning => serializer.serialize_str("beginning"),
            Self::At(seq) => seq.serialize(serializer),
            Self::Since(time) => time.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = "give \"now\", \"beginning\", a number of a change, or a time as in \"2026-01-02T03:04:05Z\"";
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => match text.as_str() {
                "now" => Ok(Self::Now),
                "beginning" => Ok(Self::Beginning),
                // A variable of the environment has its numbers as text.
                text => match (text.parse(), Timestamp::parse(text)) {
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
