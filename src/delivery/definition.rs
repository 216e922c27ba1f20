//! Definition of a subscription. The configuration file and the HTTP interface use the same keys.

use std::{ffi::OsString, fmt, path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use utoipa::openapi::Schema;

use super::{DELIVERIES, DeliveryConfig, DeliveryKind, StartPosition};
use crate::{
    format::{FORMATS, FormatKind, content_change},
    http_client::OutboundPolicy,
    journal::subscriptions::MadeBy,
    model::Filter,
    settings::{
        Key, Setting, SettingError, SettingErrors, Structure, Table, ValueType, Whole, names, settings, string_schema,
    },
    suggestion::{advice, unknown_name},
};

settings! {
    /// Keys that every subscription has, independent of its delivery.
    pub(super) struct CommonTable {
        /// How messages are pushed: amqp, kafka, stomp or webhook. Each has additional settings, listed below.
        delivery: DeliveryName,
        /// Format of messages: atom, json, xml, cloudevents, cloudevents-binary, activitystreams or hoarder
        /// (docs/formats.md). Default: atom, the 0.1 message.
        format: FormatName = &content_change::ATOM,
        /// Selects changes. All conditions must hold; the values of one condition are alternatives. `sources`
        /// (of this file, including disabled ones), `objects` (prefixes of their URIs), `parents`, `types`,
        /// `media_types` ("image/*"), `changes` (ADD, UPDATE, DELETE, STATE), `states` (after the change),
        /// and `visibility`: true selects only changes that affect what the public can see. Default: all
        /// changes.
        filter: Structure<Filter> = Filter::default(),
        /// Start of a new subscription: "now", "beginning", the number of a change, or a time as in
        /// "2026-01-02T03:04:05Z". Default: now. An existing subscription keeps its cursor.
        start: Structure<StartPosition> = StartPosition::default(),
        /// Maximum number of stored messages that the receiver has refused permanently, 0 to 1000000. If the
        /// store is full, the next refusal stops the subscription until there is room. Default: 1000.
        dead_letters: Whole<u64, 0, 1_000_000> = 1000,
    }
}

/// Specifications of the keys that every subscription has.
pub const COMMON_KEYS: &[Key] = CommonTable::KEYS;

/// The name of a kind of delivery.
pub(super) struct DeliveryName;

impl ValueType for DeliveryName {
    type Value = &'static DeliveryKind;

    fn read(setting: &Setting) -> Result<&'static DeliveryKind, SettingErrors> {
        Ok(named(setting, "delivery", DELIVERIES, |kind| kind.name)?)
    }

    fn missing(setting: &Setting) -> SettingError {
        let names: Vec<_> = DELIVERIES.iter().map(|kind| kind.name).collect();
        setting.invalid(format!("it is missing; add it; there are {}", names.join(", ")))
    }

    fn schema() -> Schema {
        string_schema(&DELIVERIES.iter().map(|kind| kind.name).collect::<Vec<_>>()).into()
    }
}

/// The name of a format.
pub(super) struct FormatName;

impl ValueType for FormatName {
    type Value = &'static FormatKind;

    fn read(setting: &Setting) -> Result<&'static FormatKind, SettingErrors> {
        Ok(named(setting, "format", FORMATS, |kind| kind.name)?)
    }

    fn schema() -> Schema {
        string_schema(&FORMATS.iter().map(|kind| kind.name).collect::<Vec<_>>()).into()
    }
}

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

    /// Checks the path of a CA certificate file. Only the configuration file may name files.
    pub(super) fn ca_file(&self, ca: Option<PathBuf>) -> Result<Option<PathBuf>, InvalidDefinition> {
        match ca {
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

impl From<SettingError> for InvalidDefinition {
    fn from(error: SettingError) -> Self {
        let key = error.key().to_owned();
        match error {
            SettingError::Invalid { reason, .. } => Self { key, reason },
            SettingError::Missing { .. } => Self::new(key, "it is missing; add it"),
            SettingError::Unknown { known, .. } => {
                let reason = format!("there is no such key; {}", advice(&key, &known));
                Self { key, reason }
            }
        }
    }
}

/// The first of the errors.
impl From<SettingErrors> for InvalidDefinition {
    fn from(SettingErrors(errors): SettingErrors) -> Self {
        errors.into_iter().next().map_or_else(|| Self::new("", "it is invalid"), Self::from)
    }
}

impl Definition {
    /// Keys that every subscription has, independent of its delivery.
    pub const KEYS: [&'static str; 5] = names(COMMON_KEYS);

    /// Parses a definition.
    ///
    /// # Errors
    /// Fails if a key is unknown or missing, or its value has the wrong type. Error messages never contain a
    /// URL.
    pub fn read(definition: Value, context: &DefinitionContext<'_>) -> Result<Self, InvalidDefinition> {
        if !definition.is_object() {
            return Err(InvalidDefinition::new("", "give an object with the keys of a subscription"));
        }
        let table = Setting::definition(definition);
        refuse_unknown_condition(&table)?;
        let CommonTable { delivery, format, filter, start, dead_letters } = CommonTable::read_part(&table)?;
        let known: Vec<_> = Self::KEYS.into_iter().chain(delivery.settings.iter().map(|key| key.name)).collect();
        if let Some(unknown) = table.unknown_keys(&known)?.into_iter().next() {
            return Err(unknown.into());
        }
        if format.routed.is_some() && !delivery.has_routing_keys {
            let reason =
                format!("the format {} needs routing keys; give the delivery amqp, kafka or stomp", format.name);
            return Err(InvalidDefinition::new("format", reason));
        }
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
        let config = (delivery.parse)(&table, context)?;
        if config.max_batch() > 1 && format.batch.is_none() {
            let can: Vec<_> = FORMATS.iter().filter(|kind| kind.batch.is_some()).map(|kind| kind.name).collect();
            let reason =
                format!("the format {} cannot join changes; give 1, or the format {}", format.name, can.join(" or "));
            return Err(InvalidDefinition::new("max_batch", reason));
        }
        Ok(Self { filter, format, start, dead_letters, delivery, config })
    }

    /// Connects to the receiver under a name, and checks the settings as far as this sends and changes nothing. `None` if
    /// connecting to such a receiver says nothing.
    pub fn probe<'s>(&'s self, name: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        self.config.probe(name)
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

/// Conditions of the filter of a subscription: those of [`Filter`] without `since`, which a subscription refuses.
const CONDITIONS: [&str; 8] =
    ["sources", "objects", "parents", "types", "changes", "media_types", "states", "visibility"];

/// Refuses a condition that does not exist, before the filter is read: its own error would offer `since`, too.
fn refuse_unknown_condition(table: &Setting) -> Result<(), InvalidDefinition> {
    let Ok(entries) = table.entry("filter").and_then(|filter| filter.entries()) else { return Ok(()) };
    let is_unknown = |name: &str| name != "since" && !CONDITIONS.contains(&name);
    match entries.iter().find(|(name, _)| is_unknown(name)) {
        Some((name, _)) => {
            let reason = format!("there is no setting {name:?}; {}", advice(name, &CONDITIONS));
            Err(InvalidDefinition::new(format!("filter.{name}"), reason))
        }
        None => Ok(()),
    }
}

/// Returns the kind that a setting names.
fn named<K>(
    setting: &Setting,
    what: &str,
    kinds: &[&'static K],
    name_of: fn(&K) -> &'static str,
) -> Result<&'static K, SettingError> {
    let names: Vec<_> = kinds.iter().map(|kind| name_of(kind)).collect();
    let value = setting.json();
    let wrong = || setting.invalid(format!("give a name; there are {}", names.join(", ")));
    let name = value.as_str().ok_or_else(wrong)?;
    let found = kinds.iter().copied().find(|kind| name_of(kind) == name);
    found.ok_or_else(|| setting.invalid(unknown_name(what, name, &names)))
}
