//! `lookup` and `[sources.NAME.repository]`: the lookup mode of a source and the access to its repository.

use std::{ffi::OsString, time::Duration};

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    amqp::ca_certificate,
    error::ConfigError,
    secret,
    setting::{Setting, bounded},
    source::named,
};
use crate::{
    format::{DialectKind, RepositoryApi, dialects_with_repository},
    lookup::{BaseUrl, Credentials, Mode, RepositorySettings},
    web::Secret,
};

/// `[sources.NAME.repository]`. The credentials are read separately, because they may be in a file or a variable.
#[derive(Deserialize)]
pub(super) struct RepositoryTable {
    url: String,
    #[serde(default)]
    public_urls: Vec<String>,
    #[serde(default, rename = "username")]
    _username: IgnoredAny,
    #[serde(default, rename = "password")]
    _password: IgnoredAny,
    #[serde(default)]
    ca: Option<String>,
    #[serde(default, deserialize_with = "timeout")]
    timeout_seconds: Option<u64>,
    #[serde(default, deserialize_with = "in_flight")]
    in_flight: Option<usize>,
    #[serde(default, deserialize_with = "cache_size")]
    cached_answers: Option<usize>,
}

/// Reads a timeout of 1 to 300 seconds.
fn timeout<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<u64>, D::Error> {
    bounded::<1, 300, u64, D>(setting).map(Some)
}

/// Reads a number of 1 to 1024 requests.
fn in_flight<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<usize>, D::Error> {
    bounded::<1, 1024, usize, D>(setting).map(Some)
}

/// Reads a number of 0 to 100 000 responses.
fn cache_size<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<usize>, D::Error> {
    bounded::<0, 100_000, usize, D>(setting).map(Some)
}

/// Reads the lookup mode and the repository of a source. A repository may be configured without lookups.
pub(super) fn read(
    repository_table: Option<&RepositoryTable>,
    (dialect, settings): (&DialectKind, &serde_json::Value),
    source: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<(Mode, Option<RepositorySettings>), ConfigError> {
    let mode = named(source, "lookup", "way to look up", &Mode::ALL, Mode::name)?.unwrap_or_default();
    let table = source.entry("repository")?;
    let api = dialect.repository.map(|repository| repository.api);
    match (mode, repository_table, api) {
        (Mode::Off, None, _) => Ok((mode, None)),
        (_, Some(repository_table), Some(api)) => {
            Ok((mode, Some(repository(repository_table, api, settings, &table, environment)?)))
        }
        (_, None, Some(_)) => {
            let reason = "lookups need a repository; give its url in the table `repository` of this source";
            Err(source.entry("lookup")?.invalid(reason))
        }
        (mode, _, None) => {
            let reason = format!(
                "sources of the dialect {:?} have no repository for lookups, only {} have one; leave it out",
                dialect.name,
                dialects_with_repository(|_| true)
            );
            let of = if mode == Mode::Off { table } else { source.entry("lookup")? };
            Err(of.invalid(reason))
        }
    }
}

fn repository(
    repository_table: &RepositoryTable,
    api: RepositoryApi,
    settings: &serde_json::Value,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<RepositorySettings, ConfigError> {
    let base = |text: &str, key| match BaseUrl::parse(text) {
        Ok(base) => Ok(base),
        Err(error) => Err(table.entry(key)?.invalid(error.to_string())),
    };
    let url = base(&repository_table.url, "url")?;
    let mut public_urls =
        repository_table.public_urls.iter().map(|text| base(text, "public_urls")).collect::<Result<Vec<_>, _>>()?;
    // The base URL that the dialect prepends to identifiers is another name of this repository.
    if let Some(named) = settings.get("base_url").and_then(serde_json::Value::as_str)
        && let Ok(base) = BaseUrl::parse(named)
    {
        public_urls.push(base);
    }
    let is_encrypted = url.as_str().starts_with("https:");
    Ok(RepositorySettings {
        public_urls,
        credentials: credentials(table, environment)?,
        ca: ca_certificate(repository_table.ca.clone(), is_encrypted, "https", table)?,
        timeout: repository_table.timeout_seconds.map_or(RepositorySettings::TIMEOUT, Duration::from_secs),
        in_flight: repository_table.in_flight.unwrap_or(RepositorySettings::IN_FLIGHT),
        cached_answers: repository_table.cached_answers.unwrap_or(RepositorySettings::CACHED_ANSWERS),
        ..RepositorySettings::new(api, url)
    })
}

/// Reads user name and password; either both are given or neither.
fn credentials(table: &Setting, environment: &[(OsString, OsString)]) -> Result<Option<Credentials>, ConfigError> {
    let (username, password) = (table.entry("username")?, table.entry("password")?);
    match (username.is_given(), password.is_given()) {
        (false, false) => Ok(None),
        (true, false) => Err(password.missing()),
        (false, true) => Err(username.missing()),
        (true, true) => {
            let read = |setting: &Setting| match secret::text(setting, environment)? {
                text if text.is_empty() => Err(setting.invalid("it is empty")),
                text => Ok(text),
            };
            let name = read(&username)?;
            // RFC 7617, section 2: the user name ends at the first colon.
            if name.contains(':') {
                return Err(username.invalid("it contains a colon, which basic authentication does not allow"));
            }
            Ok(Some(Credentials { username: Secret::new(name), password: Secret::new(read(&password)?) }))
        }
    }
}
