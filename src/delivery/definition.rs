//! What a subscription is: the same keys in the configuration file and over HTTP.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Blueprint, DELIVERIES, DeliveryKind, Key, Start};
use crate::{
    format::{FORMATS, FormatKind},
    http_client::OutboundPolicy,
    journal::subscriptions::MadeBy,
    model::Filter,
    suggestion::{advice, plain_reason},
};

/// The format of messages where the definition names none.
const DEFAULT_FORMAT: &str = "atom";

pub(super) const DEAD_LETTERS: Key =
    Key::number("dead_letters", 0..=1_000_000, 1000, "How many refused messages are kept.");

/// Who defines a subscription, and what they may refer to.
#[derive(Clone, Copy)]
pub struct Maker<'a> {
    /// Who it is.
    pub made_by: MadeBy,
    /// The value of a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Where requests over HTTP may go.
    pub guard: &'a OutboundPolicy,
}

impl<'a> Maker<'a> {
    /// Somebody who asks over HTTP.
    #[must_use]
    pub fn api(guard: &'a OutboundPolicy) -> Self {
        Self { made_by: MadeBy::Api, variable: &|name| std::env::var_os(name), guard }
    }

    /// Takes the file of an authority, which only the configuration may name, out of a definition.
    pub(super) fn take_authority(&self, table: &mut Map<String, Value>) -> Result<Option<PathBuf>, InvalidDefinition> {
        match take(table, "ca")? {
            Some(_) if self.made_by == MadeBy::Api => {
                Err(InvalidDefinition::new("ca", "only the configuration file may name a file; define it there"))
            }
            ca => Ok(ca),
        }
    }
}

/// A subscription as it was defined, checked.
pub struct Definition {
    /// Which changes.
    pub filter: Filter,
    /// What messages are written in.
    pub format: &'static FormatKind,
    /// Where it begins when it is new.
    pub start: Start,
    /// How many dead letters it may have; with so many, the next refusal makes it wait.
    pub dead_letters: u64,
    /// How it is pushed.
    pub delivery: &'static DeliveryKind,
    /// To whom.
    pub blueprint: Arc<dyn Blueprint>,
}

/// Without anything secret.
impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Definition").field(&self.shown()).finish()
    }
}

/// Why a definition is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct InvalidDefinition {
    /// The path of the key, as in `filter.changes`; empty where it is the whole.
    pub key: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl InvalidDefinition {
    /// Says what is wrong with a key.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

impl Definition {
    /// The keys that every subscription has, whatever its delivery.
    pub const KEYS: [&'static str; 5] = ["delivery", "format", "filter", "start", DEAD_LETTERS.name];

    /// Reads a definition.
    ///
    /// # Errors
    /// When a key is unknown or missing, or its value is not of its type. No error repeats an address.
    pub fn read(definition: Value, maker: &Maker<'_>) -> Result<Self, InvalidDefinition> {
        let Value::Object(mut table) = definition else {
            return Err(InvalidDefinition::new("", "give an object with the keys of a subscription"));
        };
        let delivery = named(&mut table, "delivery", None, DELIVERIES, |kind| kind.name)?;
        if let Some(unknown) = table.keys().find(|key| !is_known(key, delivery)) {
            let known: Vec<&str> = Self::KEYS.into_iter().chain(delivery.keys.iter().map(|key| key.name)).collect();
            return Err(InvalidDefinition::new(unknown, format!("there is no such key; {}", advice(unknown, &known))));
        }
        let format = named(&mut table, "format", Some(DEFAULT_FORMAT), FORMATS, |kind| kind.name)?;
        let filter: Filter = take(&mut table, "filter")?.unwrap_or_default();
        if filter.since.is_some() {
            return Err(InvalidDefinition::new("filter.since", "a subscription begins at its start; give that"));
        }
        if let Some(condition) = filter.longest_condition() {
            let reason = format!("it has more than {} values; make two subscriptions", Filter::MAX_VALUES);
            return Err(InvalidDefinition::new(format!("filter.{condition}"), reason));
        }
        let start = take(&mut table, "start")?.unwrap_or_default();
        let dead_letters = DEAD_LETTERS.take(&mut table)? as u64;
        let blueprint = (delivery.read)(table, maker)?;
        if blueprint.max_batch() > 1 && format.batch.is_none() {
            let can: Vec<_> = FORMATS.iter().filter(|kind| kind.batch.is_some()).map(|kind| kind.name).collect();
            let reason =
                format!("{} puts no changes together; give 1, or the format {}", format.name, can.join(" or "));
            return Err(InvalidDefinition::new("max_batch", reason));
        }
        Ok(Self { filter, format, start, dead_letters, delivery, blueprint })
    }

    /// The definition with its defaults, and without anything secret.
    #[must_use]
    pub fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        shown.insert("delivery".to_owned(), self.delivery.name.into());
        shown.insert("format".to_owned(), self.format.name.into());
        shown.insert("start".to_owned(), serde_json::to_value(self.start).unwrap_or_default());
        shown.insert("filter".to_owned(), serde_json::to_value(&self.filter).unwrap_or_default());
        shown.insert("dead_letters".to_owned(), self.dead_letters.into());
        shown.extend(self.blueprint.shown());
        shown
    }
}

fn is_known(key: &str, delivery: &DeliveryKind) -> bool {
    Definition::KEYS.contains(&key) || delivery.keys.iter().any(|known| known.name == key)
}

/// Removes a key from the table and returns the kind that its value names.
fn named<K>(
    table: &mut Map<String, Value>,
    key: &str,
    default: Option<&str>,
    kinds: &[&'static K],
    name_of: fn(&K) -> &'static str,
) -> Result<&'static K, InvalidDefinition> {
    let known: Vec<_> = kinds.iter().map(|kind| name_of(kind)).collect();
    let wrong = |reason: &str| InvalidDefinition::new(key, format!("{reason} there are {}", known.join(", ")));
    let value = table.remove(key).filter(|value| !value.is_null()).or(default.map(Value::from));
    let name = value.as_ref().ok_or_else(|| wrong("it is missing; add it:"))?;
    let name = name.as_str().ok_or_else(|| wrong("give a name;"))?;
    kinds
        .iter()
        .copied()
        .find(|kind| name_of(kind) == name)
        .ok_or_else(|| InvalidDefinition::new(key, format!("there is no {key} {name:?}; {}", advice(name, &known))))
}

/// Takes the value of a key, if there is one, as a `T`.
pub(super) fn take<T: DeserializeOwned>(
    table: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<T>, InvalidDefinition> {
    let Some(value) = table.remove(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let read = serde_path_to_error::deserialize(value);
    read.map(Some).map_err(|error| {
        let path = error.path().to_string();
        let key = match path.as_str() {
            "." => key.to_owned(),
            place if place.starts_with('[') => format!("{key}{place}"),
            place => format!("{key}.{place}"),
        };
        InvalidDefinition::new(key, plain_reason(&error.inner().to_string()))
    })
}
