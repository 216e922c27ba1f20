//! Prefetching for a batch: the keys that the writer asks the store for, and the rows that the store returns.

use foldhash::{HashMap, HashSet};

use super::{EventKey, UriSet};
use crate::{
    journal::{acceptance::AcceptanceTime, nodes::Term, registry::ObjectState},
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// Event keys, identifiers and objects that a batch refers to.
#[derive(Debug, Default)]
pub struct PrefetchKeys {
    /// Keys of events that may have made changes.
    pub keys: Vec<EventKey>,
    /// Keys of events that the store may have recorded as without effect.
    pub unchanged: Vec<EventKey>,
    /// Identifiers that changes may have already.
    pub ids: Vec<ChangeId>,
    /// Objects of the registry, with the items to read of each.
    pub objects: ObjectSelection,
    /// Terms of duties that the batch writes for.
    pub terms: Vec<Term>,
}

/// Objects to read, with the items to read of each.
pub type ObjectSelection = HashMap<Uri, ItemSelection>;

/// Items to read of one object.
#[derive(Debug, PartialEq, Eq)]
pub enum ItemSelection {
    /// All items of the object.
    All,
    /// The items with these URIs.
    Some(UriSet),
}

/// Rows that the store has for [`PrefetchKeys`].
#[derive(Debug, Default)]
pub struct PrefetchedRows {
    /// Number after which the next change is numbered.
    pub head: Seq,
    /// Number of the newest stored change; smaller than `head` after a restore.
    pub stored_head: Seq,
    /// Time of receipt of the newest change.
    pub received: Option<Timestamp>,
    /// Newest time of acceptance of the registry.
    pub accepted: AcceptanceTime,
    /// Present time by the clock of the store, if several nodes share it. The clocks of the nodes may disagree.
    pub now: Option<Timestamp>,
    /// First change of each event: its number, and the change unless retention has removed it.
    pub first_changes: HashMap<EventKey, (Seq, Option<FirstChange>)>,
    /// Events that the store has recorded as without effect.
    pub unchanged: HashSet<EventKey>,
    /// Identifiers that changes have already.
    pub used_ids: HashSet<ChangeId>,
    /// Objects, each with the selected items.
    pub objects: HashMap<Uri, PrefetchedObject>,
    /// Terms that have ended. All others stay valid until the end of the transaction.
    pub stale_terms: Vec<Term>,
}

/// The first change of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstChange {
    /// Identifier of the change.
    pub id: ChangeId,
    /// Object of the change; `None` if its JSON is damaged.
    pub object: Option<Uri>,
}

impl FirstChange {
    /// Takes the object from the stored JSON of the change. Only the member of the change itself has this spelling: within a
    /// string, a quotation mark follows a backslash.
    #[must_use]
    pub fn of_json(id: ChangeId, json: &str) -> Self {
        let object = json.split_once("\"object\":\"").and_then(|(_, rest)| rest.split('"').next());
        Self { id, object: object.and_then(|object| Uri::parse(object).ok()) }
    }
}

/// An object of the registry with the selected items.
#[derive(Clone, Debug, Default)]
pub struct PrefetchedObject {
    /// State of the object and of the selected items.
    pub state: ObjectState,
    /// Number of items in the registry besides those in `state`. The store counts them only if the selection names
    /// an item that the registry lacks, because only then can the object get more items.
    pub other_items: Option<usize>,
}

impl ItemSelection {
    /// Selects the items with these URIs.
    pub fn these(items: impl IntoIterator<Item = Uri>) -> Self {
        Self::Some(items.into_iter().collect())
    }

    /// Extends the selection by the items of another one.
    pub fn widen(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (selection, Self::All) => *selection = Self::All,
            (Self::Some(items), Self::Some(more)) => items.extend(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemSelection, Uri};

    #[test]
    fn selected_items_are_unique_and_in_order() {
        let uri = |name: &str| Uri::parse(&format!("http://h/{name}")).unwrap();
        let these = |names: &[&str]| ItemSelection::these(names.iter().map(|name| uri(name)));
        let listed = |selection: &ItemSelection| match selection {
            ItemSelection::All => panic!("all items are selected"),
            ItemSelection::Some(items) => items.as_slice().to_vec(),
        };
        let mut selection = these(&["c", "a", "c"]);
        assert_eq!(listed(&selection), [uri("a"), uri("c")]);
        for (more, all) in [
            (these(&["b"]), &["a", "b", "c"][..]),
            (these(&["b"]), &["a", "b", "c"]),
            (these(&["e", "b", "d"]), &["a", "b", "c", "d", "e"]),
        ] {
            selection.widen(more);
            assert_eq!(listed(&selection), all.iter().map(|name| uri(name)).collect::<Vec<_>>());
        }
        selection.widen(ItemSelection::All);
        selection.widen(these(&["a"]));
        assert!(selection == ItemSelection::All);
    }
}
