//! `[sources.NAME]`: a source of events.

use std::{collections::BTreeMap, ffi::OsString, fmt, time::Duration};

use super::{
    error::{ConfigError, ConfigErrors},
    http::{self, MessageRate},
    repository::{self, RepositoryTable, SourceDialect},
    transport::{Connection, Transport, TransportKind},
    transports::{self, TRANSPORTS, TransportName},
    value::Time,
};
use crate::{
    format::{DIALECTS, DialectKind, Limits},
    harvest::announcements::AnnouncementSettings,
    http_client::{OutboundPolicy, OutboundUrl},
    lookup::{Mode, RepositorySettings},
    model::{SourceName, UrlPattern},
    settings::{Any, Choice, Flag, Key, List, Setting, SettingError, SettingErrors, Table, Text, settings},
    suggestion::{nearest_name, unknown_name},
    web::SignatureKey,
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
    pub signature: Option<SignatureKey>,
    /// Whether facts that its messages lack are looked up in its repository.
    pub lookup: Mode,
    /// Access to its repository; always given if `lookup` is on.
    pub repository: Option<RepositorySettings>,
    /// Time without a change after which the source is silent; `None` to learn it from the journal.
    pub silent_after: Option<Duration>,
    /// Time between the starts of two complete audits; `None` if only administrators start them.
    pub audit_every: Option<Duration>,
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

settings! {
    /// Settings that every source has, whatever its transport.
    struct SourceTable {
        /// Whether the source is enabled. Default: true.
        enabled: Flag = true,
        /// "http": POST /hooks/NAME. "amqp": a queue of a broker such as RabbitMQ. "stomp": a queue or a
        /// topic of a broker such as ActiveMQ. "kafka": topics of a Kafka cluster.
        transport: TransportName,
        /// Wire format of the messages: fedora-apim, fedora-events, islandora, sfm, hoarder, oai-pmh, feed,
        /// folder, fileset-request, fileset-result, download, gateway, mapped or content-change.
        dialect: Text,
        /// Whether to journal modifications that change neither content nor state, as UPDATE without content.
        /// Default: false, they are only counted.
        metadata_changes: Flag = false,
        /// Time without a change after which the source is a problem, as in "36h"; not for harvests. Default: twice its
        /// longest pause of about two weeks, at least an hour, once it has been observed for a week.
        silent_after: Option<Time>,
        /// Time between the starts of two complete audits (docs/audit.md), as in "7d". Default: only administrators start
        /// them.
        audit_every: Option<Time>,
        /// Settings of the dialect. Default: none.
        settings: Option<Any>,
        /// Whether facts that messages lack are looked up in the repository (docs/lookups.md), for the
        /// dialects fedora-apim, fedora-events and islandora. "off". "best-effort": missing facts are marked
        /// incomplete and published later. "required": an event waits, unacknowledged, until the repository
        /// responds. Default: "off".
        lookup: Choice<Mode> = Mode::default(),
        /// Access to the repository. `url`: base URL of its REST API, to which paths such as /objects/demo:5
        /// (Fedora 3) are appended; lookups request nothing else. `public_urls`: other base URLs of the
        /// repository in messages; `settings.base_url` is always one. `username` and `password`: credentials,
        /// each given by value, as { file = "PATH" } or as { env = "NAME" }. `ca`: PEM file with the CA
        /// certificate for https. `timeout_seconds`: maximum time of a request, 1 to 300. `in_flight`:
        /// maximum number of concurrent requests, 1 to 1024. `cached_answers`: number of responses that are
        /// cached for messages that need the same facts, 0 to 100000. `visible_from` and `visible_until`: predicates
        /// of RDF whose values are the dates from which and until which the public may see a resource
        /// (docs/due.md), not for the dialect islandora. Defaults: no other URLs, no credentials, 10, 64, 1000, no predicates.
        repository: Option<RepositoryTable>,
        /// Whether events about sources make, pause and remove harvests (docs/harvesting.md), for the dialect
        /// hoarder. Default: false.
        harvest: Flag = false,
        /// Regular expressions that match the whole URLs that such harvests may have. Required with
        /// `harvest`.
        allow: List<Text<UrlPattern>> = Vec::new(),
    }
}

/// Specifications of the settings that every source has.
pub(super) const COMMON: &[Key] = SourceTable::KEYS;

/// Returns the declared keys of a source with this transport.
pub(super) fn declared_keys(table: &Setting) -> Vec<&'static [Key]> {
    let transport = table.get::<TransportName>("transport").ok().flatten();
    transport.map_or(&[][..], |transport| transport.keys).iter().copied().chain([COMMON]).collect()
}

/// Checks names, types and ranges in the table of a source, without its secrets, and returns the settings that every source
/// has.
fn shape(name: &str, table: &Setting) -> Result<(SourceName, SourceTable), SettingErrors> {
    let name = SourceName::parse(name).map_err(|error| table.invalid(error.to_string()))?;
    let mut known: Vec<_> = COMMON.iter().map(|key| key.name).collect();
    for key in TRANSPORTS.iter().flat_map(|kind| kind.keys()) {
        if !known.contains(&key.name) {
            known.push(key.name);
        }
    }
    let mut errors = table.unknown_keys(&known)?;
    // Without a transport, the other settings cannot be judged.
    let transport = table.get::<TransportName>("transport")?;
    for error in &mut errors {
        explain_unknown(error, table, transport);
    }
    if transport.is_none() && errors.is_empty() {
        return Err(table.at("transport").missing().into());
    }
    let is_misspelt = !errors.is_empty();
    let checked = transport.map_or(Ok(()), |transport| transports::check(transport, table));
    errors.extend(checked.err().into_iter().flat_map(|SettingErrors(wrong)| wrong));
    match SourceTable::read_part(table) {
        Ok(common) if errors.is_empty() => return Ok((name, common)),
        Ok(_) => {}
        Err(SettingErrors(wrong)) => {
            errors.extend(wrong.into_iter().filter(|error| !is_misspelt || error.origin().is_some()));
        }
    }
    Err(SettingErrors(errors))
}

/// Improves the error about an unknown key. A setting of the dialect belongs into `settings`; otherwise the settings of other
/// transports are no help.
fn explain_unknown(error: &mut SettingError, table: &Setting, transport: Option<&TransportKind>) {
    let SettingError::Unknown { key, known, .. } = error else { return };
    let name = key.rsplit('.').next().unwrap_or_default();
    let dialect = table.get::<Text>("dialect").ok().flatten();
    let dialect = DIALECTS.iter().find(|kind| Some(kind.name) == dialect.as_deref());
    if dialect.is_some_and(|dialect| dialect.sample(name).is_some()) {
        let reason =
            format!("{name} is a setting of the dialect; move it to {}", table.at("settings").path().join("."));
        *error = table.at(name).invalid(reason);
    } else if let Some(transport) = transport
        && nearest_name(name, known.iter().copied()).is_none()
    {
        *known = COMMON.iter().chain(transport.keys()).map(|key| key.name).collect();
    }
}

/// Checks names, types and ranges in the table of a source, without its secrets.
pub(super) fn check_shape(name: &str, table: &Setting) -> Result<(), SettingErrors> {
    shape(name, table).map(drop)
}

/// Reads a source; `None` if it is disabled. A disabled source is validated too, except its dialect and the settings
/// of the dialect, because a misspelt `enabled` must not leave a source on.
pub(super) fn read(
    name: &str,
    table: &Setting,
    environment: &[(OsString, OsString)],
    dialects: &[&'static DialectKind],
) -> Result<Option<(SourceName, SourceConfig)>, ConfigErrors> {
    let (name, common) = shape(name, table)?;
    let SourceTable { enabled, transport, dialect, metadata_changes, silent_after, settings, .. } = common;
    let SourceTable { audit_every, .. } = common;
    let SourceTable { lookup, repository, harvest, allow, .. } = common;
    let rate = http::rate(table)?;
    if !enabled {
        return Ok(None);
    }
    let dialect = dialects.iter().copied().find(|kind| kind.name == dialect).ok_or_else(|| {
        let known: Vec<_> = dialects.iter().map(|kind| kind.name).collect();
        table.at("dialect").invalid(unknown_dialect(&dialect, &known))
    })?;
    let settings = settings.map(|settings| settings.json()).unwrap_or_default();
    (dialect.build)(settings.clone(), Limits::default()).map_err(|error| ConfigError::DialectSettings {
        key: format!("sources.{name}.settings"),
        origin: table.at("settings").origin(),
        dialect: dialect.name,
        reason: with_example(error.to_string(), dialect),
    })?;
    let described = SourceDialect { kind: dialect, settings: &settings };
    let announcements = announcements(&name, table, harvest, allow, described)?;
    let signature = http::signature(table, environment)?;
    let repository = repository::read(lookup, repository, described, table, environment)?;
    let transport = Transport { name: transport.name, connection: (transport.read)(table, environment)? };
    if let Some(harvested) = transport.dialect().filter(|name| *name != dialect.name) {
        let reason =
            format!("the transport {} harvests records of the dialect {harvested:?}; give that", transport.name);
        return Err(table.at("dialect").invalid(reason).into());
    }
    if silent_after.is_some() && transport.broker().is_none() && !matches!(transport.connection, Connection::Hook) {
        let reason = "nobody sends messages of a harvest; overdue_after says when it is a problem";
        return Err(table.at("silent_after").invalid(reason).into());
    }
    let has_repository = repository.is_some() && dialect.repository.is_some_and(|kind| kind.not_crawlable.is_none());
    if audit_every.is_some() && !has_repository && !transport.can_be_audited() {
        let reason = "the repository of the source cannot be asked; for a Fedora give its url in the table `repository`, or \
                      leave audit_every out";
        return Err(table.at("audit_every").invalid(reason).into());
    }
    let source = SourceConfig {
        transport,
        dialect,
        rate,
        metadata_changes,
        settings,
        signature,
        lookup,
        repository,
        silent_after,
        audit_every,
        announcements,
    };
    Ok(Some((name, source)))
}

/// Adds an example to the error about a setting of the dialect that is missing.
fn with_example(reason: String, dialect: &DialectKind) -> String {
    match reason.strip_suffix(" is missing").and_then(|name| Some((name, dialect.sample(name)?))) {
        Some((name, sample)) => format!("{reason}; add it, as in {name} = {sample}"),
        None => reason,
    }
}

/// Refuses a source whose connection would need the same name at the same broker as that of an earlier source, because
/// the broker would refuse one of the two.
pub(super) fn refuse_shared_name(
    source: &SourceConfig,
    table: &Setting,
    earlier: &BTreeMap<SourceName, SourceConfig>,
) -> Result<(), SettingError> {
    let exclusive_name = |source: &SourceConfig| source.transport.broker()?.exclusive_name();
    let Some(name) = exclusive_name(source) else { return Ok(()) };
    match earlier.iter().find(|(_, other)| exclusive_name(other).as_ref() == Some(&name)) {
        None => Ok(()),
        Some((other, _)) => {
            let reason = format!(
                "the source {other} has the {name} already, and the broker admits it only once; give this source another"
            );
            let client_id = table.entry("client_id")?;
            Err(if client_id.is_given() { client_id } else { table.at("durable") }.invalid(reason))
        }
    }
}

/// Returns the error text for an unknown dialect, with a hint if the name resembles a version of Fedora.
#[must_use]
pub fn unknown_dialect(name: &str, known: &[&str]) -> String {
    let is_fedora = name.contains("fedora") && nearest_name(name, known.iter().copied()).is_none();
    let hint = if is_fedora { "; fedora-apim is for Fedora 3, fedora-events for Fedora 4 to 6" } else { "" };
    format!("{}{hint}", unknown_name("dialect", name, known))
}

/// Reads `harvest` and `allow`, for the harvests that the events of a source make.
fn announcements(
    name: &SourceName,
    table: &Setting,
    harvest: bool,
    allow: Vec<UrlPattern>,
    SourceDialect { kind: dialect, settings }: SourceDialect<'_>,
) -> Result<Option<AnnouncementSettings>, SettingError> {
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
