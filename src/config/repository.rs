//! `lookup` and `[sources.NAME.repository]`: the lookup mode of a source and the access to its repository.

use std::ffi::OsString;

use super::{certificate::ca_certificate, error::ConfigErrors, secret};
use crate::{
    format::{DialectKind, RepositoryApi, dialects_with_repository, stated_dates::DatePredicates},
    lookup::{BaseUrl, Credentials, Mode, RepositorySettings},
    model::Uri,
    settings::{Choose, List, Seconds, SecretText, Setting, SettingErrors, Text, Whole, settings},
    web::Secret,
};

settings! {
    /// `[sources.NAME.repository]`
    pub(super) struct RepositoryTable {
        /// Base URL of its REST API.
        url: Text,
        /// Other base URLs of the repository in messages.
        public_urls: List<Text> = Vec::new(),
        /// User name.
        username: Option<SecretText>,
        /// Password.
        password: Option<SecretText>,
        /// PEM file with the CA certificate for https.
        ca: Option<Text>,
        /// Maximum time of a request, 1 to 300.
        timeout as "timeout_seconds": Seconds<1, 300> = RepositorySettings::TIMEOUT,
        /// Maximum number of concurrent requests, 1 to 1024.
        in_flight: Whole<usize, 1, 1024> = RepositorySettings::IN_FLIGHT,
        /// Number of responses that are cached for messages that need the same facts, 0 to 100000.
        cached_answers: Whole<usize, 0, 100_000> = RepositorySettings::CACHED_ANSWERS,
        /// Predicates of RDF whose values are the date from which the public may see a resource.
        visible_from: List<Text> = Vec::new(),
        /// Predicates of RDF whose values are the date until which the public may see a resource.
        visible_until: List<Text> = Vec::new(),
    }
}

impl Choose for Mode {
    const WHAT: &'static str = "way to look up";
}

/// Dialect of a source with its settings.
#[derive(Clone, Copy)]
pub(super) struct SourceDialect<'a> {
    pub(super) kind: &'static DialectKind,
    pub(super) settings: &'a serde_json::Value,
}

/// Checks the lookup mode of a source and reads its repository. A repository may be configured without lookups.
pub(super) fn read(
    mode: Mode,
    repository_table: Option<RepositoryTable>,
    SourceDialect { kind: dialect, settings }: SourceDialect<'_>,
    source: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<RepositorySettings>, ConfigErrors> {
    let table = source.at("repository");
    let api = dialect.repository.map(|repository| repository.api);
    match (mode, repository_table, api) {
        (Mode::Off, None, _) => Ok(None),
        (_, Some(repository_table), Some(api)) => {
            let repository = repository(repository_table, api, settings, &table, environment)?;
            check_dates(&repository.dates, dialect, &table)?;
            Ok(Some(repository))
        }
        (_, None, Some(_)) => {
            let reason = "lookups need a repository; give its url in the table `repository` of this source";
            Err(source.at("lookup").invalid(reason).into())
        }
        (mode, _, None) => {
            let reason = format!(
                "sources of the dialect {:?} have no repository for lookups, only {} have one; leave it out",
                dialect.name,
                dialects_with_repository(|_| true)
            );
            let of = if mode == Mode::Off { table } else { source.at("lookup") };
            Err(of.invalid(reason).into())
        }
    }
}

fn repository(
    repository_table: RepositoryTable,
    api: RepositoryApi,
    settings: &serde_json::Value,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<RepositorySettings, SettingErrors> {
    let RepositoryTable {
        url,
        public_urls,
        username,
        password,
        ca,
        timeout,
        in_flight,
        cached_answers,
        visible_from,
        visible_until,
    } = repository_table;
    let base = |text: &str, key| BaseUrl::parse(text).map_err(|error| table.at(key).invalid(error.to_string()));
    let url = base(&url, "url")?;
    let mut public_urls = public_urls.iter().map(|text| base(text, "public_urls")).collect::<Result<Vec<_>, _>>()?;
    let predicates = |texts: Vec<String>, key| {
        let predicate = |text: &String| Uri::parse(text).map_err(|error| table.at(key).invalid(error.to_string()));
        texts.iter().map(predicate).collect::<Result<Vec<_>, _>>()
    };
    let dates = DatePredicates {
        from: predicates(visible_from, "visible_from")?,
        until: predicates(visible_until, "visible_until")?,
    };
    // The base URL that the dialect prepends to identifiers is another name of this repository.
    if let Some(named) = settings.get("base_url").and_then(serde_json::Value::as_str)
        && let Ok(base) = BaseUrl::parse(named)
    {
        public_urls.push(base);
    }
    let is_encrypted = url.as_str().starts_with("https:");
    Ok(RepositorySettings {
        public_urls,
        credentials: credentials((username, password), table, environment)?,
        ca: ca_certificate(ca, is_encrypted, "https", table)?,
        timeout,
        in_flight,
        cached_answers,
        dates,
        ..RepositorySettings::new(api, url)
    })
}

/// Refuses predicates of dates that no lookup reads, and one that would be both the begin and the end of a time.
fn check_dates(dates: &DatePredicates, dialect: &DialectKind, table: &Setting) -> Result<(), SettingErrors> {
    let key = if dates.from.is_empty() { "visible_until" } else { "visible_from" };
    // The objects that a crawl does not find have no descriptions in the repository either.
    if let Some(reason) = dialect.repository.and_then(|repository| repository.not_crawlable)
        && !dates.is_empty()
    {
        return Err(table.at(key).invalid(format!("it has no effect: {reason}")).into());
    }
    match dates.until.iter().find(|predicate| dates.from.contains(predicate)) {
        Some(both) => {
            Err(table.at("visible_until").invalid(format!("{both} is in visible_from, too; remove one")).into())
        }
        None => Ok(()),
    }
}

/// Reads user name and password; either both are given or neither.
fn credentials(
    given: (Option<Setting>, Option<Setting>),
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<Credentials>, SettingErrors> {
    let (username, password) = match given {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(table.at("password").missing().into()),
        (None, Some(_)) => return Err(table.at("username").missing().into()),
        (Some(username), Some(password)) => (username, password),
    };
    let read = |setting: &Setting| match secret::text(setting, environment)? {
        text if text.is_empty() => Err(SettingErrors::from(setting.invalid("it is empty"))),
        text => Ok(text),
    };
    let name = read(&username)?;
    // RFC 7617, section 2: the user name ends at the first colon.
    if name.contains(':') {
        let reason = "it contains a colon, which basic authentication does not allow";
        return Err(username.invalid(reason).into());
    }
    Ok(Some(Credentials { username: Secret::new(name), password: Secret::new(read(&password)?) }))
}
