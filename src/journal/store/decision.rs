//! The result of settling a batch, for the store to write in the batch's transaction.

use super::{EventKey, NewChange, UriSet};
use crate::{
    journal::{
        registry::ObjectState,
        seed::{Filled, Walk},
    },
    model::{Seq, SubscriptionName, Timestamp, Uri},
};

/// The rows that a batch writes.
#[derive(Debug)]
pub struct Decision {
    /// New changes, numbered on from the head without a gap.
    pub changes: Vec<NewChange>,
    /// Keys of events without effect, so that a repeat is known.
    pub unchanged: Vec<EventKey>,
    /// Time of receipt of the batch.
    pub received: Timestamp,
    /// Objects of the registry that the batch touched, each once, in order of their URIs.
    pub objects: Vec<TouchedObject>,
    /// Cursors of subscriptions, which only move forward.
    pub cursors: Vec<(SubscriptionName, Seq)>,
    /// Incomplete changes about which their repositories need not be asked again.
    pub completed: Vec<Seq>,
    /// New facts that crawls found about objects, which are among [`Decision::objects`]. No change has them, so the store
    /// keeps them in their place: after the changes of this batch.
    pub seeds: Vec<Seed>,
    /// Progress of the crawls.
    pub walks: Vec<Walk>,
}

/// New facts that a crawl found about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// URI of the object.
    pub object: Uri,
    /// The new facts.
    pub filled: Filled,
}

/// An object that a batch touched.
#[derive(Debug)]
pub struct TouchedObject {
    /// URI of the object.
    pub uri: Uri,
    /// Whether the batch touched the object itself: its parent, its types, the time of its purge.
    pub itself: bool,
    /// State of the object after the batch, with at least the items in `items`.
    pub state: ObjectState,
    /// The items that the batch touched.
    pub items: UriSet,
    /// Number of items that the registry has of the object after the batch; `None` where nobody counted them.
    pub item_count: Option<usize>,
}

impl Decision {
    /// A decision that writes nothing.
    #[must_use]
    pub fn nothing(received: Timestamp) -> Self {
        let (changes, unchanged, objects, cursors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (completed, seeds, walks) = (Vec::new(), Vec::new(), Vec::new());
        Self { changes, unchanged, received, objects, cursors, completed, seeds, walks }
    }
}
