//! Definitions of harvests that arrive over HTTP: the settings of a source, with fewer rights than the configuration.
//!
//! A definition is stored in the journal, so it may contain no secret. It may name no file, and only environment
//! variables with a reserved prefix. The place must be on the public internet, or in `delivery.allow`.

use std::ffi::OsString;

use utoipa::{
    PartialSchema,
    openapi::{Schema, schema::OneOfBuilder},
};

use super::{
    error::{ConfigError, ConfigErrors},
    secret,
    source::{self, SourceConfig},
    transports::TRANSPORTS,
};
use crate::{
    format::DIALECTS,
    harvest::InvalidHarvest,
    http_client::{OutboundPolicy, OutboundUrl},
    model::SourceName,
    settings::{Origins, Setting, SettingError, object_schema, string_schema},
    suggestion::unknown_name,
};

/// Transports of such harvests. Others read from brokers, from files or from the journal.
const HARVESTED: [&str; 3] = ["oai-pmh", "feed", "gateway"];

/// Settings that only the configuration file may have, because they name files, send requests to other places, or
/// switch the source off.
const FILE_ONLY: [&str; 7] = ["ca", "audit_every", "lookup", "repository", "enabled", "harvest", "allow"];

/// Settings that may contain a secret.
const MAY_BE_SECRET: [&str; 2] = ["url", "token"];

/// Prefix of environment variables that definitions may name.
const VARIABLE_PREFIX: &str = "TIDINGS_SECRET_";

/// Reads the definition of a harvest. `policy` restricts its place.
///
/// # Errors
/// Fails if a setting is unknown, missing, wrong, or not allowed here. Errors never contain a URL.
pub fn read_harvest(
    name: &SourceName,
    definition: &serde_json::Value,
    policy: &OutboundPolicy,
) -> Result<SourceConfig, InvalidHarvest> {
    let table = definition.as_object().ok_or_else(|| InvalidHarvest::new("", "give an object with the settings"))?;
    let Some(transport) = table.get("transport").and_then(serde_json::Value::as_str) else {
        return Err(InvalidHarvest::new("transport", format!("it is missing; give one of {}", HARVESTED.join(", "))));
    };
    if !HARVESTED.contains(&transport) {
        return Err(InvalidHarvest::new("transport", unknown_name("transport of a harvest", transport, &HARVESTED)));
    }
    if let Some(key) = FILE_ONLY.into_iter().find(|key| table.contains_key(*key)) {
        let reason = "only the configuration file may have this setting; define the source there";
        return Err(InvalidHarvest::new(key, reason));
    }
    for key in MAY_BE_SECRET {
        table.get(key).map_or(Ok(()), |value| check_secret(key, value))?;
    }
    let prefix = format!("sources.{name}");
    let invalid = |errors: ConfigErrors| in_definition(errors, &prefix);
    let sources = serde_json::json!({ "sources": { name.as_str(): definition } });
    let setting = Setting::root(sources, Origins::default());
    let setting = setting.entry("sources").and_then(|sources| sources.entry(name.as_str()));
    let setting = setting.map_err(|error| invalid(error.into()))?;
    let environment: Vec<_> = std::env::vars_os().filter(is_nameable).collect();
    let read = source::read(name.as_str(), &setting, &environment, DIALECTS).map_err(invalid)?;
    let (_, source) = read.ok_or_else(|| InvalidHarvest::new("enabled", "the harvest is switched off"))?;
    let url = setting.entry("url").map_err(ConfigErrors::from);
    let url = url.and_then(|url| Ok(secret::text(&url, &environment)?)).map_err(invalid)?;
    OutboundUrl::parse(&url, policy).map_err(|error| InvalidHarvest::new("url", error.to_string()))?;
    Ok(source)
}

/// Returns the JSON schema of a definition with its name: one for each transport, because their settings differ.
#[must_use]
pub fn harvest_schema() -> Schema {
    let kinds = TRANSPORTS.iter().filter(|kind| HARVESTED.contains(&kind.name));
    let shapes = kinds.fold(OneOfBuilder::new(), |shapes, kind| {
        let keys = source::COMMON.iter().chain(kind.keys()).filter(|key| !FILE_ONLY.contains(&key.name));
        let shape = object_schema(keys).title(Some(kind.name));
        let shape = shape.property("name", SourceName::schema()).required("name");
        let transport = string_schema(&[kind.name]).description(Some("Kind of harvest."));
        shapes.item(shape.property("transport", transport))
    });
    shapes.description(Some("A harvest: its name, and the keys of `[sources.NAME]` in the configuration file.")).into()
}

fn is_nameable((name, _): &(OsString, OsString)) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(VARIABLE_PREFIX))
}

/// Refuses a value that would put a secret into the journal, or names anything but an allowed variable.
fn check_secret(key: &str, value: &serde_json::Value) -> Result<(), InvalidHarvest> {
    let advice = format!("give {{\"env\": \"{VARIABLE_PREFIX}…\"}}, or define the source in the configuration file");
    let reason = match value {
        serde_json::Value::String(text) => {
            let has_user =
                || url::Url::parse(text).is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
            match key {
                "url" if !has_user() => return Ok(()),
                "url" => "it has a user or password, which would be stored",
                _ => "it would be stored in the journal",
            }
        }
        serde_json::Value::Object(reference) => {
            let variable = reference.get("env").and_then(serde_json::Value::as_str).unwrap_or_default();
            if reference.len() == 1 && variable.starts_with(VARIABLE_PREFIX) {
                return Ok(());
            }
            "only environment variables with a reserved prefix may be named here"
        }
        _ => "it is not a text",
    };
    Err(InvalidHarvest::new(key, format!("{reason}; {advice}")))
}

/// Returns the first error of the configuration as an error in a definition, whose keys have no table in front.
fn in_definition(errors: ConfigErrors, prefix: &str) -> InvalidHarvest {
    let own = |key: &str| key.strip_prefix(prefix).map_or(key, |key| key.trim_start_matches('.')).to_owned();
    match errors.into_first() {
        Some(ConfigError::Setting(error)) => {
            let key = own(error.key());
            let reason = match error {
                SettingError::Invalid { reason, .. } => reason,
                SettingError::Missing { .. } => "it is missing; add it".to_owned(),
                SettingError::Unknown { known, .. } => unknown_name("setting", &key, &known),
            };
            InvalidHarvest::new(key, reason)
        }
        Some(ConfigError::DialectSettings { reason, .. }) => InvalidHarvest::new("settings", reason),
        other => InvalidHarvest::new("", other.map_or_else(String::new, |error| error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{OutboundPolicy, SourceName, read_harvest};
    use crate::http_client::AllowList;

    fn read(definition: &Value) -> Result<String, String> {
        let policy = OutboundPolicy::public_files(AllowList::parse(&["10.1.0.0/16"]).unwrap());
        let read = read_harvest(&SourceName::parse("upm").unwrap(), definition, &policy);
        read.map(|source| source.transport.name.to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_those_of_a_source() {
        let mut definition = json!({
            "transport": "oai-pmh", "dialect": "oai-pmh", "url": "http://repository.example.org/oai", "every": "1h",
            "sets": ["a:b"], "settings": { "files": ".*[.]pdf" }, "metadata_changes": true
        });
        assert_eq!(read(&definition), Ok("oai-pmh".to_owned()));
        definition["url"] = json!("http://10.1.2.3/oai");
        assert_eq!(read(&definition), Ok("oai-pmh".to_owned()));
    }

    #[test]
    fn wrong_definitions_are_refused_without_their_secrets() {
        let with = |key: &str, value: Value| {
            let mut definition =
                json!({ "transport": "gateway", "dialect": "gateway", "url": "https://gateway.example.org" });
            definition[key] = value;
            definition
        };
        for (definition, expected) in [
            (json!([]), ": give an object"),
            (json!({}), "transport: it is missing; give one of oai-pmh, feed, gateway"),
            (with("transport", json!("download")), "transport: there is no transport of a harvest \"download\""),
            (with("transport", json!("folder")), "transport: there is no transport of a harvest \"folder\""),
            (with("transport", json!("feed")), "dialect: the transport feed harvests records of the dialect \"feed\""),
            (with("url", json!(null)), "url: it is not a text"),
            (with("url", json!("https://user:hush@gateway.example.org")), "url: it has a user or password"),
            (with("url", json!("hush")), "url: it is not a URL"),
            (with("url", json!({ "file": "/etc/passwd" })), "url: only environment variables"),
            (with("url", json!({ "env": "HOME" })), "url: only environment variables"),
            (with("url", json!({ "env": "TIDINGS_SECRET_UNSET" })), "url: "),
            (with("url", json!("http://127.0.0.1/")), "url: it leads to 127.0.0.1"),
            (with("url", json!("http://169.254.169.254/")), "url: it leads to 169.254.169.254"),
            (with("url", json!("http://10.2.0.1/")), "url: it leads to 10.2.0.1"),
            (with("token", json!("hush-hush-hush-hush")), "token: it would be stored in the journal"),
            (with("ca", json!("/etc/passwd")), "ca: only the configuration file"),
            (with("lookup", json!("required")), "lookup: only the configuration file"),
            (with("every", json!("never")), "every: "),
            (with("evry", json!("1h")), "evry: there is no setting \"evry\"; did you mean"),
            (with("settings", json!({ "x": 1 })), "settings: "),
        ] {
            let error = read(&definition).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains("hush"), "{definition}: {error}");
        }
    }
}
