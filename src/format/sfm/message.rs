//! Types of SFM's messages. Members that identify things and states are validated; members for people are
//! accepted in any form, because the event must not be lost.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};

use super::{rejection, uri_templates::Files};
use crate::{
    format::Rejection,
    model::{ContentLocation, Digest, DigestAlgorithm, DroppedPart, MediaType, Reading, State, Timestamp, Uri},
};

/// A non-blank identifier.
#[derive(Debug)]
pub(super) struct Id(String);

impl Id {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = String::deserialize(deserializer)?;
        let id = raw.trim();
        if id.is_empty() { Err(D::Error::custom("the identifier is blank")) } else { Ok(Self(id.to_owned())) }
    }
}

/// A JSON object. By default, serde would also accept a list with the members in order.
#[derive(Debug)]
pub(super) struct JsonObject<T>(T);

impl<T> Deref for JsonObject<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(JsonObject)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// A reference by identifier.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    pub(super) id: Option<Id>,
}

/// Time in a message. One that cannot be read costs itself, and not the event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedTime(Option<Result<Timestamp, ()>>);

impl ReportedTime {
    /// Returns the time, and notes one that cannot be read.
    pub(super) fn read(self, reading: &mut Reading) -> Option<Timestamp> {
        self.0.and_then(|time| reading.keep(DroppedPart::Time, time))
    }
}

impl<'de> Deserialize<'de> for ReportedTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let one = match &value {
            // Early versions of sfm-utils have a comma too many in their Python, which makes a list.
            Value::Array(times) => times.first().filter(|_| times.len() == 1).unwrap_or(&value),
            other => other,
        };
        Ok(Self(match one {
            Value::Null => None,
            Value::String(text) if text.trim().is_empty() => None,
            Value::String(text) => Some(Timestamp::parse(text).map_err(drop)),
            Value::Number(number) => Some(number.as_f64().and_then(Timestamp::from_number).ok_or(())),
            _ => Some(Err(())),
        }))
    }
}

/// Request to start a harvest.
#[derive(Debug, Deserialize)]
pub(super) struct Start {
    pub(super) id: Id,
    #[serde(rename = "type")]
    pub(super) harvest_type: Option<String>,
    pub(super) collection: Option<JsonObject<Reference>>,
    pub(super) collection_set: Option<JsonObject<Reference>>,
    #[serde(default)]
    pub(super) path: Value,
    #[serde(default)]
    pub(super) seeds: Value,
    #[serde(default)]
    pub(super) options: Value,
}

/// Request to stop a harvest.
#[derive(Debug, Deserialize)]
pub(super) struct Stop {
    pub(super) id: Id,
}

/// Request to start an export.
#[derive(Debug, Deserialize)]
pub(super) struct Export {
    pub(super) id: Id,
    #[serde(rename = "type")]
    pub(super) export_type: Option<String>,
    pub(super) collection: Option<JsonObject<Reference>>,
    /// Other members, for the description.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// Status of a harvest or an export.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) id: Id,
    #[serde(deserialize_with = "state")]
    pub(super) status: State,
    #[serde(default)]
    pub(super) date_started: ReportedTime,
    #[serde(default)]
    pub(super) date_ended: ReportedTime,
    /// New tokens by seed; a null token is no update.
    pub(super) token_updates: Option<BTreeMap<String, Value>>,
    /// New uids by seed; a null uid is no update.
    pub(super) uids: Option<BTreeMap<String, Value>>,
    /// Other members, for the description.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// Parses a status as a token: `completed success` is COMPLETED_SUCCESS.
fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
    let raw = String::deserialize(deserializer)?;
    let words: Vec<_> = raw.split([' ', '-', '_', '\t']).filter(|word| !word.is_empty()).collect();
    State::parse(&words.join("_").to_ascii_uppercase()).map_err(|_| {
        let raw: String = raw.chars().take(64).collect();
        D::Error::custom(format!("{raw:?} is not a status; words of letters were expected, as in completed success"))
    })
}

/// Notification of a new WARC.
#[derive(Debug, Deserialize)]
pub(super) struct WarcCreated {
    pub(super) warc: JsonObject<Warc>,
    /// Missing in messages of SFM's command `resendwarccreatedmsgs`, and of early versions.
    pub(super) collection: Option<JsonObject<Reference>>,
    pub(super) collection_set: Option<JsonObject<Reference>>,
    pub(super) harvest: Option<JsonObject<Harvest>>,
}

/// Harvest that created a WARC.
#[derive(Debug, Deserialize)]
pub(super) struct Harvest {
    pub(super) id: Option<Id>,
    #[serde(rename = "type")]
    pub(super) harvest_type: Option<String>,
}

/// A WARC.
#[derive(Debug, Deserialize)]
pub(super) struct Warc {
    pub(super) id: Id,
    pub(super) path: String,
    pub(super) bytes: Option<u64>,
    pub(super) sha1: Option<String>,
    #[serde(default)]
    pub(super) date_created: ReportedTime,
}

/// Folder of the files of all collection sets, in the path of a WARC: `…/collection_set/SET/COLLECTION/…`.
const COLLECTION_SETS: &str = "/collection_set/";

impl Warc {
    /// Returns the identifier of the collection in the path.
    pub(super) fn collection_in_path(&self) -> Option<&str> {
        let (_, below) = self.path.split_once(COLLECTION_SETS)?;
        let mut segments = below.split('/');
        let collection = segments.nth(1).filter(|collection| !collection.trim().is_empty());
        // The last segment is the file.
        collection.filter(|_| segments.next().is_some())
    }

    /// Returns the location of the file and the harvest that created it. A `.warc.gz` has the same media type,
    /// because gzip is part of the format (WARC 1.1, annex D).
    ///
    /// # Errors
    /// Fails if the path is outside the folder of the files, or the digest is invalid.
    pub(super) fn content(&self, files: &Files, harvest: Option<Uri>) -> Result<ContentLocation, Rejection> {
        let digest = self.sha1.as_deref().filter(|hex| !hex.trim().is_empty());
        let digest = digest.map(|hex| Digest::parse(DigestAlgorithm::Sha1, hex)).transpose();
        Ok(ContentLocation {
            url: files.url(&self.path, "/warc/path")?,
            media_type: MediaType::parse("application/warc").ok(),
            size: self.bytes,
            digest: digest.map_err(|error| rejection("/warc/sha1", error.to_string()))?,
            generated_by: harvest,
            original: None,
        })
    }
}
