//! `request`: the settings of a shape.

use serde_json::{Map, Value, json};
use utoipa::openapi::{
    ObjectBuilder, RefOr, Schema,
    schema::{AdditionalProperties, SchemaType},
};

use super::presets::Preset;
use crate::{
    delivery::webhook::settings::Statuses,
    settings::{Choice, Choose, Content, SecretText, Setting, SettingErrors, Text, ValueType, settings},
};

settings! {
    /// `request`: the shape of requests.
    pub(in crate::delivery::webhook) struct RequestTable {
        /// Ready shape: json, solr, elasticsearch, purge, fastly, slack or teams (docs/shapes.md). The other keys replace
        /// its parts. Default: json.
        pub(super) preset: Option<Choice<Preset>>,
        /// Unit of a request: message, item (each item of the changes) or uri (each object and each item of the
        /// changes, once). Default: message.
        pub(super) each: Option<Choice<Each>>,
        /// Template of the method. A request whose method is empty is not sent. Default: POST.
        pub(super) method: Option<Text>,
        /// Template of the path and the query, which follow those of the URL. Default: none.
        pub(super) path: Option<Text>,
        /// Media type of the body; it decides how values are escaped. Default: application/json.
        pub(super) content_type: Option<Text>,
        /// Headers: each a template, or a secret as { file = "PATH" } or { env = "NAME" }.
        pub(super) headers: Headers = Vec::new(),
        /// Template of the body. A request whose template makes an empty body is not sent; without a template, requests
        /// have no body. Default: the change in JSON.
        pub(super) body: Option<Text>,
        /// Condition about the response, after which the request is sent again.
        pub(super) retry_if: Option<Text>,
        /// Condition about the response, after which the message is a dead letter.
        pub(super) refuse_if: Option<Text>,
        /// Statuses, 400 to 499 except 410 and 429, that accept a request, beside 200 to 299.
        pub(super) accepted_statuses: Option<Statuses>,
        /// Values that templates read as `values.NAME`: texts, numbers and booleans.
        pub(super) values: Values = Map::new(),
    }
}

named_values! {
    /// Subject of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Each {
        /// A message: one change, or a batch.
        Message = "message",
        /// An item of a change.
        Item = "item",
        /// The URI of an object or of an item. Each is taken once for a message.
        Uri = "uri",
    }
}

impl Choose for Each {
    const WHAT: &'static str = "value";
}

/// Words in the names of headers whose values are credentials, and their ends, as in `x-apikey`.
const SECRET_WORDS: [&str; 4] = ["auth", "authentication", "authorization", "cookie"];
const SECRET_ENDS: [&str; 5] = ["key", "password", "secret", "signature", "token"];

/// Returns whether the value of a header is a secret: its name says so, or it is given as a reference.
pub(super) fn is_secret_header(name: &str, value: &Value) -> bool {
    let name = name.to_ascii_lowercase();
    let is_secret = |word: &str| SECRET_WORDS.contains(&word) || SECRET_ENDS.iter().any(|end| word.ends_with(end));
    value.is_object() || name.split(['-', '_']).any(is_secret)
}

/// Returns the table of a shape as people may see it: without the values of headers, which may be secrets.
pub(in crate::delivery::webhook) fn redacted(request: &Setting) -> Value {
    let mut table = request.json();
    if let Some(Value::Object(headers)) = table.get_mut("headers") {
        for (name, value) in headers {
            if is_secret_header(name, value) {
                *value = json!("(hidden)");
            }
        }
    }
    table
}

/// Headers by name: each is a template or a secret.
pub(super) struct Headers;

impl ValueType for Headers {
    type Value = Vec<(String, Setting)>;
    const CONTENT: Content = Content::Secret;

    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors> {
        let entries = setting.entries()?;
        Ok(entries.into_iter().map(|(name, value)| (name, value.secret())).collect())
    }

    fn schema() -> Schema {
        let headers = ObjectBuilder::new();
        headers.additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(SecretText::schema())))).into()
    }
}

/// Values by name, for templates.
pub(super) struct Values;

impl ValueType for Values {
    type Value = Map<String, Value>;

    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors> {
        let mut values = Map::new();
        for (name, value) in setting.entries()? {
            match value.json() {
                json @ (Value::String(_) | Value::Number(_) | Value::Bool(_)) => {
                    values.insert(name, json);
                }
                _ => return Err(value.invalid("give a text, a number, true or false").into()),
            }
        }
        Ok(values)
    }

    fn schema() -> Schema {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
    }
}
