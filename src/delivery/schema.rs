//! JSON Schema of subscription definitions and start positions, for the OpenAPI description.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema, Type,
        schema::{AdditionalProperties, OneOfBuilder, SchemaType},
    },
};

use super::{DELIVERIES, Definition, DeliveryKind, StartPosition, definition::DEAD_LETTERS};
use crate::{
    format::FORMATS,
    model::{Filter, Timestamp},
};

/// One schema per kind of delivery, because their settings differ.
impl PartialSchema for Definition {
    fn schema() -> RefOr<Schema> {
        let shapes = DELIVERIES.iter().fold(OneOfBuilder::new(), |shapes, kind| shapes.item(shape(kind)));
        shapes.description(Some("A subscription: the keys of `[subscriptions.NAME]` in the configuration file.")).into()
    }
}

impl ToSchema for Definition {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("SubscriptionDefinition")
    }
}

/// Schema of [`Definition::KEYS`] and the settings of one delivery.
fn shape(kind: &DeliveryKind) -> ObjectBuilder {
    let mut shape = ObjectBuilder::new()
        .title(Some(kind.name))
        .property("delivery", string_enum([kind.name]).description(Some("Kind of delivery.")))
        .required("delivery")
        .property(
            "format",
            string_enum(FORMATS.iter().map(|format| format.name)).description(Some("Format of messages.")),
        )
        .property("filter", Filter::schema())
        .property("start", StartPosition::schema())
        .property(DEAD_LETTERS.name, DEAD_LETTERS.schema());
    for key in kind.settings {
        shape = shape.property(key.name, key.schema());
        if key.required {
            shape = shape.required(key.name);
        }
    }
    shape.additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

impl PartialSchema for StartPosition {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(string_enum(["now", "beginning"]))
            .item(integer(1, i64::MAX.unsigned_abs()))
            .item(Timestamp::schema())
            .description(Some("Start position: now, the oldest stored change, the number of a change, or a time."))
            .into()
    }
}

impl ToSchema for StartPosition {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("SubscriptionStart")
    }
}

fn string_enum(words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).enum_values(Some(words))
}

fn integer(min: u64, max: u64) -> ObjectBuilder {
    let number = |number: u64| usize::try_from(number).ok();
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(number(min)).maximum(number(max))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;

    use super::{DELIVERIES, Definition};

    #[test]
    fn every_setting_has_a_schema() {
        let schema = serde_json::to_value(Definition::schema()).unwrap();
        let shapes = schema["oneOf"].as_array().unwrap();
        assert_eq!(shapes.len(), DELIVERIES.len());
        for (shape, kind) in shapes.iter().zip(DELIVERIES) {
            let described: BTreeSet<&str> =
                shape["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let keys = Definition::KEYS.into_iter().chain(kind.settings.iter().map(|key| key.name));
            assert_eq!(described, keys.collect(), "{}", kind.name);
        }
    }
}
