//! A value of the configuration or of a definition, with its key and its origin.
//!
//! Each value must have the type of its setting. Only environment variables, which are always text, are converted, to the
//! type of the setting.

use std::{fmt, str::FromStr, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Origin, Origins, SettingError, SettingErrors, ValueType};
use crate::suggestion::plain_reason;

/// A value with the path of its key.
#[derive(Clone)]
pub struct Setting {
    key: String,
    value: Value,
    origins: Arc<Origins>,
    /// Whether errors omit the value, because it may be a secret, intended or by mistake.
    is_secret: bool,
}

/// Omits the value, which may be a secret.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Setting").field(&self.key).finish()
    }
}

impl Setting {
    /// Creates the setting that contains the whole configuration.
    #[must_use]
    pub fn root(value: Value, origins: Origins) -> Self {
        Self { key: String::new(), value, origins: Arc::new(origins), is_secret: false }
    }

    /// Creates the setting that contains a definition. Errors contain no value of it.
    #[must_use]
    pub fn definition(value: Value) -> Self {
        Self { is_secret: true, ..Self::root(value, Origins::default()) }
    }

    /// Returns the same setting; errors omit its value.
    #[must_use]
    pub fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Returns the entry `name` of a table; the entry is empty if the table does not contain it.
    ///
    /// # Errors
    /// Fails if this setting is not a table.
    pub fn entry(&self, name: &str) -> Result<Self, SettingError> {
        let Value::Object(table) = &self.value else { return Err(self.type_error("a table")) };
        Ok(self.below(name, table.get(name).cloned().unwrap_or_default()))
    }

    fn below(&self, path: &str, value: Value) -> Self {
        let key = if self.key.is_empty() { path.to_owned() } else { format!("{}.{path}", self.key) };
        self.with(key, value)
    }

    /// Returns another value with the same origins. It does not copy this value, which may be the whole configuration.
    fn with(&self, key: String, value: Value) -> Self {
        Self { key, value, origins: Arc::clone(&self.origins), is_secret: self.is_secret }
    }

    /// Returns the setting at a relative path, as in `filter.changes`, for an error message. An empty path returns this
    /// setting.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        if path.is_empty() { self.clone() } else { self.below(path, Value::Null) }
    }

    /// Reads the setting.
    ///
    /// # Errors
    /// Fails if the value has another type or is out of range.
    pub fn read<T: ValueType>(&self) -> Result<T::Value, SettingErrors> {
        T::read(self)
    }

    /// Reads the entry `name` of a table, if the table contains it.
    ///
    /// # Errors
    /// In the cases of [`Setting::read`].
    pub fn get<T: ValueType>(&self, name: &str) -> Result<Option<T::Value>, SettingErrors> {
        self.entry(name)?.read::<Option<T>>()
    }

    /// Returns the entries of a table, sorted by key.
    ///
    /// # Errors
    /// Fails if this setting is not a table.
    pub fn entries(&self) -> Result<Vec<(String, Self)>, SettingError> {
        let Value::Object(table) = &self.value else { return Err(self.type_error("a table")) };
        let mut entries: Vec<_> =
            table.iter().map(|(name, value)| (name.clone(), self.below(name, value.clone()))).collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }

    /// Returns an error for each key of a table that is not among `known`.
    ///
    /// # Errors
    /// Fails if this setting is not a table.
    pub fn unknown_keys(&self, known: &[&'static str]) -> Result<Vec<SettingError>, SettingError> {
        let unknown = self.entries()?.into_iter().filter(|(name, _)| !known.contains(&name.as_str()));
        let error = |(_, setting): (_, Self)| {
            let origin = setting.origin();
            SettingError::Unknown { key: setting.key, origin, known: known.to_vec() }
        };
        Ok(unknown.map(error).collect())
    }

    /// Returns whether a key is directly in this table.
    pub(super) fn is_table_of(&self, key: &str) -> bool {
        key.rsplit_once('.').map_or("", |(table, _)| table) == self.key
    }

    /// Returns the error for an invalid value.
    #[must_use]
    pub fn invalid(&self, reason: impl Into<String>) -> SettingError {
        SettingError::Invalid { key: self.key.clone(), origin: self.origin(), reason: reason.into() }
    }

    /// Returns the error for a required setting that is missing.
    #[must_use]
    pub fn missing(&self) -> SettingError {
        SettingError::Missing { key: self.key.clone() }
    }

    /// Returns the origin of the value.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origins.of(&self.key)
    }

    fn is_from_environment(&self) -> bool {
        matches!(self.origin(), Origin::Environment(_))
    }

    /// Returns whether the setting has a value.
    #[must_use]
    pub fn is_given(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns the value as it is given.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the names in the path of the key.
    #[must_use]
    pub fn path(&self) -> Vec<&str> {
        self.key.split('.').collect()
    }

    /// Returns whether the value is a table.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.value.is_object()
    }

    /// Returns whether the key is in a table that contains secrets, so that even a value at a wrong place may be one.
    fn is_among_secrets(&self) -> bool {
        let mut names = self.key.split('.').skip(2);
        self.key.starts_with("access.")
            || self.key.starts_with("files.s3.")
            || ["filesets.tokens.", "filesets.wayback.", "filesets.items."].iter().any(|t| self.key.starts_with(t))
            || match names.next() {
                Some("repository") => matches!(names.next(), None | Some("url" | "username" | "password")),
                name => matches!(name, Some("signature" | "url")),
            }
    }

    /// Returns the error for a value of the wrong type. `expected` is what to give.
    #[must_use]
    pub fn type_error(&self, expected: &str) -> SettingError {
        self.invalid(match &self.value {
            // A secret that was meant for another variable must not be repeated either.
            _ if self.is_secret || self.is_among_secrets() || self.is_from_environment() => format!("give {expected}"),
            Value::Null => format!("it is empty; give {expected}"),
            Value::String(text) => format!("it is {text:?}; give {expected}"),
            Value::Object(_) => format!("it is a table; give {expected}"),
            Value::Array(_) => format!("it is a list; give {expected}"),
            scalar => format!("it is {scalar}; give {expected}"),
        })
    }

    /// Parses the text of an environment variable as `T`; `None` for values of other origins.
    fn parsed<T: FromStr>(&self) -> Option<T> {
        match &self.value {
            Value::String(text) if self.is_from_environment() => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns the value as a boolean.
    pub(super) fn boolean(&self) -> Result<bool, SettingError> {
        self.value.as_bool().or_else(|| self.parsed()).ok_or_else(|| self.type_error("true or false"))
    }

    /// Returns the value as a whole number. `expected` is what to give otherwise.
    pub(super) fn whole_number(&self, expected: &str) -> Result<u64, SettingError> {
        self.value.as_u64().or_else(|| self.parsed()).ok_or_else(|| self.type_error(expected))
    }

    /// Returns the value as a text. `expected` is what to give otherwise.
    pub(super) fn text(&self, expected: &str) -> Result<String, SettingError> {
        let text = self.value.as_str().map(ToOwned::to_owned);
        text.ok_or_else(|| self.type_error(expected))
    }

    /// Returns the elements of a list. An environment variable separates them with commas.
    ///
    /// # Errors
    /// Fails if the value is no list.
    pub fn elements(&self) -> Result<Vec<Self>, SettingError> {
        let element = |value| self.with(self.key.clone(), value);
        match &self.value {
            Value::Array(values) => Ok(values.iter().cloned().map(element).collect()),
            Value::String(text) if self.is_from_environment() => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(parts.map(|part| element(part.into())).collect())
            }
            _ => Err(self.type_error("a list")),
        }
    }

    /// Returns the value as JSON. Texts from environment variables become booleans and numbers if they look like some,
    /// because only the dialect or the delivery that reads the value knows its types.
    #[must_use]
    pub fn json(&self) -> Value {
        if let Value::Object(table) = &self.value {
            let value = |(name, value): (&String, &Value)| (name.clone(), self.below(name, value.clone()).json());
            return table.iter().map(value).collect();
        }
        let boolean = || self.parsed::<bool>().map(Value::from);
        boolean().or_else(|| self.parsed::<i64>().map(Value::from)).unwrap_or_else(|| self.value.clone())
    }

    /// Reads a value with a structure of its own. Errors name the path in it.
    ///
    /// # Errors
    /// Fails if the value does not have the structure.
    pub fn structure<T: DeserializeOwned>(&self) -> Result<T, SettingError> {
        serde_path_to_error::deserialize(self.json()).map_err(|error| {
            let reason = plain_reason(&error.inner().to_string());
            match error.path().to_string() {
                path if path == "." => self.invalid(reason),
                path if path.starts_with('[') => self.with(format!("{}{path}", self.key), Value::Null).invalid(reason),
                path => self.at(&path).invalid(reason),
            }
        })
    }
}
