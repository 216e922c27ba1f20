//! Elements of a landing page that have links or bibliographic data.
//!
//! The page is read by an HTML tokenizer, so that comments and scripts have no elements, and each page takes a time that is
//! proportional to its size.

use std::io::{self, Read};

use html5gum::{
    IoReader, Span, Tokenizer,
    emitters::callback::{CallbackEmitter, CallbackEvent},
};

use crate::transfer::budget::Cancelled;

/// Maximum size of the value of an attribute, in bytes. Longer values are left out.
pub(super) const MAX_ATTRIBUTE_BYTES: usize = 8 << 10;

/// Kind of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Base,
    Link,
    Anchor,
    Meta,
    Body,
}

/// Attribute that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Relations,
    Target,
    MediaType,
    Title,
    /// Name of a fact, whichever vocabulary it is of.
    Name,
    /// Value of a fact.
    Content,
}

/// Number of attributes.
const ATTRIBUTES: usize = 6;

/// An element of a page, whose start tag may still be read.
#[derive(Debug, Default)]
pub(super) struct Element {
    kind: Option<Kind>,
    attribute: Option<Attribute>,
    values: [Option<String>; ATTRIBUTES],
}

/// Reads the elements of a page in their order, until one is the last that its reader wants, or nobody waits any more.
pub(super) fn read(page: &[u8], cancelled: &Cancelled, mut is_last: impl FnMut(&Element) -> bool) {
    let mut element = Element::default();
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| {
        element.receive(&event).then(|| is_last(&element))
    });
    // Otherwise the text of scripts is read as elements.
    emitter.naively_switch_states(true);
    for is_last in Tokenizer::new_with_emitter(IoReader::new(CancellableRead { page, cancelled }), emitter) {
        if is_last.unwrap_or(true) {
            break;
        }
    }
}

impl Element {
    /// Returns the kind. A reader gets only elements that have one.
    pub(super) fn kind(&self) -> Kind {
        self.kind.unwrap_or(Kind::Body)
    }

    /// Returns the value of an attribute.
    pub(super) fn attribute(&self, attribute: Attribute) -> Option<&str> {
        self.values[attribute as usize].as_deref()
    }

    /// Adds an event; returns whether the start tag of an element that is used has ended.
    fn receive(&mut self, event: &CallbackEvent<'_>) -> bool {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                let kind = match *name {
                    b"base" => Some(Kind::Base),
                    b"link" => Some(Kind::Link),
                    b"a" => Some(Kind::Anchor),
                    b"meta" => Some(Kind::Meta),
                    b"body" => Some(Kind::Body),
                    _ => None,
                };
                *self = Self { kind, ..Self::default() };
            }
            CallbackEvent::AttributeName { name } if self.kind.is_some() => {
                self.attribute = match *name {
                    b"rel" => Some(Attribute::Relations),
                    b"href" => Some(Attribute::Target),
                    b"type" => Some(Attribute::MediaType),
                    b"title" => Some(Attribute::Title),
                    b"name" | b"property" | b"itemprop" => Some(Attribute::Name),
                    b"content" => Some(Attribute::Content),
                    _ => None,
                };
                // The first attribute of a name counts. One without a value has no further event.
                self.attribute = self.attribute.filter(|attribute| self.values[*attribute as usize].is_none());
                if let Some(attribute) = self.attribute {
                    self.values[attribute as usize] = Some(String::new());
                }
            }
            CallbackEvent::AttributeValue { value } => {
                if let Some(attribute) = self.attribute.take() {
                    let text =
                        (value.len() <= MAX_ATTRIBUTE_BYTES).then(|| String::from_utf8_lossy(value).into_owned());
                    self.values[attribute as usize] = text;
                }
            }
            CallbackEvent::CloseStartTag { .. } => return self.kind.is_some(),
            CallbackEvent::EndTag { .. } => *self = Self::default(),
            _ => {}
        }
        false
    }
}

/// A page that cannot be read further after the work was cancelled.
struct CancellableRead<'a> {
    page: &'a [u8],
    cancelled: &'a Cancelled,
}

impl Read for CancellableRead<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.is_cancelled() {
            return Err(io::Error::other("nobody waits for the elements"));
        }
        self.page.read(buffer)
    }
}
