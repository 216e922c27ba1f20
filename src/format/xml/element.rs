//! The start of an element: its name, its attributes and its place.

use std::{borrow::Cow, rc::Rc};

use quick_xml::{
    XmlVersion,
    events::attributes::{Attribute, Attributes},
    name::QName,
};

use super::ATOM;
use crate::format::{Place, Rejection};

/// The start of an element.
#[derive(Clone, Debug)]
pub(in crate::format) struct Element<'a> {
    /// `None` where there is none.
    pub(super) namespace: Option<Rc<str>>,
    pub(super) local: &'a str,
    pub(super) attributes: FewAttributes<'a>,
    /// The tag between its angle brackets.
    pub(super) tag: &'a str,
    pub(super) name_len: usize,
    pub(super) offset: usize,
    pub(super) text: &'a str,
}

/// The attributes of an element, as written, where there are few: nearly all elements have so few,
/// and need not be looked through again for each.
#[derive(Clone, Debug, Default)]
pub(super) struct FewAttributes<'a> {
    held: [(&'a [u8], &'a [u8]); 3],
    count: usize,
}

/// There are more attributes than are held.
struct TooMany;

impl<'a> FewAttributes<'a> {
    pub(super) fn push(&mut self, attribute: &Attribute<'a>) {
        if let (Some(place), Cow::Borrowed(value)) = (self.held.get_mut(self.count), &attribute.value) {
            *place = (attribute.key.0, value);
        }
        self.count += 1;
    }

    fn get(&self, name: &[u8]) -> Result<Option<Attribute<'a>>, TooMany> {
        let held = self.held.get(..self.count).ok_or(TooMany)?;
        let found = held.iter().find(|(key, _)| *key == name);
        Ok(found.map(|(key, value)| Attribute { key: QName(key), value: Cow::Borrowed(value) }))
    }
}

impl<'a> Element<'a> {
    /// Whether it has that name.
    pub(in crate::format) fn is(&self, namespace: &str, local: &str) -> bool {
        self.local == local && self.namespace.as_deref() == Some(namespace)
    }

    /// Its name, if it is an element of Atom.
    pub(in crate::format) fn atom(&self) -> Option<&'a str> {
        (self.namespace.as_deref() == Some(ATOM)).then_some(self.local)
    }

    /// Its name with the prefix, as written.
    pub(in crate::format) fn name(&self) -> &'a str {
        &self.tag[..self.name_len]
    }

    /// The value of the attribute of that name (without a namespace).
    pub(in crate::format) fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        // The start of the element was refused if its attributes are not well-formed.
        let found = match self.attributes.get(name.as_bytes()) {
            Ok(found) => found,
            Err(TooMany) => {
                let mut attributes = Attributes::new(self.tag, self.name_len);
                attributes.with_checks(false).flatten().find(|held| held.key.0 == name.as_bytes())
            }
        };
        found.and_then(|held| held.normalized_value(XmlVersion::Implicit1_0).ok())
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
