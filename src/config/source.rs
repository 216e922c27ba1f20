//! `[sources.NAME]`: one source of events.

use std::{ffi::OsString, fmt};

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    error::ConfigError,
    queue::{self, QueueTable},
    repository::{self, RepositoryTable},
    secret,
    setting::{Setting, whole},
    stomp::{self, StompTable},
};
use crate::{
    amqp::QueueSettings,
    format::{DialectKind, Limits},
    lookup::{Mode, RepositorySettings},
    model::SourceName,
    stomp::StompSettings,
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

/// How messages come in.
#[derive(Clone, Debug)]
pub enum Transport {
    /// `POST /hooks/NAME`.
    Http,
    /// A queue of a broker.
    Amqp(Box<QueueSettings>),
    /// A queue or a topic of a broker that speaks STOMP.
    Stomp(Box<StompSettings>),
}

impl Transport {
    /// The name in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http => TransportName::Http,
            Self::Amqp(_) => TransportName::Amqp,
            Self::Stomp(_) => TransportName::Stomp,
        }
        .as_str()
    }
}

/// A transport as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportName {
    Http,
    Amqp,
    Stomp,
}

impl TransportName {
    const ALL: [Self; 3] = [Self::Http, Self::Amqp, Self::Stomp];

    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Amqp => "amqp",
            Self::Stomp => "stomp",
        }
    }

    /// The settings that it has and not every transport has.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["rate", "burst", "signature"],
            Self::Amqp => &["url", "ca", "exchange", "queue", "queue_type", "bindings", "prefetch", "declare"],
            Self::Stomp => &["url", "ca", "destination", "durable", "client_id", "prefetch", "acknowledge"],
        }
    }

    /// Refuses the settings of every other transport.
    fn refuse_others(self, table: &Setting) -> Result<(), ConfigError> {
        for other in Self::ALL.into_iter().filter(|other| *other != self) {
            for name in other.settings().iter().filter(|name| !self.settings().contains(name)) {
                let setting = table.entry(name)?;
                if setting.is_given() {
                    let (other, own) = (other.as_str(), self.as_str());
                    let reason = format!("it is for the transport {other:?}, and this source has {own:?}");
                    return Err(setting.invalid(reason));
                }
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for TransportName {
    fn deserialize<D: Deserializer<'de>>(setting: D) -> Result<Self, D::Error> {
        let name = String::deserialize(setting)?;
        let found = Self::ALL.into_iter().find(|transport| transport.as_str() == name);
        found.ok_or_else(|| serde::de::Error::custom(unknown("transport", &name, &Self::ALL.map(Self::as_str))))
    }
}

/// What may stand in the table: what every source has, then what those of one transport have.
#[derive(Deserialize)]
struct Table {
    #[serde(default = "enabled")]
    enabled: bool,
    transport: TransportName,
    dialect: String,
    #[serde(default)]
    metadata_changes: bool,
    #[serde(default)]
    settings: serde_json::Value,
    #[serde(default, deserialize_with = "messages")]
    rate: Option<u32>,
    #[serde(default, deserialize_with = "messages")]
    burst: Option<u32>,
    #[serde(default)]
    signature: Option<SignatureTable>,
    #[serde(default)]
    lookup: Option<String>,
    #[serde(default)]
    repository: Option<RepositoryTable>,
    /// Read by itself, since it holds a password and may be elsewhere.
    #[serde(default, rename = "url")]
    _url: IgnoredAny,
    #[serde(default)]
    ca: Option<String>,
    #[serde(default)]
    exchange: Option<String>,
    #[serde(default)]
    queue: Option<String>,
    #[serde(default)]
    queue_type: Option<String>,
    #[serde(default)]
    bindings: Option<Vec<String>>,
    #[serde(default, deserialize_with = "queue::prefetch")]
    prefetch: Option<u16>,
    #[serde(default)]
    declare: Option<bool>,
    #[serde(default)]
    destination: Option<String>,
    #[serde(default)]
    durable: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    acknowledge: Option<String>,
}

/// What may stand in `signature`; the secret is read by itself, since it may be elsewhere.
#[derive(Deserialize)]
struct SignatureTable {
    #[serde(rename = "secret")]
    _secret: IgnoredAny,
}

/// 1 to 1 000 000 messages.
fn messages<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<u32>, D::Error> {
    whole::<1, 1_000_000, u32, D>(setting).map(Some)
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
    let told: Table = table.clone().read()?;
    let Table {
        enabled,
        transport,
        dialect,
        rate,
        burst,
        metadata_changes,
        settings,
        signature,
        lookup,
        repository,
        ..
    } = &told;
    transport.refuse_others(table)?;
    let rate = match (*rate, *burst) {
        (Some(per_second), burst) => Some(Allowance { per_second, burst: burst.unwrap_or(per_second) }),
        (None, Some(_)) => return Err(table.entry("burst")?.invalid("there is no burst without a rate; give both")),
        (None, None) => None,
    };
    if !enabled {
        return Ok(None);
    }
    let Some(kind) = dialects.iter().find(|kind| kind.name == dialect) else {
        let known: Vec<&str> = dialects.iter().map(|kind| kind.name).collect();
        return Err(table.entry("dialect")?.invalid(unknown("dialect", dialect, &known)));
    };
    (kind.build)(settings.clone(), Limits::default()).map_err(|error| ConfigError::Settings {
        key: format!("sources.{name}.settings"),
        dialect: kind.name,
        reason: error.to_string(),
    })?;
    let signature = match signature {
        Some(_) => Some(secret::read(&table.entry("signature")?.entry("secret")?, environment)?),
        None => None,
    };
    let (lookup, repository) =
        repository::read(lookup.as_deref(), repository.as_ref(), (kind, settings), table, environment)?;
    let (metadata_changes, settings) = (*metadata_changes, settings.clone());
    let transport = match transport {
        TransportName::Http => Transport::Http,
        TransportName::Amqp => {
            let Table { ca, exchange, queue, queue_type, bindings, prefetch, declare, .. } = told;
            let told = QueueTable { ca, exchange, queue, queue_type, bindings, prefetch, declare };
            Transport::Amqp(Box::new(queue::read(told, table, environment)?))
        }
        TransportName::Stomp => {
            let Table { ca, destination, durable, client_id, prefetch, acknowledge, .. } = told;
            let told = StompTable { ca, destination, durable, client_id, prefetch, acknowledge };
            Transport::Stomp(Box::new(stomp::read(told, table, environment)?))
        }
    };
    let dialect = kind;
    Ok(Some((
        name,
        SourceConfig { transport, dialect, rate, metadata_changes, settings, signature, lookup, repository },
    )))
}

pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    format!("there is no {what} {name:?}; {}", advice(name, known))
}
