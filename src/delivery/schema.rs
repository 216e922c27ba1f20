//! What a definition and a start look like as JSON Schema, for the description of the HTTP interface.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema, Type,
        schema::{AdditionalProperties, OneOfBuilder, SchemaType},
    },
};

use super::{DELIVERIES, Definition, DeliveryKind, Start, definition::DEAD_LETTERS};
use crate::{
    format::FORMATS,
    model::{Filter, Timestamp},
};

/// One shape for each way to push, since each has keys of its own.
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

/// The keys of [`Definition::KEYS`], and those of this way to push.
fn shape(kind: &DeliveryKind) -> ObjectBuilder {
    let mut shape = ObjectBuilder::new()
        .title(Some(kind.name))
        .property("delivery", words([kind.name]).description(Some("How messages are pushed.")))
        .required("delivery")
        .property(
            "format",
            words(FORMATS.iter().map(|format| format.name)).description(Some("What they are written in.")),
        )
        .property("filter", Filter::schema())
        .property("start", Start::schema())
        .property(DEAD_LETTERS.name, DEAD_LETTERS.schema());
    for key in kind.keys {
        shape = shape.property(key.name, key.schema());
        if key.needed {
            shape = shape.required(key.name);
        }
    }
    shape.additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

impl PartialSchema for Start {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(words(["now", "beginning"]))
            .item(whole(1, i64::MAX.unsigned_abs()))
            .item(Timestamp::schema())
            .description(Some(
                "Where it begins: now, the oldest change that is kept, the number of a change, or a time.",
            ))
            .into()
    }
}

impl ToSchema for Start {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("SubscriptionStart")
    }
}

fn words(words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).enum_values(Some(words))
}

fn whole(least: u64, most: u64) -> ObjectBuilder {
    let number = |number: u64| usize::try_from(number).ok();
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(number(least)).maximum(number(most))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;

    use super::{DELIVERIES, Definition};

    #[test]
    fn every_key_of_a_definition_is_described() {
        let schema = serde_json::to_value(Definition::schema()).unwrap();
        let shapes = schema["oneOf"].as_array().unwrap();
        assert_eq!(shapes.len(), DELIVERIES.len());
        for (shape, kind) in shapes.iter().zip(DELIVERIES) {
            let described: BTreeSet<&str> =
                shape["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let keys = Definition::KEYS.into_iter().chain(kind.keys.iter().map(|key| key.name));
            assert_eq!(described, keys.collect(), "{}", kind.name);
        }
    }
}
