//! The messages as they are sent. What says which thing it is and what became of it must be right;
//! what is for people alone is taken as it comes, since it is no reason to lose an event.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};

use super::{address::Files, refused};
use crate::{
    format::Rejection,
    model::{ContentLocation, Digest, DigestAlgorithm, MediaType, State, Timestamp, Uri},
};

/// An identifier: never blank.
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

/// An object of JSON: serde would take a list as well, with the members in their order.
#[derive(Debug)]
pub(super) struct Object<T>(T);

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// What is referred to by its identifier.
#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    pub(super) id: Option<Id>,
}

/// The same where the message is of no use without.
#[derive(Debug, Deserialize)]
pub(super) struct Required {
    pub(super) id: Id,
}

/// A harvest is to be started.
#[derive(Debug, Deserialize)]
pub(super) struct Start {
    pub(super) id: Id,
    #[serde(rename = "type")]
    pub(super) harvest_type: Option<String>,
    pub(super) collection: Option<Object<Reference>>,
    pub(super) collection_set: Option<Object<Reference>>,
    #[serde(default)]
    pub(super) path: Value,
    #[serde(default)]
    pub(super) seeds: Value,
    #[serde(default)]
    pub(super) options: Value,
}

/// A harvest is to be stopped.
#[derive(Debug, Deserialize)]
pub(super) struct Stop {
    pub(super) id: Id,
}

/// An export is to be started.
#[derive(Debug, Deserialize)]
pub(super) struct Export {
    pub(super) id: Id,
    #[serde(rename = "type")]
    pub(super) export_type: Option<String>,
    pub(super) collection: Option<Object<Reference>>,
    /// What else is told: for people.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// How a harvest or an export is doing.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) id: Id,
    #[serde(deserialize_with = "state")]
    pub(super) status: State,
    pub(super) date_started: Option<Timestamp>,
    pub(super) date_ended: Option<Timestamp>,
    /// Seeds and their new tokens; no update, where the token is null.
    pub(super) token_updates: Option<BTreeMap<String, Value>>,
    /// Seeds and their uids, in the same way.
    pub(super) uids: Option<BTreeMap<String, Value>>,
    /// What else is told: for people.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// A status as a token: `completed success` is COMPLETED_SUCCESS.
fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
    let raw = String::deserialize(deserializer)?;
    let words: Vec<_> = raw.split([' ', '-', '_', '\t']).filter(|word| !word.is_empty()).collect();
    State::parse(&words.join("_").to_ascii_uppercase()).map_err(|_| {
        let raw: String = raw.chars().take(64).collect();
        D::Error::custom(format!("{raw:?} is no status; words of letters were expected, as in completed success"))
    })
}

/// A WARC has been made.
#[derive(Debug, Deserialize)]
pub(super) struct WarcCreated {
    pub(super) warc: Object<Warc>,
    pub(super) collection: Object<Required>,
    pub(super) collection_set: Option<Object<Reference>>,
    pub(super) harvest: Option<Object<Harvest>>,
}

/// The harvest that made a WARC.
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
    pub(super) date_created: Option<Timestamp>,
}

impl Warc {
    /// Where it is, and which harvest made it. The gzip of a `.warc.gz` is a part of the format
    /// (WARC 1.1, annex D), so that the media type is the same.
    ///
    /// # Errors
    /// When its path is not in the folder of the files, or its digest is none.
    pub(super) fn content(&self, files: &Files, harvest: Option<Uri>) -> Result<ContentLocation, Rejection> {
        let digest = self.sha1.as_deref().filter(|hex| !hex.trim().is_empty());
        let digest = digest.map(|hex| Digest::parse(DigestAlgorithm::Sha1, hex)).transpose();
        Ok(ContentLocation {
            url: files.url(&self.path, "/warc/path")?,
            media_type: MediaType::parse("application/warc").ok(),
            size: self.bytes,
            digest: digest.map_err(|error| refused("/warc/sha1", error.to_string()))?,
            generated_by: harvest,
        })
    }
}
