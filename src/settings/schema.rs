//! JSON schemas of settings, for the description of the HTTP interface.

use utoipa::openapi::{
    ObjectBuilder, Schema, Type,
    schema::{AdditionalProperties, SchemaType},
};

use super::Key;

impl Key {
    /// Returns the JSON schema of the value, with the sentence as its description.
    #[must_use]
    pub fn described_schema(&self) -> Schema {
        let mut schema = (self.schema)();
        let description = match &mut schema {
            Schema::Array(array) => &mut array.description,
            Schema::Object(object) => &mut object.description,
            Schema::OneOf(one) => &mut one.description,
            Schema::AllOf(all) => &mut all.description,
            Schema::AnyOf(any) => &mut any.description,
            _ => return schema,
        };
        *description = Some(sentence(&self.about()));
        schema
    }
}

/// Begins with a capital letter, unless the text begins with a quotation mark or a name in backticks.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the schema of an object with these keys and no others.
pub fn object_schema<'k>(keys: impl IntoIterator<Item = &'k Key>) -> ObjectBuilder {
    let object = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(false)));
    keys.into_iter().fold(object, |object, key| {
        let object = object.property(key.name, key.described_schema());
        if key.required { object.required(key.name) } else { object }
    })
}

/// Returns the schema of a text, which is one of `values` if there are any.
#[must_use]
pub fn string_schema(values: &[&str]) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    if values.is_empty() { text } else { text.enum_values(Some(values.iter().copied())) }
}
