//! Kinds of events, in the vocabularies of all Fedora generations.

use std::collections::BTreeSet;

use crate::format::json_ld::{ACTIVITY_STREAMS, namespace_and_local};

/// Kind of event. Descriptions list kinds in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventKind {
    /// The resource was created.
    Create,
    /// Its content or properties were changed.
    Update,
    /// The resource was moved here from another path.
    Move,
    /// The resource was deleted.
    Delete,
    /// The tombstone of the resource was removed (Fedora 6).
    Purge,
    /// Another resource now refers to it (Fedora 5 and 6, `INBOUND_REFERENCE`).
    Follow,
    /// A session was saved (Fedora 4.0–4.5); this alone reports no change.
    Persist,
}

/// Namespaces and prefixes of ActivityStreams 2: Fedora 5, 6 and Trellis.
const ACTIVITY: &[&str] = &["as:", ACTIVITY_STREAMS[0], ACTIVITY_STREAMS[1]];
/// Fedora 4.6 and 4.7.
const EVENT: &[&str] = &["http://fedora.info/definitions/v4/event#", "event:"];
/// Fedora 4.0–4.5.
const REPOSITORY: &[&str] = &["http://fedora.info/definitions/v4/repository#", "fedora:"];

/// All names with their possible namespaces. A name may also have no namespace.
const NAMES: [(&[&str], &str, EventKind); 16] = [
    (ACTIVITY, "Create", EventKind::Create),
    (ACTIVITY, "Update", EventKind::Update),
    (ACTIVITY, "Move", EventKind::Move),
    (ACTIVITY, "Delete", EventKind::Delete),
    (ACTIVITY, "Follow", EventKind::Follow),
    (EVENT, "ResourceCreation", EventKind::Create),
    (EVENT, "ResourceModification", EventKind::Update),
    (EVENT, "ResourceRelocation", EventKind::Move),
    (EVENT, "ResourceDeletion", EventKind::Delete),
    (REPOSITORY, "NODE_ADDED", EventKind::Create),
    (REPOSITORY, "NODE_MOVED", EventKind::Move),
    (REPOSITORY, "NODE_REMOVED", EventKind::Delete),
    (REPOSITORY, "PROPERTY_ADDED", EventKind::Update),
    (REPOSITORY, "PROPERTY_CHANGED", EventKind::Update),
    (REPOSITORY, "PROPERTY_REMOVED", EventKind::Update),
    (REPOSITORY, "PERSIST", EventKind::Persist),
];

impl EventKind {
    /// Parses a type name; `None` for types that are no kind of event, such as `prov:Activity`.
    fn parse(name: &str) -> Option<Self> {
        let (namespace, local) = namespace_and_local(name.trim());
        if local == "Purge" {
            // Accepted in any namespace, because ActivityStreams 2 does not define this term.
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

/// All kinds of one event, because Fedora merges the events of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventKinds(BTreeSet<EventKind>);

/// Effect of an event on its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceChange {
    /// The resource is new.
    Added,
    /// The resource exists, and is changed or new.
    Changed,
    /// The resource is deleted.
    Gone,
    /// The resource is unchanged, for this reason.
    Unchanged(&'static str),
}

impl EventKinds {
    /// Parses the kinds among `names`; `None` if there is none.
    pub(super) fn parse<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<Self> {
        let kinds: BTreeSet<_> = names.into_iter().filter_map(EventKind::parse).collect();
        (!kinds.is_empty()).then_some(Self(kinds))
    }

    /// Returns the combined effect. The event does not give the order of its kinds, so a deletion takes
    /// precedence, as in the Camel toolbox, Fedora's own consumer. A removed tombstone gives way to a creation
    /// in its place.
    pub(super) fn resource_change(&self) -> ResourceChange {
        let any = |kinds: &[EventKind]| kinds.iter().any(|kind| self.0.contains(kind));
        if any(&[EventKind::Delete]) {
            ResourceChange::Gone
        } else if any(&[EventKind::Create]) {
            ResourceChange::Added
        } else if any(&[EventKind::Purge]) {
            ResourceChange::Gone
        } else if any(&[EventKind::Update, EventKind::Move]) {
            ResourceChange::Changed
        } else if any(&[EventKind::Follow]) {
            ResourceChange::Unchanged("another resource refers to this one; it did not change itself")
        } else {
            ResourceChange::Unchanged("a session was saved; other events report its changes")
        }
    }

    /// Returns the names of the kinds.
    pub(super) fn description(&self) -> String {
        self.0.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::{EventKind, EventKinds, NAMES, ResourceChange};

    #[test]
    fn every_name_may_be_short_prefixed_or_full() {
        for (namespaces, local, kind) in NAMES {
            assert_eq!(EventKind::parse(local), Some(kind));
            for namespace in namespaces {
                assert_eq!(EventKind::parse(&format!("{namespace}{local}")), Some(kind));
            }
        }
        assert_eq!(EventKind::parse("http://fedora.info/definitions/v4/event#Purge"), Some(EventKind::Purge));
    }

    #[test]
    fn other_types_are_no_event_kinds() {
        for name in ["", "Activity", "create", "http://www.w3.org/ns/prov#Activity", "urn:x#Create", "as:NODE_ADDED"] {
            assert_eq!(EventKind::parse(name), None, "{name}");
        }
    }

    #[test]
    fn several_kinds_have_one_combined_effect() {
        let outcome = |names: &[&str]| EventKinds::parse(names.iter().copied()).unwrap().resource_change();
        assert_eq!(outcome(&["Create", "Update", "Delete"]), ResourceChange::Gone);
        assert_eq!(outcome(&["Purge"]), ResourceChange::Gone);
        assert_eq!(outcome(&["Follow", "Update", "Create"]), ResourceChange::Added);
        assert_eq!(outcome(&["PERSIST", "PROPERTY_REMOVED"]), ResourceChange::Changed);
        assert_eq!(outcome(&["Move"]), ResourceChange::Changed);
        assert!(matches!(outcome(&["Follow"]), ResourceChange::Unchanged(_)));
        assert!(matches!(outcome(&["PERSIST"]), ResourceChange::Unchanged(_)));
    }

    #[test]
    fn description_is_independent_of_message_order() {
        let kinds = EventKinds::parse(["Follow", "Update", "Create", "Update"]).unwrap();
        assert_eq!(kinds.description(), "Create, Update, Follow");
    }
}
