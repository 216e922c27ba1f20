//! The start of an element: its name, its attributes and its place.

use std::borrow::Cow;

use super::{
    attributes::{FewAttributes, TagAttributes, TooMany},
    namespace::Namespace,
};
use crate::format::{Place, Rejection};

/// The start of an element.
#[derive(Clone, Debug)]
pub(in crate::format) struct Element<'a> {
    pub(super) namespace: Namespace,
    pub(super) local: &'a str,
    pub(super) attributes: FewAttributes,
    /// The tag between its angle brackets.
    pub(super) tag: &'a str,
    pub(super) name_len: usize,
    pub(super) offset: usize,
    pub(super) text: &'a str,
}

impl<'a> Element<'a> {
    /// Whether it has that name.
    pub(in crate::format) fn is(&self, namespace: &str, local: &str) -> bool {
        self.local == local && self.namespace.name() == Some(namespace)
    }

    /// Its name, if it is an element of Atom.
    pub(in crate::format) fn atom(&self) -> Option<&'a str> {
        matches!(self.namespace, Namespace::Atom).then_some(self.local)
    }

    /// Its name with the prefix, as written.
    pub(in crate::format) fn name(&self) -> &'a str {
        &self.tag[..self.name_len]
    }

    /// The value of the attribute of that name (without a namespace).
    pub(in crate::format) fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        // The start of the element was refused if its attributes are not well-formed.
        let found = match self.attributes.get(self.tag, name) {
            Ok(found) => found,
            Err(TooMany) => TagAttributes::new(self.tag, self.name_len).flatten().find(|held| held.name == name),
        };
        found.and_then(|held| held.value().ok())
    }

    /// Where it begins.
    pub(in crate::format) fn place(&self) -> Place {
        Place::in_text(self.text, self.offset)
    }

    /// A refusal of what this element says.
    pub(in crate::format) fn unprocessable(&self, reason: impl Into<String>) -> Rejection {
        Rejection::unprocessable(self.place(), reason)
    }
}
