//! What the writer asks of the store before it settles a batch, and the answers.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};

use super::{EventKey, UriSet};
use crate::{
    journal::registry::ObjectState,
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// What is done while the writer asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing is written.
    Idle,
    /// A batch is written, or will be in a moment, and is not to be held up.
    Writing,
}

/// What the writer must know before it can decide on a batch.
#[derive(Debug, Default)]
pub struct Questions {
    /// Which of these events are known?
    pub keys: Vec<EventKey>,
    /// Which of these events are known to have changed nothing?
    pub unchanged: Vec<EventKey>,
    /// Which of these identifiers are taken?
    pub ids: Vec<ChangeId>,
    /// What is known of these objects and of which of their items?
    pub objects: HashMap<Uri, ItemsAsked>,
}

/// Which items of an object are asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum ItemsAsked {
    /// All.
    All,
    /// These.
    Some(UriSet),
}

/// The answers.
#[derive(Debug, Default)]
pub struct Known {
    /// The number of the newest change.
    pub head: Seq,
    /// When the newest change was received.
    pub received: Option<Timestamp>,
    /// The events that are known, with the number of their change, and its identifier where the
    /// change is still there.
    pub seen: HashMap<EventKey, (Seq, Option<ChangeId>)>,
    /// The events that are known to have changed nothing.
    pub unchanged: HashSet<EventKey>,
    /// The identifiers that are taken.
    pub taken: HashSet<ChangeId>,
    /// The objects that are known, with the items asked for.
    pub objects: HashMap<Uri, KnownObject>,
}

/// An object of the registry.
#[derive(Clone, Debug, Default)]
pub struct KnownObject {
    /// What the store finds it by; `None` where it knows none yet.
    pub(in crate::journal) number: Option<i64>,
    /// What is known of it, and of the items asked for. What is in memory already is shared until it changes.
    pub state: Arc<ObjectState>,
}

impl ItemsAsked {
    /// Asks for these items.
    pub fn these(items: impl IntoIterator<Item = Uri>) -> Self {
        Self::Some(items.into_iter().collect())
    }

    /// Whether this item is asked for.
    #[must_use]
    pub fn asks(&self, item: &Uri) -> bool {
        match self {
            Self::All => true,
            Self::Some(items) => items.contains(item),
        }
    }

    /// Asks for what either asks for.
    pub(in crate::journal) fn widen(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (held, Self::All) => *held = Self::All,
            (Self::Some(held), Self::Some(more)) => held.extend(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemsAsked, Uri};

    #[test]
    fn items_are_asked_for_once_and_in_order_however_they_come() {
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
        assert!(asked.asks(&uri("d")) && !asked.asks(&uri("f")));
        asked.widen(ItemsAsked::All);
        asked.widen(these(&["a"]));
        assert!(asked == ItemsAsked::All && asked.asks(&uri("f")));
    }
}
