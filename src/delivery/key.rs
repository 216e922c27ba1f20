//! A key of a definition: its name and what it takes, told once for whoever reads a definition and for the
//! description of the HTTP interface.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use utoipa::openapi::{
    ObjectBuilder, RefOr, Schema, Type,
    schema::{AdditionalProperties, ArrayBuilder, OneOfBuilder, SchemaType},
};

use super::{InvalidDefinition, definition::take};

/// A key of a definition.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// Whether a definition must have it.
    pub needed: bool,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Text.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// An address that may hold a secret: as it is, or where it is found.
    Address,
    /// True or false.
    Switch,
    /// A whole number in this range.
    Number {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
        /// The number where a definition leaves the key out.
        default: u64,
    },
    /// A list of tables.
    Tables,
    /// One or two secrets, each as it is, or where it is found.
    Secrets,
    /// A list of statuses of HTTP from 400 to 499.
    Statuses,
}

impl Key {
    /// A key that a definition may leave out.
    #[must_use]
    pub const fn new(name: &'static str, takes: Takes, about: &'static str) -> Self {
        Self { name, about, takes, needed: false }
    }

    /// A key that a definition must have.
    #[must_use]
    pub const fn needed(name: &'static str, takes: Takes, about: &'static str) -> Self {
        Self { name, about, takes, needed: true }
    }

    /// A number that a definition may leave out.
    #[must_use]
    pub const fn number(name: &'static str, range: RangeInclusive<u64>, default: u64, about: &'static str) -> Self {
        Self::new(name, Takes::Number { least: *range.start(), most: *range.end(), default }, about)
    }

    /// Takes the number of this key out of a definition, or the default.
    ///
    /// # Errors
    /// When it is no whole number, or outside the range.
    pub(super) fn take(&self, table: &mut Map<String, Value>) -> Result<usize, InvalidDefinition> {
        let (least, most, default) = match self.takes {
            Takes::Number { least, most, default } => (least, most, default),
            _ => (0, u64::MAX, 0),
        };
        let number: u64 = take(table, self.name)?.unwrap_or(default);
        let in_range = (least..=most).contains(&number).then(|| usize::try_from(number).ok()).flatten();
        let reason = || format!("it is {number}; give a whole number from {least} to {most}");
        in_range.ok_or_else(|| InvalidDefinition::new(self.name, reason()))
    }

    /// What it takes, as JSON Schema.
    #[must_use]
    pub fn schema(&self) -> RefOr<Schema> {
        let of = |of: Type| ObjectBuilder::new().schema_type(SchemaType::Type(of)).description(Some(self.about));
        let number = |number: u64| usize::try_from(number).ok();
        match self.takes {
            Takes::Text => of(Type::String).into(),
            Takes::Words(words) => of(Type::String).enum_values(Some(words.iter().copied())).into(),
            Takes::Switch => of(Type::Boolean).into(),
            Takes::Number { least, most, .. } => of(Type::Integer).minimum(number(least)).maximum(number(most)).into(),
            Takes::Tables => {
                let table = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)));
                ArrayBuilder::new().items(table.build()).description(Some(self.about)).into()
            }
            Takes::Address => as_it_is_or_found().description(Some(self.about)).into(),
            Takes::Secrets => {
                let list = ArrayBuilder::new().items(as_it_is_or_found()).min_items(Some(1)).max_items(Some(2));
                list.description(Some(self.about)).into()
            }
            Takes::Statuses => {
                let status = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
                let status = status.minimum(Some(400)).maximum(Some(499));
                ArrayBuilder::new().items(status).description(Some(self.about)).into()
            }
        }
    }
}

/// What may hold a secret: text, or the variable of the environment that has it.
fn as_it_is_or_found() -> OneOfBuilder {
    let variable = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    let variable = variable.description(Some("The variable of the gateway's environment that holds it."));
    let found = ObjectBuilder::new().property("env", variable).required("env");
    let found = found.additional_properties(Some(AdditionalProperties::FreeForm(false)));
    OneOfBuilder::new().item(ObjectBuilder::new().schema_type(SchemaType::Type(Type::String))).item(found)
}
