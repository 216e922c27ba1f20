//! Configuration of a gateway: four layers are merged, validated as a whole, and converted to types that cannot
//! represent an invalid setting.
//!
//! The layers are `config/default.toml`, the file of the user, the environment (`TIDINGS_…`) and the command-line
//! flags. Later layers override earlier ones. `config/default.toml` is compiled in and documents every setting; a
//! test compares it with the types in this module. An unknown setting is an error that suggests the nearest known
//! name.

mod access;
mod amqp;
mod archives;
mod dbus;
mod download;
mod error;
mod feed;
mod files;
mod filesets;
mod folder;
mod gateway;
mod harvest;
mod harvest_definition;
mod hub;
mod journal;
mod kafka;
mod layer;
mod limits;
mod log;
mod node;
mod oai_pmh;
mod parts;
mod repository;
mod secret;
mod setting;
mod source;
mod stomp;
mod subscription;
mod transport;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use dbus::DbusConfig;
pub use error::{ConfigError, Origin};
pub use files::FilesConfig;
pub use harvest_definition::read_harvest;
pub use hub::HubConfig;
pub use journal::JournalConfig;
pub use limits::Limits;
pub use log::{LogConfig, LogFormat};
pub use node::NodeConfig;
pub use parts::ConfigParts;
use serde::{Deserialize, Deserializer, de::Error as _};
use setting::bounded;
pub use source::{MessageRate, SourceConfig, unknown_dialect};
pub use transport::{Connection, Transport};

use crate::{
    delivery::{Definition, MAX_SUBSCRIPTIONS},
    format::{DIALECTS, DialectKind},
    harvest::fileset::IngestSettings,
    http_client::AllowList,
    journal::store::StoreLocation,
    model::{SourceName, SubscriptionName},
    web::{Access, HostName},
};

/// Text of `config/default.toml`: every setting with its default and its meaning.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[journal]`
    pub journal: JournalConfig,
    /// `journal.store`, or else the folder `journal.data`.
    pub store: StoreLocation,
    /// `[node]`
    pub node: NodeConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[log]`
    pub log: LogConfig,
    /// `[delivery]`
    pub delivery: DeliveryTable,
    /// `[hub]`
    pub hub: HubConfig,
    /// `[dbus]`
    pub dbus: DbusConfig,
    /// `[files]`
    pub files: FilesConfig,
    /// `[filesets]`
    pub filesets: IngestSettings,
    /// `[access]` and the signature keys of the sources.
    pub access: Access,
    /// `[sources.NAME]`; only enabled sources.
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// `[subscriptions.NAME]`
    pub subscriptions: BTreeMap<SubscriptionName, Arc<Definition>>,
}

/// `[server]`: socket address, public URL, TLS and shutdown of the gateway.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerConfig {
    /// Socket address to listen on; port 0 selects a free port.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// URL at which readers reach the gateway, if it differs from `listen`.
    #[serde(default)]
    pub public_url: Option<PublicUrl>,
    /// Additional host names at which the gateway is reached, besides the host of `public_url`.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<HostName>,
    /// `grace_seconds`: maximum time to stop, 1 to 600 seconds.
    #[serde(rename = "grace_seconds", deserialize_with = "seconds::<1, 600, _>")]
    pub grace: Duration,
    /// `heartbeat_seconds`: time without a change after which a stream sends a comment, 1 to 3600 seconds.
    #[serde(rename = "heartbeat_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub heartbeat: Duration,
    /// Whether a public socket address is allowed without access control.
    pub insecure: bool,
    /// `[server.tls]`: certificate and key. Without them, connections are not encrypted.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
}

/// `[server.tls]`: certificate and key, as PEM files.
#[derive(Clone, Debug, Deserialize)]
pub struct TlsFiles {
    /// Certificate, followed by its intermediate certificates.
    #[serde(deserialize_with = "file")]
    pub certificate: PathBuf,
    /// Private key of the certificate.
    #[serde(deserialize_with = "file")]
    pub key: PathBuf,
}

impl ServerConfig {
    /// Returns the URL of a gateway that listens on `bound`.
    #[must_use]
    pub fn url_at(&self, bound: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{bound}")
    }

    /// Returns the URL at which programs on this machine reach the gateway.
    #[must_use]
    pub fn url_on_this_machine(&self) -> String {
        self.url_at(reachable(self.listen))
    }

    /// Returns the URL at which readers reach the gateway when it listens on `bound`.
    #[must_use]
    pub fn public_url_at(&self, bound: SocketAddr) -> PublicUrl {
        self.public_url.clone().unwrap_or_else(|| PublicUrl(self.url_at(reachable(bound))))
    }

    /// Returns whether links in feeds and responses are unusable on other machines. This is so when the gateway
    /// listens on all IP addresses, because it cannot know which of them readers use.
    #[must_use]
    pub fn lacks_public_url(&self) -> bool {
        self.public_url.is_none() && self.listen.ip().to_canonical().is_unspecified()
    }
}

/// Returns the socket address at which this machine reaches a listener on `bound`. It replaces `0.0.0.0` and `::`,
/// because they mean all IP addresses and cannot be connected to.
fn reachable(mut bound: SocketAddr) -> SocketAddr {
    if bound.ip().to_canonical().is_unspecified() {
        bound.set_ip(if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    bound
}

/// `[delivery]`: settings that apply to all subscriptions.
#[derive(Clone, Debug, Deserialize)]
pub struct DeliveryTable {
    /// Targets outside the public internet that subscriptions may have if they are created over HTTP.
    #[serde(deserialize_with = "allow_list")]
    pub allow: AllowList,
}

/// URL at which readers reach the gateway: `http` or `https`, a host and an optional path. It has no trailing slash, so
/// that paths can be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Returns the URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Command-line flags that override settings.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<SocketAddr>,
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--insecure`
    pub insecure: bool,
}

impl Config {
    /// Loads the configuration from the defaults, `file`, the environment and `flags`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a setting is unknown, missing or wrong.
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, ConfigError> {
        Self::load_with(file, std::env::vars_os(), flags, DIALECTS)
    }

    /// Loads the configuration with the given environment and dialects.
    ///
    /// # Errors
    /// In the cases of [`Config::load`].
    pub fn load_with(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &Flags,
        dialects: &[&'static DialectKind],
    ) -> Result<Self, ConfigError> {
        ConfigParts::load_with(file, environment, flags)?.all_with(dialects)
    }
}

fn address<'de, D: Deserializer<'de>>(setting: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(setting)?;
    text.parse().map_err(|_| {
        let expected = "give an IP address and a port, as in 127.0.0.1:8395 or [::1]:8395";
        D::Error::custom(format_args!("it is {text:?}; {expected}"))
    })
}

fn seconds<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(setting: D) -> Result<Duration, D::Error> {
    bounded::<MIN, MAX, u64, D>(setting).map(Duration::from_secs)
}

fn folder<'de, D: Deserializer<'de>>(setting: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(setting)?;
    if text.is_empty() {
        return Err(D::Error::custom("it is empty; give the path of a folder"));
    }
    // An absolute path, so that messages identify the folder whatever the working directory is.
    std::path::absolute(&text).map_err(D::Error::custom)
}

fn file<'de, D: Deserializer<'de>>(setting: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(setting)?;
    if text.is_empty() { Err(D::Error::custom("it is empty; give the path of a file")) } else { Ok(text.into()) }
}

fn allow_list<'de, D: Deserializer<'de>>(setting: D) -> Result<AllowList, D::Error> {
    AllowList::parse(&Vec::<String>::deserialize(setting)?).map_err(D::Error::custom)
}

fn hosts<'de, D: Deserializer<'de>>(setting: D) -> Result<Vec<HostName>, D::Error> {
    let names = Vec::<String>::deserialize(setting)?;
    let parsed = |name: &String| {
        HostName::parse(name).ok_or_else(|| {
            let expected =
                "give host names without scheme and port, as in tidings.internal; IP addresses need no entry";
            D::Error::custom(format_args!("{name:?} is not a host name; {expected}"))
        })
    };
    names.iter().map(parsed).collect()
}

/// The errors do not repeat the text, because it may contain a password by mistake.
impl<'de> Deserialize<'de> for PublicUrl {
    fn deserialize<D: Deserializer<'de>>(setting: D) -> Result<Self, D::Error> {
        let text = String::deserialize(setting)?;
        let invalid =
            |reason: &str| D::Error::custom(format_args!("it {reason}; give a URL as in https://tidings.example.org"));
        let url = url::Url::parse(&text).map_err(|_| invalid("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("is neither http nor https"));
        }
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        if !is_plain {
            return Err(invalid("has a user, a query or a fragment"));
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}
