//! `[sources.NAME]`: one source of events.

use std::{ffi::OsString, fmt};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::ConfigError,
    repository::{self, RepositoryTable},
    secret,
    setting::Setting,
    transport::{Messages, TRANSPORTS, Transport},
};
use crate::{
    format::{DialectKind, Limits},
    lookup::{Mode, RepositorySettings},
    model::SourceName,
    suggestion::advice,
    web::Secret,
};

/// A source that is enabled.
#[derive(Clone)]
pub struct SourceConfig {
    /// How its messages come in.
    pub transport: Transport,
    /// Which wire format they have.
    pub dialect: &'static DialectKind,
    /// How many messages it may send; any amount, where `None`.
    pub rate: Option<Allowance>,
    /// Whether a modification that left content and state as they were is journaled.
    pub metadata_changes: bool,
    /// The dialect's own settings; [`DialectKind::build`] has taken them once.
    pub settings: serde_json::Value,
    /// The key by which its messages may be signed, instead of being sent with a token.
    pub signature: Option<Secret>,
    /// Whether its repository is asked what its messages do not say.
    pub lookup: Mode,
    /// Its repository; there is one, where it is asked.
    pub repository: Option<RepositorySettings>,
}

/// The settings are left out, since a dialect's may be a secret.
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

/// How many messages a source may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// So many a second on average.
    pub per_second: u32,
    /// So many at once.
    pub burst: u32,
}

/// What may stand in the table of every source, whatever its transport.
#[derive(Deserialize)]
struct Table {
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
}

fn enabled() -> bool {
    true
}

/// Reads one source; `None` if it is not enabled. What is wrong with one that is not enabled is an
/// error too, the dialect and its settings aside, so that a misspelt name does not leave a source on.
pub(super) fn read(
    name: &str,
    table: &Setting,
    environment: &[(OsString, OsString)],
    dialects: &[&'static DialectKind],
) -> Result<Option<(SourceName, SourceConfig)>, ConfigError> {
    let name = SourceName::parse(name).map_err(|error| table.invalid(error.to_string()))?;
    let of_transports = TRANSPORTS.iter().flat_map(|kind| kind.keys).map(|key| key.name).collect::<Vec<_>>();
    let common: Table = table.read_without(&of_transports)?;
    let Table { enabled, metadata_changes, settings, repository, .. } = common;
    let transport = named(table, "transport", "transport", TRANSPORTS, |kind| kind.name)?;
    let transport = transport.ok_or_else(|| table.at("transport").missing())?;
    transport.check(table)?;
    let rate = match (table.get("rate")?, table.get("burst")?) {
        (Some(Messages(per_second)), None) => Some(Allowance { per_second, burst: per_second }),
        (Some(Messages(per_second)), Some(Messages(burst))) => Some(Allowance { per_second, burst }),
        (None, Some(_)) => return Err(table.entry("burst")?.invalid("there is no burst without a rate; give both")),
        (None, None) => None,
    };
    if !enabled {
        return Ok(None);
    }
    let dialect = named(table, "dialect", "dialect", dialects, |kind| kind.name)?;
    let dialect = dialect.ok_or_else(|| table.at("dialect").missing())?;
    (dialect.build)(settings.clone(), Limits::default()).map_err(|error| ConfigError::Settings {
        key: format!("sources.{name}.settings"),
        dialect: dialect.name,
        reason: error.to_string(),
    })?;
    let signature = table.entry("signature")?;
    let signature = match signature.is_given() {
        true => Some(secret::read(&signature.entry("secret")?, environment)?),
        false => None,
    };
    let (lookup, repository) = repository::read(repository.as_ref(), (dialect, &settings), table, environment)?;
    let transport = Transport { name: transport.name, broker: (transport.read)(table, environment)? };
    Ok(Some((
        name,
        SourceConfig { transport, dialect, rate, metadata_changes, settings, signature, lookup, repository },
    )))
}

/// Reads a setting that names one of `all`, which are each a `what`; `None` where it is not given.
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
    found.ok_or_else(|| table.at(key).invalid(unknown(what, &name, &known())))
}

pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    format!("there is no {what} {name:?}; {}", advice(name, known))
}
