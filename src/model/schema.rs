//! JSON Schema of the model's values, for the OpenAPI description. The schemas use the bounds of the types;
//! [`super::json`] derives the schemas of whole changes.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        KnownFormat, Object, ObjectBuilder, RefOr, Schema, SchemaFormat, Type,
        schema::{ArrayBuilder, SchemaType},
    },
};

use super::{
    Aspect, AspectSet, Change, ChangeId, ChangeType, Digest, DigestAlgorithm, EventId, ItemChangeKind, ItemId,
    MediaRange, MediaType, NodeName, Seq, SourceName, State, SubscriptionName, Text, Timestamp, Uri, UriPrefix,
    json::Wire,
};

macro_rules! schemas {
    ($($name:ident: $schema:expr,)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    )*};
}

schemas! {
    Aspect: words("A fact about an object or an item that changes by itself.", Aspect::ALL.map(Aspect::name)),
    AspectSet: ArrayBuilder::new().items(Aspect::schema()).unique_items(true),
    ChangeId: uuid("Identifies the change for ever."),
    ItemId: uuid("Identifies this part of the change for ever."),
    ChangeType: words("What happened to the item.", ["ADD", "UPDATE", "DELETE"]),
    ItemChangeKind: words("What happened to an item; STATE where only its state changed.", ["ADD", "UPDATE", "DELETE", "STATE"]),
    EventId: text("The source's own identifier of the event, in whatever form it has.").min_length(Some(1)).max_length(Some(EventId::MAX_BYTES)),
    MediaRange: text("A media type without parameters, or all of a type: image/*.").max_length(Some(MediaType::MAX_BYTES)),
    MediaType: text("A media type (RFC 6838) with its parameters.").max_length(Some(MediaType::MAX_BYTES)),
    Seq: whole_number("A place in the journal, from 1, without gaps."),
    SourceName: text("The name of a configured source.").pattern(Some("^[a-z0-9][a-z0-9_-]{0,63}$")),
    SubscriptionName: text("The name of a subscription.").pattern(Some("^[a-z0-9][a-z0-9_-]{0,63}$")),
    NodeName: text("The name of a node.").pattern(Some("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")),
    State: text("A token of an open vocabulary; ACTIVE, INACTIVE and DELETED for content.").pattern(Some("^[A-Z][A-Z_]{0,63}$")),
    Text: text("Text for people, without what XML 1.0 cannot carry.").max_length(Some(Text::MAX_CHARS)),
    Timestamp: text("A time in UTC, to the millisecond.").format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
    Uri: text("An absolute URI (RFC 3986) or an IRI (RFC 3987), as its source spelt it.").pattern(Some(r#"^[A-Za-z][A-Za-z0-9+.\-]*:[^\s<>"{}|\\^`\u0000-\u001f\u007f-\u009f\ufffe\uffff]*$"#)).max_length(Some(Uri::MAX_BYTES)),
    UriPrefix: text("How a URI begins, compared character for character.").pattern(Some(r#"^[^\s<>"{}|\\^`\u0000-\u001f\u007f-\u009f\ufffe\uffff]+$"#)).min_length(Some(1)).max_length(Some(Uri::MAX_BYTES)),
    Digest: digest(),
}

/// Schema of a change in responses. Requests use the same shape with fewer required members.
impl PartialSchema for Change {
    fn schema() -> RefOr<Schema> {
        Wire::schema()
    }
}

impl ToSchema for Change {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Change")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Wire::schemas(schemas);
    }
}

impl Change {
    /// Returns the names of the members of a change in JSON.
    pub(crate) fn member_names() -> Vec<String> {
        match Wire::schema() {
            RefOr::T(Schema::Object(object)) => object.properties.into_keys().collect(),
            _ => Vec::new(),
        }
    }
}

fn text(about: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).description(Some(about))
}

fn uuid(about: &str) -> ObjectBuilder {
    text(about).pattern(Some("^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"))
}

fn words<const N: usize>(about: &str, words: [&'static str; N]) -> ObjectBuilder {
    text(about).enum_values(Some(words))
}

fn whole_number(about: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Integer))
        .minimum(Some(0))
        .maximum(Some(usize::MAX))
        .description(Some(about))
}

fn digest() -> Object {
    let algorithms = DigestAlgorithm::ALL.map(DigestAlgorithm::name);
    ObjectBuilder::new()
        .property("algorithm", words("How it was made.", algorithms))
        .property("value", text("The digest in hexadecimal.").pattern(Some("^([0-9a-f]{2})+$")))
        .required("algorithm")
        .required("value")
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use utoipa::{PartialSchema, ToSchema};

    use super::Change;

    /// Members in the tables of `docs/json.md`, the table of the change first, each with whether it is always present.
    fn documented() -> Vec<BTreeSet<(String, bool)>> {
        let page = include_str!("../../docs/json.md");
        let row = |line: &str| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            (
                cells.next().unwrap().trim_matches('`').to_owned(),
                !matches!(cells.next().unwrap(), "" | "without `change`"),
            )
        };
        let tables = page.split("| member | always |").skip(1);
        tables.map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')).map(row).collect()).collect()
    }

    fn members(schema: impl serde::Serialize) -> BTreeSet<(String, bool)> {
        let schema = serde_json::to_value(schema).unwrap();
        let required = schema["required"].as_array().unwrap();
        let members = schema["properties"].as_object().unwrap().keys();
        members.map(|name| (name.clone(), required.contains(&Value::from(name.as_str())))).collect()
    }

    #[test]
    fn the_schema_has_the_documented_members() {
        let [change, item] = &documented()[..] else { panic!("docs/json.md has other tables") };
        assert_eq!(members(Change::schema()), *change);
        let mut schemas = Vec::new();
        Change::schemas(&mut schemas);
        let (_, schema) = schemas.into_iter().find(|(name, _)| name == "ChangeItem").unwrap();
        assert_eq!(members(schema), *item);
    }
}
