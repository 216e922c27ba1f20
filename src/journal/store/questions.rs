//! The facts that a batch is settled on: the writer's questions to the store, and the answers.

use foldhash::{HashMap, HashSet};

use super::{EventKey, UriSet};
use crate::{
    journal::registry::ObjectState,
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// The keys, identifiers and objects that a batch names.
#[derive(Debug, Default)]
pub struct Questions {
    /// Keys of events that may have made changes.
    pub keys: Vec<EventKey>,
    /// Keys of events that may have been recorded as without effect.
    pub unchanged: Vec<EventKey>,
    /// Identifiers of changes that may be in use.
    pub ids: Vec<ChangeId>,
    /// Objects of the registry, with the items of each that the batch names.
    pub objects: HashMap<Uri, ItemsAsked>,
}

/// The items of an object that a question names.
#[derive(Debug, PartialEq, Eq)]
pub enum ItemsAsked {
    /// All items of the object.
    All,
    /// The items with these URIs.
    Some(UriSet),
}

/// The answers of the store to [`Questions`].
#[derive(Debug, Default)]
pub struct Known {
    /// Number of the newest change.
    pub head: Seq,
    /// Time at which the newest change was received.
    pub received: Option<Timestamp>,
    /// Known events: the number of the change that each made, and its identifier unless retention removed the change.
    pub seen: HashMap<EventKey, (Seq, Option<ChangeId>)>,
    /// Events that were recorded as without effect.
    pub unchanged: HashSet<EventKey>,
    /// Identifiers that are in use.
    pub taken: HashSet<ChangeId>,
    /// Known objects, each with the items that the question names.
    pub objects: HashMap<Uri, KnownObject>,
}

/// An object of the registry, with some of its items.
#[derive(Clone, Debug, Default)]
pub struct KnownObject {
    /// State of the object and of the items that the question names.
    pub state: ObjectState,
    /// Number of items that the registry has of the object besides those in `state`. The store counts them only where the
    /// question names an item that the registry lacks, because only then can the object get more items.
    pub others: Option<usize>,
}

impl ItemsAsked {
    /// Asks for the items with these URIs.
    pub fn these(items: impl IntoIterator<Item = Uri>) -> Self {
        Self::Some(items.into_iter().collect())
    }

    /// Asks for the items that either of two questions names.
    pub(in crate::journal) fn widen(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (asked, Self::All) => *asked = Self::All,
            (Self::Some(asked), Self::Some(more)) => asked.extend(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemsAsked, Uri};

    #[test]
    fn items_are_asked_for_once_and_in_order() {
        let uri = |name: &str| Uri::parse(&format!("http://h/{name}")).unwrap();
        let these = |names: &[&str]| ItemsAsked::these(names.iter().map(|name| uri(name)));
        let listed = |asked: &ItemsAsked| match asked {
            ItemsAsked::All => panic!("all are asked for"),
            ItemsAsked::Some(items) => items.as_slice().to_vec(),
        };
        let mut asked = these(&["c", "a", "c"]);
        assert_eq!(listed(&asked), [uri("a"), uri("c")]);
        for (more, all) in [
            (these(&["b"]), &["a", "b", "c"][..]),
            (these(&["b"]), &["a", "b", "c"]),
            (these(&["e", "b", "d"]), &["a", "b", "c", "d", "e"]),
        ] {
            asked.widen(more);
            assert_eq!(listed(&asked), all.iter().map(|name| uri(name)).collect::<Vec<_>>());
        }
        asked.widen(ItemsAsked::All);
        asked.widen(these(&["a"]));
        assert!(asked == ItemsAsked::All);
    }
}
