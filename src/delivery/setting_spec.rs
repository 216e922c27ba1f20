//! Specification of a setting: its name, type and description. The parser of definitions and the OpenAPI
//! description share it.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use utoipa::openapi::{
    ObjectBuilder, RefOr, Schema, Type,
    schema::{AdditionalProperties, ArrayBuilder, OneOfBuilder, SchemaType},
};

use super::{InvalidDefinition, definition::remove_key};

/// A setting of a subscription.
#[derive(Clone, Copy, Debug)]
pub struct SettingSpec {
    /// Key in the definition.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Accepted values.
    pub value_type: ValueType,
    /// Whether a definition must contain the setting.
    pub required: bool,
}

/// Type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A string.
    String,
    /// One of these strings.
    Enum(&'static [&'static str]),
    /// A URL that may contain a secret: the URL itself, or a reference to it.
    Url,
    /// A secret: the value itself, or a reference to it.
    Secret,
    /// A boolean.
    Bool,
    /// An integer in this range.
    Integer {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
        /// Value if the definition omits the key.
        default: u64,
    },
    /// A list of tables.
    Tables,
    /// One or two secrets, each given directly or by reference.
    Secrets,
    /// A list of HTTP statuses from 400 to 499.
    Statuses,
}

impl SettingSpec {
    /// Creates an optional setting.
    #[must_use]
    pub const fn new(name: &'static str, value_type: ValueType, about: &'static str) -> Self {
        Self { name, about, value_type, required: false }
    }

    /// Creates a required setting.
    #[must_use]
    pub const fn required(name: &'static str, value_type: ValueType, about: &'static str) -> Self {
        Self { name, about, value_type, required: true }
    }

    /// Creates an optional integer setting.
    #[must_use]
    pub const fn number(name: &'static str, range: RangeInclusive<u64>, default: u64, about: &'static str) -> Self {
        Self::new(name, ValueType::Integer { min: *range.start(), max: *range.end(), default }, about)
    }

    /// Removes this integer setting from a definition and returns its value or the default.
    ///
    /// # Errors
    /// Fails if the value is not an integer or is out of range.
    pub(super) fn remove_integer(&self, table: &mut Map<String, Value>) -> Result<usize, InvalidDefinition> {
        let (min, max, default) = match self.value_type {
            ValueType::Integer { min, max, default } => (min, max, default),
            _ => (0, u64::MAX, 0),
        };
        let number: u64 = remove_key(table, self.name)?.unwrap_or(default);
        let in_range = (min..=max).contains(&number).then(|| usize::try_from(number).ok()).flatten();
        let reason = || format!("it is {number}; give a whole number from {min} to {max}");
        in_range.ok_or_else(|| InvalidDefinition::new(self.name, reason()))
    }

    /// Returns the JSON Schema of the value.
    #[must_use]
    pub fn schema(&self) -> RefOr<Schema> {
        let of = |of: Type| ObjectBuilder::new().schema_type(SchemaType::Type(of)).description(Some(self.about));
        let number = |number: u64| usize::try_from(number).ok();
        match self.value_type {
            ValueType::String => of(Type::String).into(),
            ValueType::Enum(words) => of(Type::String).enum_values(Some(words.iter().copied())).into(),
            ValueType::Bool => of(Type::Boolean).into(),
            ValueType::Integer { min, max, .. } => of(Type::Integer).minimum(number(min)).maximum(number(max)).into(),
            ValueType::Tables => {
                let table = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)));
                ArrayBuilder::new().items(table.build()).description(Some(self.about)).into()
            }
            ValueType::Url | ValueType::Secret => secret_schema().description(Some(self.about)).into(),
            ValueType::Secrets => {
                let list = ArrayBuilder::new().items(secret_schema()).min_items(Some(1)).max_items(Some(2));
                list.description(Some(self.about)).into()
            }
            ValueType::Statuses => {
                let status = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
                let status = status.minimum(Some(400)).maximum(Some(499));
                ArrayBuilder::new().items(status).description(Some(self.about)).into()
            }
        }
    }
}

/// Schema of a value that may be secret: a string, or the name of the environment variable that holds it.
fn secret_schema() -> OneOfBuilder {
    let variable = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    let variable = variable.description(Some("Environment variable of the gateway that contains the value."));
    let reference = ObjectBuilder::new().property("env", variable).required("env");
    let reference = reference.additional_properties(Some(AdditionalProperties::FreeForm(false)));
    OneOfBuilder::new().item(ObjectBuilder::new().schema_type(SchemaType::Type(Type::String))).item(reference)
}
