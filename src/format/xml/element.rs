//! The start of an element: its name, its attributes and its location.

use std::borrow::Cow;

use super::{
    attributes::{AttributeIndex, NotIndexed, TagAttributes},
    namespace::Namespace,
};
use crate::format::{Location, Rejection};

/// The start of an element.
#[derive(Clone, Debug)]
pub(in crate::format) struct Element<'a> {
    pub(super) namespace: Namespace,
    pub(super) local: &'a str,
    pub(super) attributes: AttributeIndex,
    /// Tag between its angle brackets.
    pub(super) tag: &'a str,
    pub(super) name_len: usize,
    pub(super) offset: usize,
    pub(super) text: &'a str,
}

impl<'a> Element<'a> {
    /// Returns whether the element has this name.
    pub(in crate::format) fn is(&self, namespace: &str, local: &str) -> bool {
        self.local == local && self.namespace.name() == Some(namespace)
    }

    /// Returns the namespace; `None` if the element has none.
    pub(in crate::format) fn namespace(&self) -> Option<&str> {
        self.namespace.name()
    }

    /// Returns the local name if it is an Atom element.
    pub(in crate::format) fn atom(&self) -> Option<&'a str> {
        matches!(self.namespace, Namespace::Atom).then_some(self.local)
    }

    /// Returns the name with its prefix, as written.
    pub(in crate::format) fn name(&self) -> &'a str {
        &self.tag[..self.name_len]
    }

    /// Returns the value of an attribute without a namespace.
    pub(in crate::format) fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        // Attributes are well-formed here; otherwise the element was rejected.
        let attribute = match self.attributes.get(self.tag, name) {
            Ok(attribute) => attribute,
            Err(NotIndexed) => {
                TagAttributes::new(self.tag, self.name_len).flatten().find(|attribute| attribute.name == name)
            }
        };
        attribute.and_then(|attribute| attribute.value().ok())
    }

    /// Returns the names of the attributes as written, with those of declarations of namespaces.
    pub(in crate::format) fn attribute_names(&self) -> impl Iterator<Item = &'a str> {
        TagAttributes::new(self.tag, self.name_len).flatten().map(|attribute| attribute.name)
    }

    /// Returns the location of the element.
    pub(in crate::format) fn location(&self) -> Location {
        Location::in_text(self.text, self.offset)
    }

    /// Creates a rejection of the element's content.
    pub(in crate::format) fn unprocessable(&self, reason: impl Into<String>) -> Rejection {
        Rejection::unprocessable(self.location(), reason)
    }
}
