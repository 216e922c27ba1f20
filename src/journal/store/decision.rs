//! What the writer decided, for the store to write in one transaction.

use std::{collections::BTreeSet, sync::Arc};

use super::{EventKey, KnownObject, NewChange};
use crate::{
    journal::seed::{Filled, Walk},
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
    pub objects: Arc<[Touched]>,
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
        let (changes, unchanged, objects, cursors) = (Vec::new(), Vec::new(), Arc::default(), Vec::new());
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
#[derive(Clone, Debug)]
pub struct Touched {
    /// The object.
    pub uri: Uri,
    /// As it is now.
    pub object: KnownObject,
    /// Whether the object itself was touched: its parent, its types, when it was purged.
    pub itself: bool,
    /// Which of its items were.
    pub items: BTreeSet<Uri>,
    /// What of it events confirmed that changed nothing. They are not in the journal, so this is to be
    /// kept by itself.
    pub confirmed: Confirmed,
}

/// What of an object was confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// That it was purged.
    pub purged: bool,
    /// Facts of these items, which are among those touched.
    pub items: BTreeSet<Uri>,
}
