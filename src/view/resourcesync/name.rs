//! Names of the documents. A name and the journal decide what a document contains, so each node of a cluster can write it.

use std::fmt;

use crate::{
    journal::acceptance::{AcceptanceTime, AcceptedPosition},
    model::Seq,
};

/// Path of the source description (section 6.3.1).
pub(super) const DESCRIPTION_PATH: &str = "/.well-known/resourcesync";

/// Word before the number of a change list.
pub(super) const CHANGE_LIST_WORD: &str = "changelist";

/// A document below `/resourcesync/`.
///
/// Numbers have leading zeros, because clients read the parts of an index in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentName {
    /// The capability list.
    CapabilityList,
    /// The index of the resource lists.
    ResourceLists,
    /// A part of the resource list.
    ResourceList(PartPosition),
    /// The index of the change lists.
    ChangeLists,
    /// The change list that begins with the change of this number.
    ChangeList(Seq),
    /// The topic of the notifications.
    Notifications,
}

/// Position of a part of a resource list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPosition {
    /// Number of the newest change when the list was made.
    pub head: Seq,
    /// Position in the order of acceptance after which the part begins.
    pub after: AcceptedPosition,
}

/// Number of the row in a position that is after all objects of its time.
pub(super) const AFTER_ALL: i64 = i64::MAX;

impl PartPosition {
    /// Returns the numbers in the name of the part.
    pub(super) fn numbers(&self) -> String {
        let Self { head, after: AcceptedPosition { time, object } } = self;
        let of_time = format!("{:016}-{:016}", head.0, time.0);
        if *object == AFTER_ALL { of_time } else { format!("{of_time}-{object:012}") }
    }
}

impl DocumentName {
    /// Parses a name; `None` if there is no such document.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".xml")?;
        let parsed = match stem.split_once('-') {
            None => Self::simple(stem)?,
            Some((CHANGE_LIST_WORD, first)) => Self::ChangeList(Seq(first.parse().ok()?)),
            Some(("resourcelist", position)) => {
                let mut numbers = position.split('-');
                let head = Seq(numbers.next()?.parse().ok()?);
                let time = AcceptanceTime(numbers.next()?.parse().ok()?);
                let object = numbers.next().map_or(Some(AFTER_ALL), |object| object.parse().ok())?;
                Self::ResourceList(PartPosition { head, after: AcceptedPosition { time, object } })
            }
            Some(_) => return None,
        };
        // One document has one name.
        Some(parsed).filter(|parsed| parsed.to_string() == name)
    }

    fn simple(stem: &str) -> Option<Self> {
        match stem {
            "capabilitylist" => Some(Self::CapabilityList),
            "resourcelist" => Some(Self::ResourceLists),
            "changelist" => Some(Self::ChangeLists),
            "notifications" => Some(Self::Notifications),
            _ => None,
        }
    }
}

impl fmt::Display for DocumentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapabilityList => f.write_str("capabilitylist.xml"),
            Self::ResourceLists => f.write_str("resourcelist.xml"),
            Self::ResourceList(part) => write!(f, "resourcelist-{}.xml", part.numbers()),
            Self::ChangeLists => f.write_str("changelist.xml"),
            Self::ChangeList(first) => write!(f, "{CHANGE_LIST_WORD}-{:016}.xml", first.0),
            Self::Notifications => f.write_str("notifications.xml"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AFTER_ALL, AcceptanceTime, AcceptedPosition, DocumentName, PartPosition, Seq};

    fn part(head: u64, time: i64, object: i64) -> DocumentName {
        let after = AcceptedPosition { time: AcceptanceTime(time), object };
        DocumentName::ResourceList(PartPosition { head: Seq(head), after })
    }

    #[test]
    fn each_document_has_one_name() {
        for (document, name) in [
            (DocumentName::CapabilityList, "capabilitylist.xml"),
            (DocumentName::ResourceLists, "resourcelist.xml"),
            (DocumentName::ChangeLists, "changelist.xml"),
            (DocumentName::Notifications, "notifications.xml"),
            (DocumentName::ChangeList(Seq(10_001)), "changelist-0000000000010001.xml"),
            (part(7, 0, AFTER_ALL), "resourcelist-0000000000000007-0000000000000000.xml"),
            (part(7, 5, 6), "resourcelist-0000000000000007-0000000000000005-000000000006.xml"),
        ] {
            assert_eq!((document.to_string(), DocumentName::parse(name)), (name.to_owned(), Some(document)));
        }
        for other in [
            "",
            "changelist",
            "changelist-1.xml",
            "changelist-+000000000000001.xml",
            "changelist-00000000000000001.xml",
            "resourcelist-0000000000000007.xml",
            "resourcelist-0000000000000007-0000000000000005-000000000006-1.xml",
            "other.xml",
            "a-b.xml",
        ] {
            assert_eq!(DocumentName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let names = |documents: &[DocumentName]| -> Vec<String> { documents.iter().map(ToString::to_string).collect() };
        assert!(names(&[9, 10, 176_000_000_000_000].map(|first| DocumentName::ChangeList(Seq(first)))).is_sorted());
        assert!(names(&[part(1, 9, AFTER_ALL), part(1, 10, 3), part(1, 10, AFTER_ALL), part(1, 11, 2)]).is_sorted());
    }
}
