//! Layers of the configuration, which are merged into one tree of values with their origins.

use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, path::PathBuf};

use serde_json::{Map, Number, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::error::{ConfigError, ConfigErrors};
use crate::settings::{Origin, Origins, Setting};

/// Text of `config/default.toml`: every setting with its default and its meaning.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

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

/// The layers that have been merged so far.
#[derive(Default)]
pub(super) struct Layers {
    values: Map<String, Value>,
    origins: Origins,
}

impl Layers {
    /// Merges the TOML of a file; without a path, the TOML of the defaults.
    pub(super) fn merge_toml(&mut self, path: Option<&str>, text: &str) -> Result<(), ConfigErrors> {
        let syntax = |offset: usize, reason: &str| {
            let before = text.get(..offset).unwrap_or(text);
            let (line, column) =
                (line_of(text, offset), before.rsplit('\n').next().unwrap_or_default().chars().count());
            let path = path.unwrap_or("config/default.toml").to_owned();
            ConfigError::Syntax { path, reason: format!("line {line}, column {}: {reason}", column + 1) }
        };
        let parsed = DeTable::parse(text).map_err(|error| {
            let mut reason = error.message().lines().map(str::trim).collect::<Vec<_>>().join(": ");
            let span = error.span().unwrap_or_default();
            if reason == "duplicate key" {
                let name = text.get(span.clone()).unwrap_or_default().trim();
                reason = format!("{name:?} is given twice; join the two tables or settings");
            }
            syntax(span.start, &reason)
        })?;
        let origin = |offset| match path {
            Some(path) => Origin::File { path: path.to_owned(), line: line_of(text, offset) },
            None => Origin::Defaults,
        };
        for (name, value) in parsed.get_ref() {
            let (at, name) = (name.span().start, name.get_ref().as_ref());
            let json = json(value).map_err(|offset| syntax(offset, "the number has more than 64 bits"))?;
            self.merge(name, json);
            let mut note = |key: &str, offset| self.origins.set(key, origin(offset));
            each_key(name, at, value.get_ref(), &mut note);
        }
        Ok(())
    }

    fn merge(&mut self, name: &str, value: Value) {
        merge(self.values.entry(name).or_insert_with(Value::default), value);
    }

    /// Merges one value at the path of its key.
    fn set(&mut self, key: &str, value: Value, origin: Origin) {
        let (table, rest) = key.split_once('.').unwrap_or((key, ""));
        let nested = rest.rsplit('.').filter(|name| !name.is_empty());
        let value = nested.fold(value, |value, name| Value::Object(Map::from_iter([(name.to_owned(), value)])));
        self.merge(table, value);
        self.origins.set(key, origin);
    }

    /// Merges the environment variables. Every setting is in a table, so its variable contains two underscores.
    ///
    /// Other variables that begin with `TIDINGS_` are ignored, because Kubernetes sets `TIDINGS_PORT` and similar ones
    /// for a service named tidings. A variable is an error if it differs from a setting only by a missing underscore or a
    /// slip, or is the last name of a setting, as in `TIDINGS_LISTEN`: the user expects it to have an effect.
    pub(super) fn merge_environment(
        &mut self,
        environment: &[(OsString, OsString)],
        settings: &[String],
    ) -> Result<(), ConfigErrors> {
        let mut variables = BTreeMap::new();
        for (name, value) in environment {
            let Some(name) = name.to_str().filter(|name| name.starts_with("TIDINGS_")) else { continue };
            if name.contains("__") {
                let unreadable = || ConfigError::NotUnicode(format!("the environment variable {name}"));
                variables.insert(name, value.to_str().ok_or_else(unreadable)?);
            } else if let Some(nearest) = intended_setting(name, settings) {
                return Err(ConfigError::MisspelledVariable { variable: name.to_owned(), nearest }.into());
            }
        }
        for (name, value) in variables {
            let name = name["TIDINGS_".len()..].to_lowercase();
            let key = name.split("__").filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
            let origin = Origin::Environment(variable(&key));
            self.set(&key, value.into(), origin);
        }
        Ok(())
    }

    /// Merges the given flags.
    pub(super) fn merge_flags(&mut self, flags: &Flags) -> Result<(), ConfigErrors> {
        if let Some(listen) = flags.listen {
            self.set("server.listen", listen.to_string().into(), Origin::Flag("--listen"));
        }
        if let Some(data) = &flags.data {
            let data = data.to_str().ok_or_else(|| ConfigError::NotUnicode("the flag --data".to_owned()))?;
            self.set("journal.data", data.into(), Origin::Flag("--data"));
        }
        if flags.insecure {
            self.set("server.insecure", true.into(), Origin::Flag("--insecure"));
        }
        Ok(())
    }

    /// Returns the environment variables of all settings, and of the settings of `server` without a default.
    pub(super) fn variables(&self) -> Vec<String> {
        fn collect(key: &str, value: &Value, variables: &mut Vec<String>) {
            match value {
                Value::Object(table) => {
                    table.iter().for_each(|(name, value)| collect(&format!("{key}.{name}"), value, variables));
                }
                _ => variables.push(variable(key)),
            }
        }
        let mut variables = ["server.public_url", "server.tls.certificate", "server.tls.key"].map(variable).to_vec();
        self.values.iter().for_each(|(key, value)| collect(key, value, &mut variables));
        variables
    }

    /// Returns the merged configuration.
    pub(super) fn into_setting(self) -> Setting {
        Setting::root(Value::Object(self.values), self.origins)
    }
}

/// Merges a value into another: tables by their keys, other values replace what was there.
fn merge(into: &mut Value, value: Value) {
    match (into, value) {
        (Value::Object(into), Value::Object(table)) => {
            table.into_iter().for_each(|(name, value)| merge(into.entry(name).or_insert_with(Value::default), value));
        }
        (into, value) => *into = value,
    }
}

/// Converts a TOML value to JSON. Times become texts.
///
/// # Errors
/// Fails with the offset of a number that has more than 64 bits.
fn json(value: &Spanned<DeValue<'_>>) -> Result<Value, usize> {
    let at = value.span().start;
    Ok(match value.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| at)?.into(),
        // JSON has neither infinity nor NaN, and no setting can be one of them.
        DeValue::Float(number) => match number.as_str().parse().ok().and_then(Number::from_f64) {
            Some(number) => number.into(),
            None => number.as_str().into(),
        },
        DeValue::Array(values) => values.iter().map(json).collect::<Result<_, _>>()?,
        DeValue::Table(table) => {
            let entries = table.iter().map(|(name, value)| Ok((name.get_ref().to_string(), json(value)?)));
            Value::Object(entries.collect::<Result<_, usize>>()?)
        }
    })
}

/// Calls `note` with the path of each value that is no table, and with the offset of its key.
fn each_key(key: &str, at: usize, value: &DeValue<'_>, note: &mut impl FnMut(&str, usize)) {
    match value {
        DeValue::Table(table) if !table.is_empty() => {
            for (name, value) in table {
                each_key(&format!("{key}.{}", name.get_ref()), name.span().start, value.get_ref(), note);
            }
        }
        _ => note(key, at),
    }
}

/// Returns the number of the line with this offset.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns the environment variable for the setting with this path.
fn variable(key: &str) -> String {
    format!("TIDINGS_{}", key.replace('.', "__").to_uppercase())
}

/// Returns the variable of the setting that a variable without two underscores was probably meant for.
fn intended_setting(name: &str, settings: &[String]) -> Option<String> {
    let matches_variable = |setting: &&String| {
        // Settings of nested tables are excluded, because a variable for a secret may have the same name, as in
        // TIDINGS_KEY.
        let last = setting.split_once("__").map(|(_, name)| name).unwrap_or_default();
        let is_slip = strsim::damerau_levenshtein(&setting.replace("__", "_"), name) <= 1;
        is_slip || name.strip_prefix("TIDINGS_") == Some(last)
    };
    settings.iter().find(matches_variable).cloned()
}
