//! The Atom entry of a call, read in any order of its elements: the version and the format stand
//! after the content in Fedora's own messages.

use std::borrow::Cow;

use super::super::{
    Limits, Place, Rejection,
    xml::{Document, Element},
};
use crate::model::Timestamp;

/// The schemes of the categories that are not parameters.
const VERSION_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// The beginning of a parameter's scheme: characters of an attribute, whatever prefix is declared.
const PARAMETER_SCHEME: &str = "fedora-types:";

/// What an entry says. Of an element that comes twice the first counts.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    root: Element<'a>,
    /// A UUID of the message.
    pub(super) id: Option<Field<'a>>,
    /// The method.
    pub(super) title: Option<Field<'a>>,
    /// When it was called.
    pub(super) updated: Option<Field<'a>>,
    /// The name of the user.
    pub(super) author: Option<Field<'a>>,
    /// Fedora's base URL.
    pub(super) author_uri: Option<Field<'a>>,
    /// The PID.
    pub(super) summary: Option<Field<'a>>,
    /// What the method returned.
    pub(super) content: Option<Field<'a>>,
    /// The version of Fedora.
    pub(super) version: Option<Field<'a>>,
    /// The format of the message.
    pub(super) format: Option<Field<'a>>,
    /// What Fedora 3 never writes, if it is there.
    pub(super) foreign: Option<Foreign<'a>>,
    parameters: Vec<(Cow<'a, str>, Field<'a>)>,
}

/// A value, and the element that has it.
#[derive(Debug)]
pub(super) struct Field<'a> {
    value: Cow<'a, str>,
    element: Element<'a>,
}

/// A sign that the message is not Fedora 3's.
#[derive(Debug)]
pub(super) struct Foreign<'a> {
    element: Element<'a>,
    reason: &'static str,
}

/// Whether the text is a value: Fedora writes the word `null` where there is none, and nobody can
/// tell it from a string of those letters; an empty string sets nothing that is read here.
pub(super) fn is_value(text: &str) -> bool {
    !matches!(text, "" | "null")
}

impl<'a> Entry<'a> {
    /// Reads a body whose root is an Atom entry, in whatever prefix.
    pub(super) fn read(body: &'a [u8], limits: Limits) -> Result<Self, Rejection> {
        let mut document = Document::open(body, limits)?;
        let root = document.root()?;
        match root.atom() {
            Some("entry") => {}
            Some("feed") => {
                return Err(root.unprocessable("this is not Fedora 3's: it is an Atom feed, not a single entry"));
            }
            _ => {
                let name = super::shown(root.name());
                return Err(root.unprocessable(format!("this is not Fedora 3's: {name} is not an Atom entry")));
            }
        }
        let mut entry = Self::empty(root);
        while let Some(child) = document.child()? {
            entry.take(child, &mut document)?;
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

    fn take(&mut self, child: Element<'a>, document: &mut Document<'a>) -> Result<(), Rejection> {
        let slot = match child.atom() {
            Some("id") => &mut self.id,
            Some("title") => &mut self.title,
            Some("updated") => &mut self.updated,
            Some("summary") => &mut self.summary,
            Some("content") => {
                if !is_text(&child) {
                    self.note_foreign(&child, "its content is not text, as what a method returned is");
                }
                &mut self.content
            }
            Some("author") => return self.take_author(document),
            Some("category") => {
                self.take_category(child);
                return document.skip();
            }
            _ => return document.skip(),
        };
        keep(slot, Field::new(document.text()?, child));
        Ok(())
    }

    fn take_author(&mut self, document: &mut Document<'a>) -> Result<(), Rejection> {
        while let Some(child) = document.child()? {
            let slot = match child.atom() {
                Some("name") => &mut self.author,
                Some("uri") => &mut self.author_uri,
                _ => {
                    document.skip()?;
                    continue;
                }
            };
            keep(slot, Field::new(document.text()?, child));
        }
        Ok(())
    }

    fn take_category(&mut self, category: Element<'a>) {
        let scheme = category.attribute("scheme").unwrap_or_default();
        if scheme.starts_with("xsd:") {
            self.note_foreign(
                &category,
                "its parameters have scheme and label exchanged, as the first alphas of Fedora 4 had them",
            );
        }
        let field = category.attribute("term").and_then(|term| Field::new(term, category));
        match (&*scheme, scheme.strip_prefix(PARAMETER_SCHEME), field) {
            (VERSION_SCHEME, _, field) => keep(&mut self.version, field),
            (FORMAT_SCHEME, _, field) => keep(&mut self.format, field),
            (_, Some(name), Some(field)) => self.parameters.push((name.to_owned().into(), field)),
            _ => {}
        }
    }

    fn note_foreign(&mut self, element: &Element<'a>, reason: &'static str) {
        self.foreign.get_or_insert_with(|| Foreign { element: element.clone(), reason });
    }

    /// The parameter of that name, if it was given a value. Fedora leaves some out of every message
    /// (`mimeType`, `ownerID`, the subject of a relationship), and old versions send some more (`force`).
    pub(super) fn parameter(&self, name: &str) -> Option<&Field<'a>> {
        self.parameters.iter().find(|(held, _)| held == name).map(|(_, field)| field)
    }

    /// A refusal of the entry as a whole.
    pub(super) fn refused(&self, reason: impl Into<String>) -> Rejection {
        self.root.unprocessable(reason)
    }
}

fn keep<'a>(slot: &mut Option<Field<'a>>, field: Option<Field<'a>>) {
    if slot.is_none() {
        *slot = field;
    }
}

/// Whether an Atom content is plain text in the entry (RFC 4287 section 4.1.3).
fn is_text(content: &Element<'_>) -> bool {
    content.attribute("src").is_none() && content.attribute("type").is_none_or(|kind| kind == "text")
}

impl<'a> Field<'a> {
    fn new(value: Cow<'a, str>, element: Element<'a>) -> Option<Self> {
        is_value(value.trim()).then_some(Self { value, element })
    }

    /// The value, without white space around it.
    pub(super) fn value(&self) -> &str {
        self.value.trim()
    }

    /// The value as a date; Fedora leaves out the zeros at the end of its fraction.
    pub(super) fn date(&self) -> Result<Timestamp, Rejection> {
        Timestamp::parse(self.value()).map_err(|invalid| self.refused(invalid.to_string()))
    }

    /// Where the element with the value begins.
    pub(super) fn place(&self) -> Place {
        self.element.place()
    }

    /// A refusal of the value.
    pub(super) fn refused(&self, reason: impl Into<String>) -> Rejection {
        self.element.unprocessable(reason)
    }
}

impl Foreign<'_> {
    /// The refusal of the message for it.
    pub(super) fn refusal(&self) -> Rejection {
        self.element.unprocessable(format!("this is not Fedora 3's: {}", self.reason))
    }
}
