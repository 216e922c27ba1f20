//! `lookup` and `[sources.NAME.repository]`: what a source's repository is asked, and where it is.

use std::{ffi::OsString, time::Duration};

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    error::ConfigError,
    queue::authority,
    secret,
    setting::{Setting, whole},
    source::named,
};
use crate::{
    format::{DialectKind, RepositoryApi, dialects_with_repository},
    lookup::{BaseUrl, Credentials, Mode, RepositorySettings},
    web::Secret,
};

/// What may stand in `[sources.NAME.repository]`; who asks is read by itself, since it may be elsewhere.
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
    #[serde(default, deserialize_with = "seconds")]
    timeout_seconds: Option<u64>,
    #[serde(default, deserialize_with = "in_flight")]
    in_flight: Option<usize>,
    #[serde(default, deserialize_with = "cached")]
    cached_answers: Option<usize>,
}

/// 1 to 300 seconds.
fn seconds<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<u64>, D::Error> {
    whole::<1, 300, u64, D>(setting).map(Some)
}

/// 1 to 1024 requests.
fn in_flight<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<usize>, D::Error> {
    whole::<1, 1024, usize, D>(setting).map(Some)
}

/// 0 to 100 000 answers.
fn cached<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<usize>, D::Error> {
    whole::<0, 100_000, usize, D>(setting).map(Some)
}

/// Reads how the repository of a source of this dialect is asked. One may be there that is not asked.
pub(super) fn read(
    told: Option<&RepositoryTable>,
    (dialect, settings): (&DialectKind, &serde_json::Value),
    source: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<(Mode, Option<RepositorySettings>), ConfigError> {
    let mode = named(source, "lookup", "way to look up", &Mode::ALL, Mode::name)?.unwrap_or_default();
    let table = source.entry("repository")?;
    let api = dialect.repository.map(|repository| repository.api);
    match (mode, told, api) {
        (Mode::Off, None, _) => Ok((mode, None)),
        (_, Some(told), Some(api)) => Ok((mode, Some(repository(told, api, settings, &table, environment)?))),
        (_, None, Some(_)) => {
            let reason = "there is no repository to ask; give its url in the table `repository` of this source";
            Err(source.entry("lookup")?.invalid(reason))
        }
        (mode, _, None) => {
            let reason = format!(
                "what sends the dialect {:?} cannot be asked; {} can: leave it out",
                dialect.name,
                dialects_with_repository(|_| true)
            );
            let of = if mode == Mode::Off { table } else { source.entry("lookup")? };
            Err(of.invalid(reason))
        }
    }
}

fn repository(
    told: &RepositoryTable,
    api: RepositoryApi,
    settings: &serde_json::Value,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<RepositorySettings, ConfigError> {
    let base = |text: &str, key| match BaseUrl::parse(text) {
        Ok(base) => Ok(base),
        Err(error) => Err(table.entry(key)?.invalid(error.to_string())),
    };
    let url = base(&told.url, "url")?;
    let mut public_urls =
        told.public_urls.iter().map(|text| base(text, "public_urls")).collect::<Result<Vec<_>, _>>()?;
    // What the dialect puts before every identifier is this repository's name as well.
    if let Some(named) = settings.get("base_url").and_then(serde_json::Value::as_str)
        && let Ok(base) = BaseUrl::parse(named)
    {
        public_urls.push(base);
    }
    let is_encrypted = url.as_str().starts_with("https:");
    Ok(RepositorySettings {
        public_urls,
        credentials: credentials(table, environment)?,
        ca: authority(told.ca.clone(), is_encrypted, "https", table)?,
        timeout: told.timeout_seconds.map_or(RepositorySettings::TIMEOUT, Duration::from_secs),
        in_flight: told.in_flight.unwrap_or(RepositorySettings::IN_FLIGHT),
        cached_answers: told.cached_answers.unwrap_or(RepositorySettings::CACHED_ANSWERS),
        ..RepositorySettings::new(api, url)
    })
}

/// Both, or neither.
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
            // RFC 7617: what stands before the first colon is the name.
            if name.contains(':') {
                return Err(username.invalid("it has a colon, which basic authentication cannot carry"));
            }
            Ok(Some(Credentials { username: Secret::new(name), password: Secret::new(read(&password)?) }))
        }
    }
}
