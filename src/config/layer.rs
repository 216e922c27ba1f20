//! Layers of the configuration, each a tree of values with their origins.

use std::ffi::OsString;

use config::{Environment, File, FileFormat, Map, Source, Value, ValueKind};

use super::{
    Flags,
    error::{ConfigError, variable},
};

/// One layer. Its keys may be paths, as in `server.listen`.
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

/// Parses the TOML of a file as a layer; without a path, the TOML of the defaults.
pub(super) fn toml(path: Option<&str>, text: &str) -> Result<Layer, ConfigError> {
    let table = File::from_str(text, FileFormat::Toml).collect().map_err(|error| ConfigError::Syntax {
        path: path.unwrap_or("config/default.toml").to_owned(),
        reason: in_one_line(&error.to_string()),
    })?;
    let path = path.map(ToOwned::to_owned);
    Ok(Layer(table.into_iter().map(|(key, value)| (key, with_origin(value, path.as_ref()))).collect()))
}

/// Extracts the location and the reason from a multi-line report that shows the line with a caret below it.
fn in_one_line(report: &str) -> String {
    let is_reason = |line: &&str| !line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    let lines: Vec<&str> = report.lines().filter(is_reason).map(str::trim).filter(|line| !line.is_empty()).collect();
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

/// Builds the layer of the environment variables. Every setting is in a table, so its variable contains two
/// underscores.
///
/// Other variables that begin with `TIDINGS_` are ignored, because Kubernetes sets `TIDINGS_PORT` and similar ones
/// for a service named tidings. A variable is an error if it differs from a setting only by a missing underscore or a
/// slip, or is the last name of a setting, as in `TIDINGS_LISTEN`: the user expects it to have an effect.
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
        } else if let Some(nearest) = intended_setting(name, &defaults.variables()) {
            return Err(ConfigError::MisspelledVariable { variable: name.to_owned(), nearest });
        }
    }
    let environment =
        Environment::with_prefix("TIDINGS").prefix_separator("_").separator("__").source(Some(settings)).collect();
    environment.map(Layer).map_err(|error| ConfigError::Merge(error.to_string()))
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

impl Layer {
    /// Returns the environment variables of all settings in this layer, and of the settings of `server` without a
    /// default.
    fn variables(&self) -> Vec<String> {
        fn collect(key: &str, value: &Value, variables: &mut Vec<String>) {
            match &value.kind {
                ValueKind::Table(table) => {
                    table.iter().for_each(|(name, value)| collect(&format!("{key}.{name}"), value, variables));
                }
                _ => variables.push(variable(key)),
            }
        }
        let mut variables = ["server.public_url", "server.tls.certificate", "server.tls.key"].map(variable).to_vec();
        self.0.iter().for_each(|(key, value)| collect(key, value, &mut variables));
        variables
    }
}

/// Builds a layer for each given flag.
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
