//! `[sources.NAME]`: a source of events.

use std::{collections::BTreeMap, ffi::OsString, fmt};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::ConfigError,
    repository::{self, RepositoryTable},
    secret,
    setting::Setting,
    transport::{MessageCount, TRANSPORTS, Transport},
};
use crate::{
    format::{DialectKind, Limits},
    harvest::announcements::AnnouncementSettings,
    http_client::{OutboundPolicy, OutboundUrl},
    lookup::{Mode, RepositorySettings},
    model::{SourceName, UrlPattern},
    suggestion::{advice, nearest_name},
    web::Secret,
};

/// Configuration of an enabled source.
#[derive(Clone)]
pub struct SourceConfig {
    /// Transport of its messages.
    pub transport: Transport,
    /// Dialect of its messages.
    pub dialect: &'static DialectKind,
    /// Rate limit of its messages; `None` means unlimited.
    pub rate: Option<MessageRate>,
    /// Whether modifications that change neither content nor state are journaled.
    pub metadata_changes: bool,
    /// Settings of the dialect, which [`DialectKind::build`] has accepted.
    pub settings: serde_json::Value,
    /// Key of message signatures, an alternative to a token.
    pub signature: Option<Secret>,
    /// Whether facts that its messages lack are looked up in its repository.
    pub lookup: Mode,
    /// Access to its repository; always given if `lookup` is on.
    pub repository: Option<RepositorySettings>,
    /// Settings of the harvests that its events make, if they make any.
    pub announcements: Option<AnnouncementSettings>,
}

/// The settings are omitted, because those of a dialect may contain a secret.
impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceConfig")
            .field("transport", &self.transport)
            .field("dialect", &self.dialect.name)
            .field("rate", &self.rate)
            .field("metadata_changes", &self.metadata_changes)
            .field("lookup", &self.lookup)
            .field("repository", &self.repository)
            .finish_non_exhaustive()
    }
}

/// Rate limit of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRate {
    /// Average number of messages per second.
    pub per_second: u32,
    /// Maximum number of messages in a burst.
    pub burst: u32,
}

/// Settings that every source has, whatever its transport.
#[derive(Deserialize)]
struct SourceTable {
    #[serde(default = "enabled")]
    enabled: bool,
    #[serde(rename = "transport")]
    _transport: IgnoredAny,
    #[serde(rename = "dialect")]
    _dialect: String,
    #[serde(default)]
    metadata_changes: bool,
    #[serde(default)]
    settings: serde_json::Value,
    #[serde(rename = "lookup")]
    _lookup: Option<String>,
    #[serde(default)]
    repository: Option<RepositoryTable>,
    #[serde(default)]
    harvest: bool,
    #[serde(default)]
    allow: Vec<UrlPattern>,
}

fn enabled() -> bool {
    true
}

/// Reads a source; `None` if it is disabled. A disabled source is validated too, except its dialect and the settings
/// of the dialect, because a misspelt `enabled` must not leave a source on.
pub(super) fn read(
    name: &str,
    table: &Setting,
    environment: &[(OsString, OsString)],
    dialects: &[&'static DialectKind],
) -> Result<Option<(SourceName, SourceConfig)>, ConfigError> {
    let name = SourceName::parse(name).map_err(|error| table.invalid(error.to_string()))?;
    let transport_keys = TRANSPORTS.iter().flat_map(|kind| kind.keys).map(|key| key.name).collect::<Vec<_>>();
    let common: SourceTable = table.read_without(&transport_keys)?;
    let SourceTable { enabled, metadata_changes, settings, repository, harvest, allow, .. } = common;
    let transport = named(table, "transport", "transport", TRANSPORTS, |kind| kind.name)?;
    let transport = transport.ok_or_else(|| table.at("transport").missing())?;
    transport.check(table)?;
    let rate = match (table.get("rate")?, table.get("burst")?) {
        (Some(MessageCount(per_second)), None) => Some(MessageRate { per_second, burst: per_second }),
        (Some(MessageCount(per_second)), Some(MessageCount(burst))) => Some(MessageRate { per_second, burst }),
        (None, Some(_)) => return Err(table.entry("burst")?.invalid("burst needs a rate; give both")),
        (None, None) => None,
    };
    if !enabled {
        return Ok(None);
    }
    let dialect = table.get::<String>("dialect")?.ok_or_else(|| table.at("dialect").missing())?;
    let dialect = dialects.iter().copied().find(|kind| kind.name == dialect).ok_or_else(|| {
        let known: Vec<_> = dialects.iter().map(|kind| kind.name).collect();
        table.at("dialect").invalid(unknown_dialect(&dialect, &known))
    })?;
    (dialect.build)(settings.clone(), Limits::default()).map_err(|error| ConfigError::DialectSettings {
        key: format!("sources.{name}.settings"),
        dialect: dialect.name,
        reason: error.to_string(),
    })?;
    let announcements = announcements(&name, table, (harvest, allow), (dialect, &settings))?;
    let signature = table.entry("signature")?;
    let signature = match signature.is_given() {
        true => Some(secret::read(&signature.entry("secret")?, environment)?),
        false => None,
    };
    let (lookup, repository) = repository::read(repository.as_ref(), (dialect, &settings), table, environment)?;
    let transport = Transport { name: transport.name, connection: (transport.read)(table, environment)? };
    if let Some(harvested) =
        transport.harvest().map(|harvest| harvest.kind.dialect()).filter(|name| *name != dialect.name)
    {
        let reason =
            format!("the transport {} harvests records of the dialect {harvested:?}; give that", transport.name);
        return Err(table.at("dialect").invalid(reason));
    }
    Ok(Some((
        name,
        SourceConfig {
            transport,
            dialect,
            rate,
            metadata_changes,
            settings,
            signature,
            lookup,
            repository,
            announcements,
        },
    )))
}

/// Refuses a source whose connection would need the same name at the same broker as that of an earlier source, because
/// the broker would refuse one of the two.
pub(super) fn refuse_shared_name(
    source: &SourceConfig,
    table: &Setting,
    earlier: &BTreeMap<SourceName, SourceConfig>,
) -> Result<(), ConfigError> {
    let exclusive_name = |source: &SourceConfig| source.transport.broker()?.exclusive_name();
    let Some(name) = exclusive_name(source) else { return Ok(()) };
    match earlier.iter().find(|(_, other)| exclusive_name(other).as_ref() == Some(&name)) {
        None => Ok(()),
        Some((other, _)) => {
            let reason = format!(
                "the source {other} has the {name} already, and the broker admits it only once; give this source another"
            );
            let client_id = table.entry("client_id")?;
            Err(if client_id.is_given() { client_id } else { table.entry("durable")? }.invalid(reason))
        }
    }
}

/// Reads a setting whose value is the name of one of `all`; `None` if it is not given. `what` describes the kind of
/// thing in errors.
pub(super) fn named<T: Copy>(
    table: &Setting,
    key: &str,
    what: &str,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<Option<T>, ConfigError> {
    let Some(name) = table.get::<String>(key)? else { return Ok(None) };
    let found = all.iter().copied().find(|known| name_of(*known) == name).map(Some);
    let known = || all.iter().copied().map(name_of).collect::<Vec<_>>();
    found.ok_or_else(|| table.at(key).invalid(unknown_name(what, &name, &known())))
}

/// Returns the error text for an unknown dialect, with a hint if the name resembles a version of Fedora.
#[must_use]
pub fn unknown_dialect(name: &str, known: &[&str]) -> String {
    let is_fedora = name.contains("fedora") && nearest_name(name, known.iter().copied()).is_none();
    let hint = if is_fedora { "; fedora-apim is for Fedora 3, fedora-events for Fedora 4 to 6" } else { "" };
    format!("{}{hint}", unknown_name("dialect", name, known))
}

/// Returns the error text for a name that is not among `known`.
pub(super) fn unknown_name(what: &str, name: &str, known: &[&str]) -> String {
    format!("there is no {what} {name:?}; {}", advice(name, known))
}

/// Checks the names in a filter by source. `sources` contains the names of all configured sources, including disabled ones.
pub(super) fn refuse_unknown_sources<'n>(
    names: impl IntoIterator<Item = &'n SourceName>,
    sources: &[String],
    filter: &Setting,
) -> Result<(), ConfigError> {
    let is_unknown = |name: &&SourceName| !sources.iter().any(|known| known == name.as_str());
    let Some(unknown) = names.into_iter().find(is_unknown) else { return Ok(()) };
    let known: Vec<&str> = sources.iter().map(String::as_str).collect();
    let advice = "a source whose changes are still in the journal can remain with enabled = false";
    Err(filter.invalid(format!("{}; {advice}", unknown_name("source", unknown.as_str(), &known))))
}

/// Checks that the harvest that makes others has a name of its own.
pub(super) fn check_announcements(
    source: &SourceConfig,
    names: &[String],
    sources: &Setting,
) -> Result<(), ConfigError> {
    let name = source.announcements.as_ref().and_then(|settings| AnnouncementSettings::name(&settings.of).ok());
    match name.filter(|name| names.iter().any(|other| other == name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("the source {name} has the name of the harvest that makes others; rename it");
            Err(sources.entry(name.as_str())?.invalid(reason))
        }
    }
}

/// Reads `harvest` and `allow`, for the harvests that the events of a source make.
fn announcements(
    name: &SourceName,
    table: &Setting,
    (harvest, allow): (bool, Vec<UrlPattern>),
    (dialect, settings): (&DialectKind, &serde_json::Value),
) -> Result<Option<AnnouncementSettings>, ConfigError> {
    if !harvest {
        let needless = || table.at("allow").invalid("the events of the source make no harvests; set harvest = true");
        return if allow.is_empty() { Ok(None) } else { Err(needless()) };
    }
    if dialect.name != "hoarder" {
        return Err(table.at("harvest").invalid("only events of the dialect \"hoarder\" make harvests"));
    }
    if allow.is_empty() {
        return Err(table.at("allow").missing());
    }
    AnnouncementSettings::name(name).map_err(|error| table.at("harvest").invalid(error))?;
    let api = settings.get("base_url").and_then(serde_json::Value::as_str).unwrap_or_default();
    // The base URL comes from the operator's configuration, so it may point to an internal host.
    let api = OutboundUrl::parse(api, &OutboundPolicy::unrestricted())
        .map_err(|error| table.at("settings").invalid(error.to_string()))?;
    Ok(Some(AnnouncementSettings { of: name.clone(), api, allow }))
}
