//! The configuration: loaded from four layers, checked as a whole, and handed on as types in which
//! a wrong setting cannot stand.
//!
//! `config/default.toml` is compiled in and is the defaults: it documents every setting, and a test
//! compares it with the types here. Then come the user's file, the environment (`TIDINGS_…`) and the
//! flags of the command. Whatever is unknown is refused with the nearest known name.

mod access;
mod error;
mod hub;
mod layer;
mod limits;
mod log;
mod queue;
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
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use config::Value;
pub use error::{ConfigError, Origin};
pub use hub::HubConfig;
pub use limits::Limits;
pub use log::{Log, LogFormat};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use setting::{Setting, whole};
pub use source::{Allowance, SourceConfig};
pub use transport::Transport;

use crate::{
    delivery::Definition,
    format::{DIALECTS, DialectKind},
    http_client::AllowList,
    model::{SourceName, SubscriptionName},
    web::{Access, HostName},
};

/// `config/default.toml`: every setting, its default and its meaning.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[journal]`
    pub journal: JournalConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[log]`
    pub log: Log,
    /// `[delivery]`
    pub delivery: Delivery,
    /// `[hub]`
    pub hub: HubConfig,
    /// `[access]`, and the keys by which sources sign.
    pub access: Access,
    /// `[sources.NAME]`, those alone that are enabled.
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// `[subscriptions.NAME]`
    pub subscriptions: BTreeMap<SubscriptionName, Arc<Definition>>,
}

/// `[server]`: where the gateway is reached, and how it stops.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// The address and port to listen on; port 0 takes a free one.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// The address under which readers reach the gateway, where it is not that of `listen`.
    #[serde(default)]
    pub public_url: Option<PublicUrl>,
    /// Names of hosts under which the gateway is reached, beside that of `public_url`.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<HostName>,
    /// `grace_seconds`: how long stopping may take, 1 to 600 seconds.
    #[serde(rename = "grace_seconds", deserialize_with = "seconds::<1, 600, _>")]
    pub grace: Duration,
    /// `heartbeat_seconds`: after how long without a change a stream shows that it is there, 1 to 3600 seconds.
    #[serde(rename = "heartbeat_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub heartbeat: Duration,
    /// Whether an address that others can reach may be listened on without access control.
    pub insecure: bool,
    /// `[server.tls]`: the certificate to serve with; without it, nothing is encrypted.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
}

/// `[server.tls]`: PEM files.
#[derive(Clone, Debug, Deserialize)]
pub struct TlsFiles {
    /// The certificate, with those that it is signed by behind it.
    #[serde(deserialize_with = "file")]
    pub certificate: PathBuf,
    /// Its private key.
    #[serde(deserialize_with = "file")]
    pub key: PathBuf,
}

impl Server {
    /// The address of a gateway that listens on `bound`, as a URL.
    #[must_use]
    pub fn url_at(&self, bound: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{bound}")
    }

    /// The URL at which programs on this machine reach the gateway.
    #[must_use]
    pub fn url_on_this_machine(&self) -> String {
        self.url_at(reachable(self.listen))
    }

    /// The address under which readers reach the gateway when it listens on `bound`.
    #[must_use]
    pub fn public_url_at(&self, bound: SocketAddr) -> PublicUrl {
        self.public_url.clone().unwrap_or_else(|| PublicUrl(self.url_at(reachable(bound))))
    }

    /// Whether links in feeds and answers lead nowhere for readers on other machines: the gateway listens on all addresses
    /// and cannot know by which of them it is reached.
    #[must_use]
    pub fn lacks_public_url(&self) -> bool {
        self.public_url.is_none() && self.listen.ip().to_canonical().is_unspecified()
    }
}

/// The address by which this machine reaches a listener on `bound`: `0.0.0.0` and `::` stand for all addresses, and no
/// request can be sent there.
fn reachable(mut bound: SocketAddr) -> SocketAddr {
    if bound.ip().to_canonical().is_unspecified() {
        bound.set_ip(if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    bound
}

/// `[journal]`: where the journal is, and how much it holds in mind.
#[derive(Clone, Debug, Deserialize)]
pub struct JournalConfig {
    /// The folder.
    #[serde(deserialize_with = "folder")]
    pub data: PathBuf,
    /// For how many days changes are kept, 0 to 36500; 0 is for ever.
    #[serde(deserialize_with = "whole::<0, 36_500, _, _>")]
    pub keep_days: u32,
    /// How many changes are kept, 0 to 1 000 000 000 000; 0 is all.
    #[serde(deserialize_with = "whole::<0, 1_000_000_000_000, _, _>")]
    pub keep_changes: u64,
    /// For how many days an event is known again, 1 to 3650.
    #[serde(deserialize_with = "whole::<1, 3650, _, _>")]
    pub dedupe_days: u32,
    /// How many of the last events are known again at least, 1000 to 1 000 000 000.
    #[serde(deserialize_with = "whole::<1_000, 1_000_000_000, _, _>")]
    pub dedupe_events: u64,
    /// How many events may wait for the writer, 1 to 1 000 000.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub queue: usize,
    /// How many events go into one transaction at most, 1 to 100 000.
    #[serde(deserialize_with = "whole::<1, 100_000, _, _>")]
    pub batch: usize,
    /// How many of the newest changes are held in memory, 1 to 1 000 000.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub tail_changes: usize,
    /// How many bytes of JSON those have together at the most, 64 KiB to 1 GiB.
    #[serde(deserialize_with = "whole::<65_536, 1_073_741_824, _, _>")]
    pub tail_bytes: usize,
}

/// `[delivery]`: what counts for all subscriptions.
#[derive(Clone, Debug, Deserialize)]
pub struct Delivery {
    /// Where subscriptions may point that are not the configuration's own, beside the public internet.
    #[serde(deserialize_with = "allow_list")]
    pub allow: AllowList,
}

/// The address under which readers reach the gateway: `http` or `https`, a host, perhaps a path;
/// without a slash at its end, so that paths can be put behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the command line says about the configuration.
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
    /// When the file cannot be read, or a setting is unknown, missing or wrong.
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, ConfigError> {
        Self::load_with(file, std::env::vars_os(), flags, DIALECTS)
    }

    /// Loads the configuration with this environment and these dialects.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_with(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &Flags,
        dialects: &[&'static DialectKind],
    ) -> Result<Self, ConfigError> {
        let defaults = layer::toml(None, DEFAULTS)?;
        let environment: Vec<_> = environment.into_iter().collect();
        let variables = layer::variables(environment.iter().cloned(), &defaults)?;
        let mut layers = config::Config::builder().add_source(defaults);
        if let Some(path) = file {
            let text =
                fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            layers = layers.add_source(layer::toml(Some(&path.display().to_string()), &text)?);
        }
        layers = layers.add_source(variables);
        for flag in layer::flags(flags)? {
            layers = layers.add_source(flag);
        }
        let merged = layers.build().map_err(|error| ConfigError::Merge(error.to_string()))?;
        Self::read(merged.cache, &environment, dialects)
    }

    fn read(
        merged: Value,
        environment: &[(OsString, OsString)],
        dialects: &[&'static DialectKind],
    ) -> Result<Self, ConfigError> {
        let root = Setting::root(merged);
        let Tables { server, journal, limits, log, delivery, hub, .. } = root.clone().read()?;
        limits.refuse_contradictions(&root.entry("limits")?)?;
        let mut sources = BTreeMap::new();
        let mut names = Vec::new();
        for (name, setting) in root.entry("sources")?.entries()? {
            if let Some((name, source)) = source::read(&name, &setting, environment, dialects)? {
                sources.insert(name, source);
            }
            names.push(name);
        }
        let subscriptions = root.entry("subscriptions")?.entries()?.into_iter();
        let subscriptions =
            subscriptions.map(|(name, setting)| subscription::read(&name, &setting, environment, &names));
        let subscriptions = subscriptions.collect::<Result<_, _>>()?;
        let signature =
            |(name, source): (&SourceName, &SourceConfig)| Some((name.to_string(), source.signature.clone()?));
        let signatures = sources.iter().filter_map(signature).collect();
        let access = Access::new(access::tokens(&root.entry("access")?, &names)?, signatures);
        access::refuse_open(&server, &access)?;
        Ok(Self { server, journal, limits, log, delivery, hub, access, sources, subscriptions })
    }
}

/// Every table there is.
#[derive(Deserialize)]
struct Tables {
    server: Server,
    journal: JournalConfig,
    limits: Limits,
    log: Log,
    delivery: Delivery,
    hub: HubConfig,
    #[serde(rename = "access")]
    _access: AccessTable,
    /// Read one by one, since a source's settings depend on its dialect.
    #[serde(rename = "sources")]
    _sources: IgnoredAny,
    /// Read one by one too, since their settings depend on the delivery.
    #[serde(rename = "subscriptions")]
    _subscriptions: IgnoredAny,
}

/// What may stand in `[access]`; the tokens are read one by one, to check what they name.
#[derive(Deserialize)]
struct AccessTable {
    #[serde(default, rename = "tokens")]
    _tokens: IgnoredAny,
}

fn address<'de, D: Deserializer<'de>>(setting: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(setting)?;
    text.parse().map_err(|_| {
        let expected = "give an IP address and a port, as in 127.0.0.1:8395 or [::1]:8395";
        D::Error::custom(format_args!("it is {text:?}; {expected}"))
    })
}

fn seconds<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(setting: D) -> Result<Duration, D::Error> {
    whole::<MIN, MAX, u64, D>(setting).map(Duration::from_secs)
}

fn folder<'de, D: Deserializer<'de>>(setting: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(setting)?;
    if text.is_empty() {
        return Err(D::Error::custom("it is empty; give the path of a folder"));
    }
    // Whole, so that every message names the folder that is meant, wherever the program was started.
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
                "give names of hosts without scheme and port, as in tidings.internal; IP addresses need no entry";
            D::Error::custom(format_args!("{name:?} is no name of a host; {expected}"))
        })
    };
    names.iter().map(parsed).collect()
}

/// The errors do not repeat the text: by mistake it may hold a password.
impl<'de> Deserialize<'de> for PublicUrl {
    fn deserialize<D: Deserializer<'de>>(setting: D) -> Result<Self, D::Error> {
        let text = String::deserialize(setting)?;
        let wrong = |reason: &str| {
            D::Error::custom(format_args!("it {reason}; give an address as in https://tidings.example.org"))
        };
        let url = url::Url::parse(&text).map_err(|_| wrong("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        if !is_plain {
            return Err(wrong("has a user, a query or a fragment"));
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}
