//! What the writer decided, for the store to write in one transaction.

use std::{collections::BTreeSet, sync::Arc};

use super::{EventKey, KnownObject, NewChange, Packed, UriSet, packed::Packing};
use crate::{
    journal::{
        registry::ObjectState,
        seed::{Filled, Walk},
    },
    model::{Seq, SubscriptionName, Timestamp, Uri},
};

/// What the writer decided to write.
#[derive(Debug)]
pub struct Decision {
    /// The changes, numbered on from the head without a gap.
    pub changes: Vec<NewChange>,
    /// The events that changed nothing, and are to be known again.
    pub unchanged: Vec<EventKey>,
    /// When all this was received.
    pub received: Timestamp,
    /// The objects that changes or confirmations touched, each once, in order of their URIs.
    pub objects: Vec<Touched>,
    /// Subscriptions whose cursors go forward.
    pub cursors: Vec<(SubscriptionName, Seq)>,
    /// Changes about which their repositories need not be asked any more.
    pub completed: Vec<Seq>,
    /// What walks told of objects, which are among those touched. It is in no change, so it is to be kept by itself,
    /// in its place after the changes of this decision.
    pub seeds: Vec<Seed>,
    /// How far the walks are.
    pub walks: Vec<Walk>,
}

/// What a walk told the registry of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The object.
    pub object: Uri,
    /// What was new of it.
    pub filled: Filled,
}

impl Decision {
    /// The decision to write nothing.
    #[must_use]
    pub fn nothing(received: Timestamp) -> Self {
        let (changes, unchanged, objects, cursors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (completed, seeds, walks) = (Vec::new(), Vec::new(), Vec::new());
        Self { changes, unchanged, received, objects, cursors, completed, seeds, walks }
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { changes, unchanged, received: _, objects, cursors, completed, seeds, walks } = self;
        let is_nothing_new = changes.is_empty() && unchanged.is_empty() && objects.is_empty();
        is_nothing_new && cursors.is_empty() && completed.is_empty() && seeds.is_empty() && walks.is_empty()
    }
}

/// What is to be written of an object.
#[derive(Debug)]
pub struct Touched {
    /// The object.
    pub uri: Uri,
    /// What the store finds it by; `None` where it knows none yet.
    pub(super) number: Option<i64>,
    /// Whether the object itself was touched: its parent, its types, when it was purged.
    pub itself: bool,
    /// As it is now.
    pub object: Packed,
    /// The items that were touched, in order of their URIs, as they are now.
    pub items: Vec<(Uri, Packed)>,
    /// What of it events confirmed that changed nothing. They are not in the journal, so this is to be
    /// kept by itself.
    pub confirmed: Option<Confirmed>,
}

/// What of an object was confirmed.
#[derive(Debug)]
pub struct Confirmed {
    /// The object as it is now.
    pub state: Arc<ObjectState>,
    /// Whether it is that it was purged.
    pub purged: bool,
    /// Items of which facts were confirmed.
    pub items: BTreeSet<Uri>,
}

impl Touched {
    /// An object as it is now, with those of its items that were touched.
    #[must_use]
    pub fn new(uri: Uri, object: &KnownObject, itself: bool, items: UriSet, confirmed: Option<Confirmed>) -> Self {
        Touching::default().object(uri, object, itself, items, confirmed)
    }
}

/// Makes [`Touched`], one after the other.
#[derive(Default)]
pub(in crate::journal) struct Touching(Packing);

impl Touching {
    /// As [`Touched::new`].
    pub(in crate::journal) fn object(
        &mut self,
        uri: Uri,
        object: &KnownObject,
        itself: bool,
        items: UriSet,
        confirmed: Option<Confirmed>,
    ) -> Touched {
        let KnownObject { number, state } = object;
        let object = Packed::object(state, &mut self.0);
        let packed = |uri: Uri| {
            let packed = Packed::item(state.items.get(&uri)?, &mut self.0);
            Some((uri, packed))
        };
        let items = items.into_iter().filter_map(packed).collect();
        Touched { uri, number: *number, itself, object, items, confirmed }
    }
}
