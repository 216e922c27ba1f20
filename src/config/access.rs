//! `[access]`: reads the tokens and refuses a public gateway without access control.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{ServerConfig, error::ConfigError, setting::Setting};
use crate::{
    model::SourceName,
    suggestion::nearest_name,
    web::{Access, Scope, SecretDigest, Token},
};

/// One table `[access.tokens.NAME]`.
#[derive(Deserialize)]
struct TokenTable {
    #[serde(deserialize_with = "digest")]
    sha256: SecretDigest,
    #[serde(deserialize_with = "scopes")]
    scopes: Vec<Scope>,
    #[serde(default, deserialize_with = "expiry")]
    expires: Option<DateTime<Utc>>,
}

/// Reads the tokens. `sources` contains the names of all configured sources, including disabled ones.
pub(super) fn tokens(access: &Setting, sources: &[String]) -> Result<Vec<Token>, ConfigError> {
    let tokens = access.entry("tokens")?;
    if !tokens.is_given() {
        return Ok(Vec::new());
    }
    tokens.entries()?.into_iter().map(|(name, table)| token(name, &table, sources)).collect()
}

fn token(name: String, table: &Setting, sources: &[String]) -> Result<Token, ConfigError> {
    // Token names have the same syntax as source names, so that each layer of the configuration can contain them.
    SourceName::parse(&name).map_err(|error| table.invalid(error.to_string()))?;
    let TokenTable { sha256: digest, scopes, expires } = table.clone().read()?;
    for scope in &scopes {
        if let Scope::PublishTo(source) = scope
            && !sources.contains(source)
        {
            return Err(table.entry("scopes")?.invalid(no_such_source(sources, source)));
        }
    }
    Ok(Token { name, digest, scopes, expires })
}

fn no_such_source(sources: &[String], source: &str) -> String {
    match nearest_name(source, sources.iter().map(String::as_str)) {
        Some(nearest) => {
            format!("one of the scopes names a source that does not exist; did you mean publish:{nearest}?")
        }
        None => format!("one of the scopes names a source that does not exist; there are {}", sources.join(", ")),
    }
}

/// Refuses a public socket address if there is no access control and `server.insecure` is false.
pub(super) fn refuse_open(server: &ServerConfig, access: &Access) -> Result<(), ConfigError> {
    let on_loopback = server.listen.ip().to_canonical().is_loopback();
    if on_loopback || server.insecure || !access.is_open() {
        Ok(())
    } else {
        Err(ConfigError::NoAccessControl { address: server.listen })
    }
}

/// The error does not repeat the text, because it may be the token itself by mistake.
fn digest<'de, D: Deserializer<'de>>(setting: D) -> Result<SecretDigest, D::Error> {
    let expected = "it is not the 64 hexadecimal digits of a SHA-256; `tidings token` makes a token and prints them";
    SecretDigest::parse(&String::deserialize(setting)?).ok_or_else(|| D::Error::custom(expected))
}

fn scopes<'de, D: Deserializer<'de>>(setting: D) -> Result<Vec<Scope>, D::Error> {
    let texts = Vec::<String>::deserialize(setting)?;
    let scopes = texts.iter().map(|text| Scope::parse(text)).collect::<Option<Vec<_>>>();
    let expected = "one of the scopes is not valid; there are publish:SOURCE, publish:*, read, admin";
    match scopes {
        Some(scopes) if scopes.is_empty() => Err(D::Error::custom("it is empty; give at least one scope")),
        Some(scopes) => Ok(scopes),
        None => Err(D::Error::custom(expected)),
    }
}

fn expiry<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let expected = "it is not a point in time; give one as in 2027-01-01T00:00:00Z";
    let Some(text) = Option::<String>::deserialize(setting)? else { return Ok(None) };
    let time = DateTime::parse_from_rfc3339(&text).map_err(|_| D::Error::custom(expected))?;
    Ok(Some(time.to_utc()))
}
