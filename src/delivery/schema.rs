//! JSON Schema of subscription definitions and start positions, for the OpenAPI description.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema, Type,
        schema::{OneOfBuilder, SchemaType},
    },
};

use super::{DELIVERIES, Definition, DeliveryKind, StartPosition, definition::COMMON_KEYS};
use crate::{
    model::Timestamp,
    settings::{object_schema, string_schema},
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
    object_schema(COMMON_KEYS.iter().chain(kind.settings))
        .title(Some(kind.name))
        .property("delivery", string_schema(&[kind.name]).description(Some("Kind of delivery.")))
}

impl PartialSchema for StartPosition {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(string_schema(&["now", "beginning"]))
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
