//! The layers of the configuration, each as a tree of values that know where they come from.

use std::ffi::OsString;

use config::{Environment, File, FileFormat, Map, Source, Value, ValueKind};

use super::{
    Flags,
    error::{ConfigError, variable},
};

/// One layer: its keys may be paths, as in `server.listen`.
#[derive(Clone, Debug)]
pub(super) struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// A file, or without a path the defaults.
pub(super) fn toml(path: Option<&str>, text: &str) -> Result<Layer, ConfigError> {
    let table = File::from_str(text, FileFormat::Toml).collect().map_err(|error| ConfigError::Syntax {
        path: path.unwrap_or("config/default.toml").to_owned(),
        reason: in_one_line(&error.to_string()),
    })?;
    let path = path.map(ToOwned::to_owned);
    Ok(Layer(table.into_iter().map(|(key, value)| (key, with_origin(value, path.as_ref()))).collect()))
}

/// Of a report that shows the line with a caret under it: the place and the reason.
fn in_one_line(report: &str) -> String {
    let telling = |line: &&str| !line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    let lines: Vec<&str> = report.lines().filter(telling).map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(": ").trim_start_matches("TOML parse error at ").to_owned()
}

fn with_origin(value: Value, path: Option<&String>) -> Value {
    match value.kind {
        ValueKind::Table(table) => {
            let table: Map<String, Value> =
                table.into_iter().map(|(key, value)| (key, with_origin(value, path))).collect();
            Value::new(path, table)
        }
        ValueKind::Array(values) => {
            let values: Vec<Value> = values.into_iter().map(|value| with_origin(value, path)).collect();
            Value::new(path, values)
        }
        kind => Value::new(path, kind),
    }
}

/// The variables of the environment that are settings: every setting stands in a table, so its
/// variable has two underscores somewhere.
///
/// Others that begin with `TIDINGS_` are not ours: Kubernetes sets `TIDINGS_PORT` and more of the
/// kind where a service is called tidings. But one that would be a setting, had it two underscores, or that is the
/// last name of a setting alone, as `TIDINGS_LISTEN`, is an error: its author believes that it counts.
pub(super) fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    defaults: &Layer,
) -> Result<Layer, ConfigError> {
    let mut settings = Map::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("TIDINGS_")) else { continue };
        if name.contains("__") {
            let unreadable = || ConfigError::NotUnicode(format!("the environment variable {name}"));
            settings.insert(name.to_owned(), value.to_str().ok_or_else(unreadable)?.to_owned());
        } else if let Some(meant) = meant_by(name, &defaults.variables()) {
            return Err(ConfigError::Variable { found: name.to_owned(), meant });
        }
    }
    let environment =
        Environment::with_prefix("TIDINGS").prefix_separator("_").separator("__").source(Some(settings)).collect();
    environment.map(Layer).map_err(|error| ConfigError::Merge(error.to_string()))
}

/// The setting that a variable without two underscores was most likely meant for.
fn meant_by(name: &str, settings: &[String]) -> Option<String> {
    let is_meant = |setting: &&String| {
        // Deeper settings have names that a variable for a secret may have as well, as TIDINGS_KEY.
        let last = setting.split_once("__").map(|(_, name)| name).unwrap_or_default();
        let is_slip = strsim::damerau_levenshtein(&setting.replace("__", "_"), name) <= 1;
        is_slip || name.strip_prefix("TIDINGS_") == Some(last)
    };
    settings.iter().find(is_meant).cloned()
}

impl Layer {
    /// Every setting of this layer as a variable of the environment, and those of `server` that have
    /// no default.
    fn variables(&self) -> Vec<String> {
        fn walk(key: &str, value: &Value, found: &mut Vec<String>) {
            match &value.kind {
                ValueKind::Table(table) => {
                    table.iter().for_each(|(name, value)| walk(&format!("{key}.{name}"), value, found));
                }
                _ => found.push(variable(key)),
            }
        }
        let mut found = ["server.public_url", "server.tls.certificate", "server.tls.key"].map(variable).to_vec();
        self.0.iter().for_each(|(key, value)| walk(key, value, &mut found));
        found
    }
}

/// A layer for each flag that is given.
pub(super) fn flags(flags: &Flags) -> Result<Vec<Layer>, ConfigError> {
    let layer = |flag: &str, key: &str, value: ValueKind| {
        Layer(Map::from([(key.to_owned(), Value::new(Some(&flag.to_owned()), value))]))
    };
    let mut layers = Vec::new();
    if let Some(listen) = flags.listen {
        layers.push(layer("--listen", "server.listen", listen.to_string().into()));
    }
    if let Some(data) = &flags.data {
        let data = data.to_str().ok_or_else(|| ConfigError::NotUnicode("the flag --data".to_owned()))?;
        layers.push(layer("--data", "journal.data", data.into()));
    }
    if flags.insecure {
        layers.push(layer("--insecure", "server.insecure", true.into()));
    }
    Ok(layers)
}
