//! Definition of a subscription. The configuration file and the HTTP interface use the same keys.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DELIVERIES, DeliveryConfig, DeliveryKind, SettingSpec, StartPosition};
use crate::{
    format::{FORMATS, FormatKind},
    http_client::OutboundPolicy,
    journal::subscriptions::MadeBy,
    model::Filter,
    suggestion::{advice, plain_reason},
};

/// Format of messages if the definition names none.
const DEFAULT_FORMAT: &str = "atom";

pub(super) const DEAD_LETTERS: SettingSpec =
    SettingSpec::number("dead_letters", 0..=1_000_000, 1000, "Maximum number of dead letters.");

/// Origin of a definition, and the resources that it may refer to.
#[derive(Clone, Copy)]
pub struct DefinitionContext<'a> {
    /// Origin of the definition.
    pub made_by: MadeBy,
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Rules for the targets of outgoing HTTP requests.
    pub guard: &'a OutboundPolicy,
}

impl<'a> DefinitionContext<'a> {
    /// Returns the context of definitions that arrive over HTTP.
    #[must_use]
    pub fn api(guard: &'a OutboundPolicy) -> Self {
        Self { made_by: MadeBy::Api, variable: &|name| std::env::var_os(name), guard }
    }

    /// Removes the path of a CA certificate file from a definition. Only the configuration file may name files.
    pub(super) fn remove_ca_file(&self, table: &mut Map<String, Value>) -> Result<Option<PathBuf>, InvalidDefinition> {
        match remove_key(table, "ca")? {
            Some(_) if self.made_by == MadeBy::Api => Err(InvalidDefinition::new(
                "ca",
                "only the configuration file may name a file; define the subscription there",
            )),
            ca => Ok(ca),
        }
    }
}

/// A validated definition of a subscription.
pub struct Definition {
    /// Selects changes.
    pub filter: Filter,
    /// Format of messages.
    pub format: &'static FormatKind,
    /// Position at which a new subscription begins.
    pub start: StartPosition,
    /// Maximum number of dead letters. When it is reached, the subscription waits at the next refused message.
    pub dead_letters: u64,
    /// Kind of delivery.
    pub delivery: &'static DeliveryKind,
    /// Settings of the delivery.
    pub config: Arc<dyn DeliveryConfig>,
}

/// Omits secrets.
impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Definition").field(&self.redacted()).finish()
    }
}

/// Error in a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct InvalidDefinition {
    /// Path of the key, as in `filter.changes`; empty if the error concerns the whole definition.
    pub key: String,
    /// The error, and how to fix it.
    pub reason: String,
}

impl InvalidDefinition {
    /// Creates an error about one key.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

impl Definition {
    /// Keys that every subscription has, independent of its delivery.
    pub const KEYS: [&'static str; 5] = ["delivery", "format", "filter", "start", DEAD_LETTERS.name];

    /// Parses a definition.
    ///
    /// # Errors
    /// Fails if a key is unknown or missing, or its value has the wrong type. Error messages never contain a
    /// URL.
    pub fn read(definition: Value, context: &DefinitionContext<'_>) -> Result<Self, InvalidDefinition> {
        let Value::Object(mut table) = definition else {
            return Err(InvalidDefinition::new("", "give an object with the keys of a subscription"));
        };
        let delivery = remove_kind(&mut table, "delivery", None, DELIVERIES, |kind| kind.name)?;
        if let Some(unknown) = table.keys().find(|key| !is_known_key(key, delivery)) {
            let keys: Vec<&str> = Self::KEYS.into_iter().chain(delivery.settings.iter().map(|key| key.name)).collect();
            return Err(InvalidDefinition::new(unknown, format!("there is no such key; {}", advice(unknown, &keys))));
        }
        let format = remove_kind(&mut table, "format", Some(DEFAULT_FORMAT), FORMATS, |kind| kind.name)?;
        if format.routed.is_some() && !delivery.has_routing_keys {
            let reason = format!("the format {} needs routing keys; give the delivery amqp or kafka", format.name);
            return Err(InvalidDefinition::new("format", reason));
        }
        let filter: Filter = remove_key(&mut table, "filter")?.unwrap_or_default();
        if filter.since.is_some() {
            return Err(InvalidDefinition::new(
                "filter.since",
                "a subscription does not filter by time; give start instead",
            ));
        }
        if let Some(condition) = filter.longest_condition() {
            let reason = format!("it has more than {} values; make two subscriptions", Filter::MAX_VALUES);
            return Err(InvalidDefinition::new(format!("filter.{condition}"), reason));
        }
        let start = remove_key(&mut table, "start")?.unwrap_or_default();
        let dead_letters = DEAD_LETTERS.remove_integer(&mut table)? as u64;
        let config = (delivery.parse)(table, context)?;
        if config.max_batch() > 1 && format.batch.is_none() {
            let can: Vec<_> = FORMATS.iter().filter(|kind| kind.batch.is_some()).map(|kind| kind.name).collect();
            let reason =
                format!("the format {} cannot join changes; give 1, or the format {}", format.name, can.join(" or "));
            return Err(InvalidDefinition::new("max_batch", reason));
        }
        Ok(Self { filter, format, start, dead_letters, delivery, config })
    }

    /// Returns the definition with defaults filled in and secrets removed.
    #[must_use]
    pub fn redacted(&self) -> Map<String, Value> {
        let mut json = Map::new();
        json.insert("delivery".to_owned(), self.delivery.name.into());
        json.insert("format".to_owned(), self.format.name.into());
        json.insert("start".to_owned(), serde_json::to_value(self.start).unwrap_or_default());
        json.insert("filter".to_owned(), serde_json::to_value(&self.filter).unwrap_or_default());
        json.insert("dead_letters".to_owned(), self.dead_letters.into());
        json.extend(self.config.redacted());
        json
    }
}

fn is_known_key(key: &str, delivery: &DeliveryKind) -> bool {
    Definition::KEYS.contains(&key) || delivery.settings.iter().any(|setting| setting.name == key)
}

/// Removes a key from the table and returns the kind that its value names.
fn remove_kind<K>(
    table: &mut Map<String, Value>,
    key: &str,
    default: Option<&str>,
    kinds: &[&'static K],
    name_of: fn(&K) -> &'static str,
) -> Result<&'static K, InvalidDefinition> {
    let names: Vec<_> = kinds.iter().map(|kind| name_of(kind)).collect();
    let wrong = |reason: &str| InvalidDefinition::new(key, format!("{reason} there are {}", names.join(", ")));
    let value = table.remove(key).filter(|value| !value.is_null()).or(default.map(Value::from));
    let name = value.as_ref().ok_or_else(|| wrong("it is missing; add it;"))?;
    let name = name.as_str().ok_or_else(|| wrong("give a name;"))?;
    kinds
        .iter()
        .copied()
        .find(|kind| name_of(kind) == name)
        .ok_or_else(|| InvalidDefinition::new(key, format!("there is no {key} {name:?}; {}", advice(name, &names))))
}

/// Removes a key from the table and deserializes its value, if it has one.
pub(super) fn remove_key<T: DeserializeOwned>(
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
