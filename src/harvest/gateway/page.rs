//! Pages of another gateway: their facts, and the places of their objects or changes in the text.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    format::{Headers, Location, Rejection},
    intake::{Incoming, ReceivedMessage},
    model::{Seq, Uri},
    transfer::BudgetShare,
};

/// Maximum number of objects or changes of a page. A gateway sends as many as it was asked for, 1000.
const MAX_ELEMENTS: usize = 10_000;

/// Maximum length of an excerpt of a response in a reason, in characters.
pub(super) const EXCERPT: usize = 200;

/// A page of `/snapshot`.
#[derive(Deserialize)]
pub(super) struct SnapshotPage<'t> {
    pub(super) journal: Uuid,
    pub(super) head: Seq,
    pub(super) seeds: u64,
    #[serde(borrow)]
    pub(super) objects: Elements<'t>,
    #[serde(default)]
    pub(super) next: Option<Uri>,
}

/// A page of `/changes`.
#[derive(Deserialize)]
pub(super) struct ChangePage<'t> {
    pub(super) journal: Uuid,
    #[serde(borrow)]
    pub(super) changes: Elements<'t>,
    pub(super) next: Seq,
}

/// Facts of a change that decide about its message.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeFacts {
    pub(super) seq: Seq,
    #[serde(default)]
    pub(super) source_event_id: Option<String>,
}

/// Elements of an array, unparsed.
pub(super) struct Elements<'t>(Vec<&'t RawValue>);

impl<'t> Elements<'t> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'t str> {
        self.0.iter().map(|value| value.get())
    }
}

impl<'de: 't, 't> Deserialize<'de> for Elements<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;
        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = array.next_element()? {
                    if elements.len() == MAX_ELEMENTS {
                        return Err(A::Error::custom(format_args!("a page has more than {MAX_ELEMENTS} elements")));
                    }
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(ElementsVisitor).map(Self)
    }
}

/// Text of a page, with its share of the budget until the page is written.
pub(super) struct PageText {
    text: String,
    share: BudgetShare,
}

/// An element of a page: its place in the text, and the member of the message that has it.
pub(super) struct Element {
    from: usize,
    to: usize,
    member: Member,
}

/// Member of a message that has an element.
#[derive(Clone, Copy)]
pub(super) enum Member {
    /// An object of the journal with this identity.
    Object(Uuid),
    Change,
    /// A change that the snapshot may contain.
    Repeat,
}

impl Element {
    /// Finds an element that is a part of the text.
    pub(super) fn new(text: &str, element: &str, member: Member) -> Self {
        let from = element.as_ptr().addr() - text.as_ptr().addr();
        Self { from, to: from + element.len(), member }
    }
}

impl PageText {
    /// Returns the text of a body.
    ///
    /// # Errors
    /// Fails with the beginning of a body that is not UTF-8.
    pub(super) fn new(body: Vec<u8>, share: BudgetShare) -> Result<Self, String> {
        match String::from_utf8(body) {
            Ok(text) => Ok(Self { text, share }),
            Err(error) => {
                let start = &error.as_bytes()[..error.as_bytes().len().min(EXCERPT)];
                Err(String::from_utf8_lossy(start).into_owned())
            }
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part of the budget that the text and its elements do not need.
    pub(super) fn keep(mut self) -> Self {
        self.share.keep(self.text.capacity() + MAX_ELEMENTS * size_of::<Element>());
        self
    }

    /// Returns the message with an element; one that is larger than `max_bytes` goes to the quarantine.
    pub(super) fn message(&self, element: &Element, max_bytes: usize) -> ReceivedMessage {
        let value = self.text.get(element.from..element.to).unwrap_or_default();
        let incoming = |body: String| Incoming {
            content_type: Some("application/json".to_owned()),
            headers: Headers::default(),
            body: Bytes::from(body),
            transport_id: None,
            redelivered: false,
            set: None,
        };
        let bytes = value.len();
        if bytes > max_bytes {
            let reason = format!("it has {bytes} bytes, and limits.body_bytes is {max_bytes}");
            let rejection = Rejection::unprocessable(Location::Message, reason);
            let start: String = value.chars().take(EXCERPT).collect();
            return ReceivedMessage::Unreadable { incoming: incoming(start), rejection, encoded: false };
        }
        ReceivedMessage::Readable(incoming(match element.member {
            Member::Object(journal) => {
                format!("{{\"object\":{{\"journal\":\"{journal}\",\"registered\":{value}}}}}")
            }
            Member::Change => format!("{{\"change\":{value}}}"),
            Member::Repeat => format!("{{\"repeat\":{value}}}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangePage, Element, MAX_ELEMENTS, Member};

    fn page(changes: usize) -> String {
        let changes = vec!["{\"seq\": 1}"; changes].join(" , ");
        format!("{{\"next\":7,\"changes\":[{changes}],\"journal\":\"00000000-0000-0000-0000-000000000001\"}}")
    }

    #[test]
    fn elements_are_places_in_the_text() {
        let text = page(3);
        let page: ChangePage<'_> = serde_json::from_str(&text).unwrap();
        let elements = page.changes.iter().map(|change| Element::new(&text, change, Member::Change));
        let found: Vec<_> = elements.map(|element| &text[element.from..element.to]).collect();
        assert_eq!(found, ["{\"seq\": 1}"; 3]);
    }

    #[test]
    fn page_has_a_number_of_elements() {
        assert!(serde_json::from_str::<ChangePage<'_>>(&page(MAX_ELEMENTS)).is_ok());
        let text = page(MAX_ELEMENTS + 1);
        let refused = serde_json::from_str::<ChangePage<'_>>(&text).err().unwrap();
        assert!(refused.to_string().contains("a page has more than 10000 elements"), "{refused}");
    }
}
