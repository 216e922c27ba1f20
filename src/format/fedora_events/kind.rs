//! What an event says was done, in the words of every Fedora generation.

use std::collections::BTreeSet;

use crate::format::json_ld::{ACTIVITY_STREAMS, namespace_and_local};

/// What was done to a resource. The order is that of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It is new.
    Create,
    /// Its content or its properties are new.
    Update,
    /// It has come from another path.
    Move,
    /// It is gone.
    Delete,
    /// Its tombstone is gone (Fedora 6).
    Purge,
    /// Another resource refers to it (Fedora 5 and 6, `INBOUND_REFERENCE`).
    Follow,
    /// A session was saved (Fedora 4.0–4.5): it tells of nothing by itself.
    Persist,
}

/// Namespaces and prefixes of ActivityStreams 2: Fedora 5, 6 and Trellis.
const ACTIVITY: &[&str] = &["as:", ACTIVITY_STREAMS[0], ACTIVITY_STREAMS[1]];
/// Fedora 4.6 and 4.7.
const EVENT: &[&str] = &["http://fedora.info/definitions/v4/event#", "event:"];
/// Fedora 4.0–4.5.
const REPOSITORY: &[&str] = &["http://fedora.info/definitions/v4/repository#", "fedora:"];

/// Every name, and the namespaces that it may have. It may have none as well.
const NAMES: [(&[&str], &str, Kind); 16] = [
    (ACTIVITY, "Create", Kind::Create),
    (ACTIVITY, "Update", Kind::Update),
    (ACTIVITY, "Move", Kind::Move),
    (ACTIVITY, "Delete", Kind::Delete),
    (ACTIVITY, "Follow", Kind::Follow),
    (EVENT, "ResourceCreation", Kind::Create),
    (EVENT, "ResourceModification", Kind::Update),
    (EVENT, "ResourceRelocation", Kind::Move),
    (EVENT, "ResourceDeletion", Kind::Delete),
    (REPOSITORY, "NODE_ADDED", Kind::Create),
    (REPOSITORY, "NODE_MOVED", Kind::Move),
    (REPOSITORY, "NODE_REMOVED", Kind::Delete),
    (REPOSITORY, "PROPERTY_ADDED", Kind::Update),
    (REPOSITORY, "PROPERTY_CHANGED", Kind::Update),
    (REPOSITORY, "PROPERTY_REMOVED", Kind::Update),
    (REPOSITORY, "PERSIST", Kind::Persist),
];

impl Kind {
    /// The kind of that name; `None` for types that say nothing of it, such as `prov:Activity`.
    fn parse(name: &str) -> Option<Self> {
        let (namespace, local) = namespace_and_local(name.trim());
        if local == "Purge" {
            // It is no term of ActivityStreams 2, so that no namespace is the right one.
            return Some(Self::Purge);
        }
        let named =
            |row: &&(&[&str], &str, Self)| row.1 == local && (namespace.is_empty() || row.0.contains(&namespace));
        NAMES.iter().find(named).map(|(_, _, kind)| *kind)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Move => "Move",
            Self::Delete => "Delete",
            Self::Purge => "Purge",
            Self::Follow => "Follow",
            Self::Persist => "Persist",
        }
    }
}

/// All that one event says was done: Fedora makes one event of a transaction's many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kinds(BTreeSet<Kind>);

/// What became of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is new.
    Added,
    /// It is there, and was changed or is new.
    Changed,
    /// It is gone.
    Gone,
    /// It is as it was, for the reason given.
    Untouched(&'static str),
}

impl Kinds {
    /// The kinds among `names`; `None` when there is none.
    pub(super) fn parse<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<Self> {
        let kinds: BTreeSet<_> = names.into_iter().filter_map(Kind::parse).collect();
        (!kinds.is_empty()).then_some(Self(kinds))
    }

    /// What they come to. The event does not tell their order, so what is deleted among other things
    /// is gone: the Camel toolbox, Fedora's own consumer, looks for a deletion first too. A tombstone
    /// that is removed makes way for what is created in its place.
    pub(super) fn outcome(&self) -> Outcome {
        let any = |kinds: &[Kind]| kinds.iter().any(|kind| self.0.contains(kind));
        if any(&[Kind::Delete]) {
            Outcome::Gone
        } else if any(&[Kind::Create]) {
            Outcome::Added
        } else if any(&[Kind::Purge]) {
            Outcome::Gone
        } else if any(&[Kind::Update, Kind::Move]) {
            Outcome::Changed
        } else if any(&[Kind::Follow]) {
            Outcome::Untouched("another resource refers to this one; it did not change itself")
        } else {
            Outcome::Untouched("a session was saved; what changed in it is told by other events")
        }
    }

    /// The kinds in words.
    pub(super) fn description(&self) -> String {
        self.0.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Kinds, NAMES, Outcome};

    #[test]
    fn every_name_may_be_short_prefixed_or_whole() {
        for (namespaces, local, kind) in NAMES {
            assert_eq!(Kind::parse(local), Some(kind));
            for namespace in namespaces {
                assert_eq!(Kind::parse(&format!("{namespace}{local}")), Some(kind));
            }
        }
        assert_eq!(Kind::parse("http://fedora.info/definitions/v4/event#Purge"), Some(Kind::Purge));
    }

    #[test]
    fn other_types_say_nothing() {
        for name in ["", "Activity", "create", "http://www.w3.org/ns/prov#Activity", "urn:x#Create", "as:NODE_ADDED"] {
            assert_eq!(Kind::parse(name), None, "{name}");
        }
    }

    #[test]
    fn several_kinds_come_to_one_outcome() {
        let outcome = |names: &[&str]| Kinds::parse(names.iter().copied()).unwrap().outcome();
        assert_eq!(outcome(&["Create", "Update", "Delete"]), Outcome::Gone);
        assert_eq!(outcome(&["Purge"]), Outcome::Gone);
        assert_eq!(outcome(&["Follow", "Update", "Create"]), Outcome::Added);
        assert_eq!(outcome(&["PERSIST", "PROPERTY_REMOVED"]), Outcome::Changed);
        assert_eq!(outcome(&["Move"]), Outcome::Changed);
        assert!(matches!(outcome(&["Follow"]), Outcome::Untouched(_)));
        assert!(matches!(outcome(&["PERSIST"]), Outcome::Untouched(_)));
    }

    #[test]
    fn a_description_does_not_depend_on_the_order_of_the_message() {
        let kinds = Kinds::parse(["Follow", "Update", "Create", "Update"]).unwrap();
        assert_eq!(kinds.description(), "Create, Update, Follow");
    }
}
