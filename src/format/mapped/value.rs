//! Values of a map: a JSON pointer, a template or a constant, and the texts that they make of a message.

use std::cell::Cell;

use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    format::{Location, MessageLimit, Rejection},
    template::{Facts, JsonPointer, Place, Template, TemplateError},
    text::line,
};

/// Maximum size of a text that a template makes, in bytes. Identifiers are shorter, and longer descriptions are cut.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// A value that is the same or another in each message.
#[derive(Debug)]
pub(super) struct Value {
    source: Source,
    written: String,
}

#[derive(Debug)]
enum Source {
    Pointer(JsonPointer),
    Template(Box<Template>),
    Constant,
}

/// A value for a URI: a template percent-encodes what it takes from the message.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct UriValue(#[serde(deserialize_with = "uri_value")] pub(super) Value);

/// A value for a text, which need not be taken from the message.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct TextValue(#[serde(deserialize_with = "text_value")] pub(super) Value);

/// A value that is never the same in all messages.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct VariableValue(#[serde(deserialize_with = "variable_value")] pub(super) Value);

fn uri_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let value = Value::parse(String::deserialize(deserializer)?, Place::Path)?;
    match value.source {
        Source::Constant => crate::model::Uri::parse(&value.written).map(|_| value).map_err(|_| no_value()),
        _ => Ok(value),
    }
}

fn text_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Value::parse(String::deserialize(deserializer)?, Place::Text)
}

fn variable_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let value = text_value(deserializer)?;
    if matches!(value.source, Source::Constant) { Err(no_value()) } else { Ok(value) }
}

fn no_value<E: Error>() -> E {
    E::custom("give a JSON pointer, as in \"/data/id\", or a template, as in \"{{ element.data.id }}\"")
}

impl Value {
    fn parse<E: Error>(written: String, place: Place) -> Result<Self, E> {
        let source = if written.contains("{{") || written.contains("{%") {
            let template = Template::parse(&written, place);
            Source::Template(Box::new(template.map_err(E::custom)?))
        } else if written.starts_with('/') {
            Source::Pointer(JsonPointer::parse(&written).map_err(E::custom)?)
        } else {
            Source::Constant
        };
        Ok(Self { source, written })
    }

    /// Returns the value as the configuration has it.
    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Returns the name of this kind of value.
    pub(super) fn what(&self) -> &'static str {
        match self.source {
            Source::Pointer(_) => "pointer",
            Source::Template(_) => "template",
            Source::Constant => "constant",
        }
    }
}

/// An element of a message, whose texts the values of a map make.
pub(super) struct Element<'a> {
    /// The element itself.
    pub(super) facts: &'a Facts,
    /// Names for templates.
    pub(super) names: &'a Facts,
    /// JSON pointer of the element in the message.
    pub(super) pointer: &'a str,
    /// Number of bytes that the drafts of the message may still have.
    pub(super) bytes_left: &'a Cell<usize>,
}

impl Element<'_> {
    /// Returns the text of a value; `None` if the message does not have it, or if it is blank.
    ///
    /// # Errors
    /// Fails if a pointer leads to a list or an object, if a template fails, and if the texts have too many bytes.
    pub(super) fn text(&self, member: &str, value: &Value) -> Result<Option<String>, Rejection> {
        let text = match &value.source {
            Source::Constant => Some(value.written.clone()),
            Source::Pointer(pointer) => self.pointed(member, pointer)?,
            Source::Template(template) => self.rendered(member, template)?,
        };
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(None) };
        let left = self.bytes_left.get().checked_sub(text.len()).ok_or_else(|| self.too_large())?;
        self.bytes_left.set(left);
        Ok(Some(text))
    }

    /// Returns the texts of a value whose pointer may lead to a list.
    ///
    /// # Errors
    /// Fails as [`Self::text`], and if an element of the list is a list or an object.
    pub(super) fn texts(&self, member: &str, value: &Value) -> Result<Vec<String>, Rejection> {
        let list = match &value.source {
            Source::Pointer(pointer) => self.facts.at(pointer).and_then(|part| part.elements()),
            _ => None,
        };
        let Some(list) = list else { return Ok(self.text(member, value)?.into_iter().collect()) };
        let mut texts = Vec::new();
        for part in list {
            let text = part.text().ok_or_else(|| self.unprocessable(member, value, "it has a list or an object"))?;
            let left = self.bytes_left.get().checked_sub(text.len()).ok_or_else(|| self.too_large())?;
            self.bytes_left.set(left);
            texts.push(text);
        }
        Ok(texts)
    }

    fn pointed(&self, member: &str, pointer: &JsonPointer) -> Result<Option<String>, Rejection> {
        let Some(part) = self.facts.at(pointer) else { return Ok(None) };
        let location = Location::Pointer(format!("{}{pointer}", self.pointer));
        let complain =
            || Rejection::unprocessable(location, format!("{member} is a text here, and this is a list or an object"));
        part.text().ok_or_else(complain).map(Some)
    }

    fn rendered(&self, member: &str, template: &Template) -> Result<Option<String>, Rejection> {
        let max_bytes = MAX_TEXT_BYTES.min(self.bytes_left.get());
        match template.render(self.names, max_bytes) {
            Ok(text) => Ok(Some(text)),
            Err(TemplateError::Missing { .. }) => Ok(None),
            Err(TemplateError::TooLarge(_)) if max_bytes < MAX_TEXT_BYTES => Err(self.too_large()),
            Err(error) => Err(Rejection::unprocessable(self.location(), format!("{member}: {error}"))),
        }
    }

    /// Creates the rejection of an element because of one of its values.
    pub(super) fn unprocessable(&self, member: &str, value: &Value, reason: &str) -> Rejection {
        let (location, what) = match &value.source {
            Source::Pointer(pointer) => (Location::Pointer(format!("{}{pointer}", self.pointer)), String::new()),
            _ => (self.location(), format!(" ({} {})", value.what(), line(&value.written, 100))),
        };
        Rejection::unprocessable(location, format!("{member}{what}: {reason}"))
    }

    /// Returns the location of the element.
    pub(super) fn location(&self) -> Location {
        Location::Pointer(self.pointer.to_owned())
    }

    fn too_large(&self) -> Rejection {
        let reason = "the texts of the changes of this message have too many bytes: send less in one message, or raise \
                      limits.change_bytes";
        Rejection::over_limit(MessageLimit::ChangeBytes, self.location(), reason)
    }
}
