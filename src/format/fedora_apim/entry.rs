//! Parses the Atom entry of a call. Elements may be in any order; Fedora itself writes version and format after
//! the content.

use std::borrow::Cow;

use super::super::{
    Limits, Location, Rejection,
    xml::{Document, Element},
};
use crate::model::Timestamp;

/// Schemes of the categories that are not parameters.
const VERSION_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Literal prefix of a parameter's scheme, independent of the declared namespace prefixes.
const PARAMETER_SCHEME: &str = "fedora-types:";

/// Content of an entry. The first of repeated elements is used.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    root: Element<'a>,
    /// UUID of the message.
    pub(super) id: Option<Field<'a>>,
    /// Name of the method.
    pub(super) title: Option<Field<'a>>,
    /// Time of the call.
    pub(super) updated: Option<Field<'a>>,
    /// Name of the user.
    pub(super) author: Option<Field<'a>>,
    /// Base URL of Fedora.
    pub(super) author_uri: Option<Field<'a>>,
    /// PID.
    pub(super) summary: Option<Field<'a>>,
    /// Return value of the method.
    pub(super) content: Option<Field<'a>>,
    /// Version of Fedora.
    pub(super) version: Option<Field<'a>>,
    /// Format of the message.
    pub(super) format: Option<Field<'a>>,
    /// First content that Fedora 3 never writes.
    pub(super) foreign: Option<Foreign<'a>>,
    parameters: Vec<(Cow<'a, str>, Field<'a>)>,
}

/// A value and its element.
#[derive(Debug)]
pub(super) struct Field<'a> {
    value: Cow<'a, str>,
    element: Element<'a>,
}

/// Evidence that the message is not from Fedora 3.
#[derive(Debug)]
pub(super) struct Foreign<'a> {
    element: Element<'a>,
    reason: &'static str,
}

/// Returns whether the text is a value. Fedora writes `null` for a missing value, which cannot be distinguished
/// from that string. An empty string sets nothing that is read here.
pub(super) fn is_value(text: &str) -> bool {
    !matches!(text, "" | "null")
}

impl<'a> Entry<'a> {
    /// Parses a body whose root is an Atom entry, with any namespace prefix.
    pub(super) fn read(body: &'a [u8], limits: Limits) -> Result<Self, Rejection> {
        let mut document = Document::open(body, limits)?;
        let root = document.root()?;
        match root.atom() {
            Some("entry") => {}
            Some("feed") => {
                return Err(root.unprocessable("this is not Fedora 3's: it is an Atom feed, not a single entry"));
            }
            _ => {
                let name = super::quoted(root.name());
                return Err(root.unprocessable(format!("this is not Fedora 3's: {name} is not an Atom entry")));
            }
        }
        let mut entry = Self::empty(root);
        while let Some(child) = document.child()? {
            entry.read_child(child, &mut document)?;
        }
        document.finish()?;
        Ok(entry)
    }

    fn empty(root: Element<'a>) -> Self {
        Self {
            root,
            id: None,
            title: None,
            updated: None,
            author: None,
            author_uri: None,
            summary: None,
            content: None,
            version: None,
            format: None,
            foreign: None,
            parameters: Vec::new(),
        }
    }

    fn read_child(&mut self, child: Element<'a>, document: &mut Document<'a>) -> Result<(), Rejection> {
        let slot = match child.atom() {
            Some("id") => &mut self.id,
            Some("title") => &mut self.title,
            Some("updated") => &mut self.updated,
            Some("summary") => &mut self.summary,
            Some("content") => {
                if !is_text(&child) {
                    self.note_foreign(&child, "its content is not text, unlike return values of methods");
                }
                &mut self.content
            }
            Some("author") => return self.read_author(document),
            Some("category") => {
                self.read_category(child);
                return document.skip();
            }
            _ => return document.skip(),
        };
        set_first(slot, Field::new(document.text()?, child));
        Ok(())
    }

    fn read_author(&mut self, document: &mut Document<'a>) -> Result<(), Rejection> {
        while let Some(child) = document.child()? {
            let slot = match child.atom() {
                Some("name") => &mut self.author,
                Some("uri") => &mut self.author_uri,
                _ => {
                    document.skip()?;
                    continue;
                }
            };
            set_first(slot, Field::new(document.text()?, child));
        }
        Ok(())
    }

    fn read_category(&mut self, category: Element<'a>) {
        let scheme = category.attribute("scheme").unwrap_or_default();
        if scheme.starts_with("xsd:") {
            self.note_foreign(
                &category,
                "the scheme and the label of its parameters are swapped, as in the first alphas of Fedora 4",
            );
        }
        let field = category.attribute("term").and_then(|term| Field::new(term, category));
        match (&*scheme, scheme.strip_prefix(PARAMETER_SCHEME), field) {
            (VERSION_SCHEME, _, field) => set_first(&mut self.version, field),
            (FORMAT_SCHEME, _, field) => set_first(&mut self.format, field),
            (_, Some(name), Some(field)) => self.parameters.push((name.to_owned().into(), field)),
            _ => {}
        }
    }

    fn note_foreign(&mut self, element: &Element<'a>, reason: &'static str) {
        self.foreign.get_or_insert_with(|| Foreign { element: element.clone(), reason });
    }

    /// Returns a parameter that has a value. Fedora never sends some parameters (`mimeType`, `ownerID`, the
    /// subject of a relationship); old versions send additional ones (`force`).
    pub(super) fn parameter(&self, name: &str) -> Option<&Field<'a>> {
        self.parameters.iter().find(|(parameter, _)| parameter == name).map(|(_, field)| field)
    }

    /// Creates a rejection of the whole entry.
    pub(super) fn rejection(&self, reason: impl Into<String>) -> Rejection {
        self.root.unprocessable(reason)
    }
}

fn set_first<'a>(slot: &mut Option<Field<'a>>, field: Option<Field<'a>>) {
    if slot.is_none() {
        *slot = field;
    }
}

/// Returns whether an Atom content is inline plain text (RFC 4287 section 4.1.3).
fn is_text(content: &Element<'_>) -> bool {
    content.attribute("src").is_none() && content.attribute("type").is_none_or(|kind| kind == "text")
}

impl<'a> Field<'a> {
    fn new(value: Cow<'a, str>, element: Element<'a>) -> Option<Self> {
        is_value(value.trim()).then_some(Self { value, element })
    }

    /// Returns the value without surrounding white space.
    pub(super) fn value(&self) -> &str {
        self.value.trim()
    }

    /// Parses the value as a date. Fedora omits trailing zeros of the fraction.
    pub(super) fn date(&self) -> Result<Timestamp, Rejection> {
        Timestamp::parse(self.value()).map_err(|invalid| self.rejection(invalid.to_string()))
    }

    /// Returns the location of the element.
    pub(super) fn location(&self) -> Location {
        self.element.location()
    }

    /// Creates a rejection of the value.
    pub(super) fn rejection(&self, reason: impl Into<String>) -> Rejection {
        self.element.unprocessable(reason)
    }
}

impl Foreign<'_> {
    /// Creates the rejection of the message.
    pub(super) fn refusal(&self) -> Rejection {
        self.element.unprocessable(format!("this is not Fedora 3's: {}", self.reason))
    }
}
