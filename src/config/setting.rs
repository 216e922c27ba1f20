//! Strict deserializer from the merged layers to the typed configuration.
//!
//! The `config` crate merges the layers and records the origin of each value. Its own deserializer is not used,
//! because it converts `true` to 1 and 1.7 to 2 and ignores unknown keys. Here each value must have the type of its
//! setting. Only environment variables, which are always text, are converted, to the type of the setting.

use std::{collections::HashSet, fmt, str::FromStr};

use config::{Value, ValueKind};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::error::{ConfigError, Origin, variable};

/// Origin that `config::Environment` gives to its values.
const ENVIRONMENT: &str = "the environment";

/// Value of the merged layers, with the path of its key.
#[derive(Clone)]
pub(super) struct Setting {
    key: String,
    value: Value,
}

impl Setting {
    /// Creates the setting that contains the whole configuration.
    pub(super) fn root(value: Value) -> Self {
        Self { key: String::new(), value }
    }

    /// Returns the entry `name` of a table; the entry is empty if the table does not contain it.
    ///
    /// # Errors
    /// Fails if this setting is not a table.
    pub(super) fn entry(&self, name: &str) -> Result<Self, ConfigError> {
        let ValueKind::Table(table) = &self.value.kind else { return Err(self.type_error("a table").0) };
        Ok(Self { key: join(&self.key, name), value: table.get(name).cloned().unwrap_or_default() })
    }

    /// Returns the setting at a relative path, as in `filter.changes`, for an error message. An empty path returns this
    /// setting.
    pub(super) fn at(&self, path: &str) -> Self {
        if path.is_empty() {
            return self.clone();
        }
        let below = path.split('.').try_fold(self.clone(), |setting, name| setting.entry(name));
        match below {
            Ok(below) if below.is_given() => below,
            // An element of a list, or missing: it has the path, and the origin of this setting.
            _ => Self { key: join(&self.key, path), value: self.value.clone() },
        }
    }

    /// Deserializes the setting as `T`.
    ///
    /// # Errors
    /// Fails if a key is unknown or missing, or a value has the wrong type.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, ConfigError> {
        let Setting { key, value } = self;
        let origin = origin(&key, &value);
        T::deserialize(Setting { key: key.clone(), value }).map_err(|error| error.at(&key, &origin).0)
    }

    /// Deserializes the entry `name` of a table, if the table contains it.
    ///
    /// # Errors
    /// In the cases of [`Setting::read`].
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ConfigError> {
        self.entry(name)?.read()
    }

    /// Deserializes a table as `T`, without its entries `others`, which are read separately.
    ///
    /// # Errors
    /// In the cases of [`Setting::read`].
    pub(super) fn read_without<T: DeserializeOwned>(&self, others: &[&str]) -> Result<T, ConfigError> {
        let mut rest = self.clone();
        if let ValueKind::Table(table) = &mut rest.value.kind {
            table.retain(|name, _| !others.contains(&name.as_str()));
        }
        rest.read().map_err(|error| match error {
            ConfigError::UnknownKey { key, origin, mut known } if self.is_table_of(&key) => {
                known.extend(others.iter().map(|name| (*name).to_owned()));
                let mut seen = HashSet::new();
                known.retain(|name| seen.insert(name.clone()));
                ConfigError::UnknownKey { key, origin, known }
            }
            other => other,
        })
    }

    fn is_table_of(&self, key: &str) -> bool {
        key.rsplit_once('.').is_some_and(|(table, _)| table == self.key)
    }

    /// Returns the entries of a table, sorted by key.
    ///
    /// # Errors
    /// Fails if this setting is not a table.
    pub(super) fn entries(&self) -> Result<Vec<(String, Setting)>, ConfigError> {
        let ValueKind::Table(table) = &self.value.kind else { return Err(self.type_error("a table").0) };
        let mut names: Vec<&String> = table.keys().collect();
        names.sort();
        names.into_iter().map(|name| Ok((name.clone(), self.entry(name)?))).collect()
    }

    /// Returns the error for an invalid value.
    pub(super) fn invalid(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { key: self.key.clone(), origin: self.origin(), reason: reason.into() }
    }

    /// Returns the error for a required setting that is missing.
    pub(super) fn missing(&self) -> ConfigError {
        ConfigError::Missing { key: self.key.clone() }
    }

    /// Returns the origin of the value.
    pub(super) fn origin(&self) -> Origin {
        origin(&self.key, &self.value)
    }

    fn is_from_environment(&self) -> bool {
        self.value.origin() == Some(ENVIRONMENT)
    }

    /// Returns whether the setting has a value.
    pub(super) fn is_given(&self) -> bool {
        !matches!(self.value.kind, ValueKind::Nil)
    }

    /// Returns whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.value.kind, ValueKind::Table(_))
    }

    /// Returns whether the value may be a secret, intended or by mistake. Error messages omit such values.
    fn may_be_secret(&self) -> bool {
        let mut names = self.key.split('.').skip(2);
        self.key.starts_with("access.")
            || self.key.starts_with("files.s3.")
            || ["filesets.tokens.", "filesets.wayback.", "filesets.items."].iter().any(|t| self.key.starts_with(t))
            || match names.next() {
                Some("repository") => matches!(names.next(), None | Some("url" | "username" | "password")),
                name => matches!(name, Some("signature" | "url")),
            }
    }

    fn type_error(&self, expected: &str) -> SettingError {
        let reason = match &self.value.kind {
            // A secret that was meant for another variable must not be repeated either.
            _ if self.may_be_secret() || self.is_from_environment() => format!("give {expected}"),
            ValueKind::Nil => format!("it is empty; give {expected}"),
            ValueKind::String(text) => format!("it is {text:?}; give {expected}"),
            ValueKind::Table(_) => format!("it is a table; give {expected}"),
            ValueKind::Array(_) => format!("it is a list; give {expected}"),
            scalar => format!("it is {scalar}; give {expected}"),
        };
        SettingError(self.invalid(reason))
    }

    /// Parses the text of an environment variable as `T`; `None` for values of other layers.
    fn parsed<T: FromStr>(&self) -> Option<T> {
        match &self.value.kind {
            ValueKind::String(text) if self.is_from_environment() => text.trim().parse().ok(),
            _ => None,
        }
    }

    fn whole_number(&self) -> Result<u64, SettingError> {
        let number = match self.value.kind {
            ValueKind::I64(number) => u64::try_from(number).ok(),
            ValueKind::U64(number) => Some(number),
            _ => self.parsed(),
        };
        number.ok_or_else(|| self.type_error("a whole number"))
    }

    fn text(self) -> Result<String, SettingError> {
        match self.value.kind {
            ValueKind::String(text) => Ok(text),
            _ => Err(self.type_error("text in quotation marks")),
        }
    }
}

fn join(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

/// Returns the origin of a value; for a table, the origin of its first value.
fn origin(key: &str, value: &Value) -> Origin {
    match (value.origin(), &value.kind) {
        (Some(ENVIRONMENT), _) => Origin::Environment(variable(key)),
        (Some("--listen"), _) => Origin::Flag("--listen"),
        (Some("--data"), _) => Origin::Flag("--data"),
        (Some("--insecure"), _) => Origin::Flag("--insecure"),
        (Some(path), _) => Origin::File(path.to_owned()),
        (None, ValueKind::Table(table)) => {
            table.iter().min_by_key(|(name, _)| *name).map_or(Origin::Defaults, |(name, v)| origin(&join(key, name), v))
        }
        (None, _) => Origin::Defaults,
    }
}

/// A [`ConfigError`] whose key may not be known yet.
#[derive(Debug)]
pub(super) struct SettingError(ConfigError);

impl SettingError {
    fn at(self, key: &str, place: &Origin) -> Self {
        Self(match self.0 {
            ConfigError::Invalid { key: unknown, reason, .. } if unknown.is_empty() => {
                ConfigError::Invalid { key: key.to_owned(), origin: place.clone(), reason }
            }
            located => located,
        })
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SettingError {}

impl serde::de::Error for SettingError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let (key, origin) = (String::new(), Origin::Defaults);
        Self(ConfigError::Invalid { key, origin, reason: message.to_string() })
    }

    fn missing_field(field: &'static str) -> Self {
        Self(ConfigError::Missing { key: field.to_owned() })
    }
}

impl<'de> Deserializer<'de> for Setting {
    type Error = SettingError;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingError> {
        let table = self.key.clone();
        for (name, setting) in self.entries().map_err(SettingError)? {
            if !fields.contains(&name.as_str()) {
                let known = fields.iter().map(|field| (*field).to_owned()).collect();
                let origin = setting.origin();
                return Err(SettingError(ConfigError::UnknownKey { key: setting.key, origin, known }));
            }
        }
        self.deserialize_map(visitor).map_err(|error| match error.0 {
            ConfigError::Missing { key } if !key.contains('.') => {
                SettingError(ConfigError::Missing { key: join(&table, &key) })
            }
            located => SettingError(located),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        let entries = self.entries().map_err(SettingError)?;
        visitor.visit_map(TableAccess { left: entries.into_iter(), current: None })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        match self.value.kind {
            ValueKind::Boolean(value) => visitor.visit_bool(value),
            _ => visitor.visit_bool(self.parsed().ok_or_else(|| self.type_error("true or false"))?),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        visitor.visit_u64(self.whole_number()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        if matches!(self.value.kind, ValueKind::Nil) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, SettingError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        let from_environment = self.is_from_environment();
        let Setting { key, value } = self;
        match value.kind {
            // An environment variable separates the elements of a list with commas.
            ValueKind::String(text) if from_environment => {
                let origin = ENVIRONMENT.to_owned();
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let values: Vec<Value> = parts.map(|part| Value::new(Some(&origin), part)).collect();
                visitor.visit_seq(ListAccess { key, left: values.into_iter() })
            }
            ValueKind::Array(values) => visitor.visit_seq(ListAccess { key, left: values.into_iter() }),
            _ => Err(Setting { key, value }.type_error("a list")),
        }
    }

    /// Used for the settings of a dialect, whose types only the dialect knows.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        if let Some(value) = self.parsed() {
            return visitor.visit_bool(value);
        }
        if let Some(number) = self.parsed() {
            return visitor.visit_i64(number);
        }
        match self.value.kind {
            ValueKind::Nil => visitor.visit_unit(),
            ValueKind::Boolean(value) => visitor.visit_bool(value),
            ValueKind::I64(number) => visitor.visit_i64(number),
            ValueKind::U64(number) => visitor.visit_u64(number),
            ValueKind::Float(number) => visitor.visit_f64(number),
            ValueKind::String(text) => visitor.visit_string(text),
            ValueKind::Table(_) => self.deserialize_map(visitor),
            ValueKind::Array(_) => self.deserialize_seq(visitor),
            // TOML has no 128-bit numbers.
            ValueKind::I128(_) | ValueKind::U128(_) => Err(self.type_error("a number of at most 64 bits")),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

struct TableAccess {
    left: std::vec::IntoIter<(String, Setting)>,
    current: Option<Setting>,
}

impl<'de> MapAccess<'de> for TableAccess {
    type Error = SettingError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SettingError> {
        let Some((name, setting)) = self.left.next() else { return Ok(None) };
        self.current = Some(setting);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, SettingError> {
        let setting = self.current.take().unwrap_or_else(|| Setting::root(Value::default()));
        let (key, origin) = (setting.key.clone(), setting.origin());
        seed.deserialize(setting).map_err(|error| error.at(&key, &origin))
    }
}

struct ListAccess {
    key: String,
    left: std::vec::IntoIter<Value>,
}

impl<'de> SeqAccess<'de> for ListAccess {
    type Error = SettingError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SettingError> {
        self.left.next().map(|value| seed.deserialize(Setting { key: self.key.clone(), value })).transpose()
    }
}

/// Deserializes a whole number from `MIN` to `MAX`, both included.
///
/// # Errors
/// Fails if the value is not a whole number or is out of range.
pub(super) fn bounded<'de, const MIN: u64, const MAX: u64, N, D>(setting: D) -> Result<N, D::Error>
where
    N: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let number = u64::deserialize(setting)?;
    let in_range = (MIN..=MAX).contains(&number).then(|| N::try_from(number).ok()).flatten();
    in_range.ok_or_else(|| {
        serde::de::Error::custom(format_args!("it is {number}; give a whole number from {MIN} to {MAX}"))
    })
}
