//! The rows that the store writes in the transaction of a batch.

use super::{EventKey, NewChange, UriSet};
use crate::{
    journal::{
        acceptance::{AcceptanceTime, ObjectNews},
        harvest::{HarvestProgress, SourcePosition},
        ingest::IngestJob,
        registry::ObjectState,
        seed::{CrawlProgress, RegistryDelta},
        subscriptions::CursorAdvance,
    },
    model::{Seq, Timestamp, Uri},
};

/// Rows to write for one batch.
#[derive(Debug)]
pub struct WriteBatch {
    /// New changes, numbered from the head without a gap.
    pub changes: Vec<NewChange>,
    /// Keys of events without effect, so that their repeats are detected.
    pub unchanged: Vec<EventKey>,
    /// Time of receipt of the batch.
    pub received: Timestamp,
    /// Time of acceptance of the new facts of the batch, later than those of all batches before it.
    pub accepted: AcceptanceTime,
    /// Registry objects that the batch changed, each once, in order of their URIs.
    pub objects: Vec<ObjectUpdate>,
    /// Cursors of subscriptions, which only move forward.
    pub cursors: Vec<CursorAdvance>,
    /// Incomplete changes whose repositories need no further lookup.
    pub completed: Vec<Seq>,
    /// New facts from crawls about objects that [`WriteBatch::objects`] contains. No change contains these facts,
    /// so the store writes them as rows of their own, ordered after the changes of this batch.
    pub seeds: Vec<Seed>,
    /// Progress of crawls.
    pub crawls: Vec<CrawlProgress>,
    /// Progress of harvests.
    pub harvests: Vec<HarvestProgress>,
    /// Positions of sources that read brokers.
    pub positions: Vec<SourcePosition>,
    /// New and modified jobs of sources of datasets.
    pub jobs: Vec<IngestJob>,
}

/// New facts about one object from a crawl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// URI of the object.
    pub object: Uri,
    /// New facts about the object and its items.
    pub delta: RegistryDelta,
}

/// An object that a batch changed.
#[derive(Debug)]
pub struct ObjectUpdate {
    /// URI of the object.
    pub uri: Uri,
    /// Whether parent, types or time of purge changed.
    pub object_changed: bool,
    /// What the batch made of the object, which decides about its times of acceptance.
    pub news: ObjectNews,
    /// State of the object after the batch, with at least the items in `changed_items`.
    pub state: ObjectState,
    /// URIs of the items that the batch changed.
    pub changed_items: UriSet,
    /// Number of items of the object in the registry after the batch; `None` if the store has not counted them.
    pub item_count: Option<usize>,
}

impl WriteBatch {
    /// Returns a batch without rows.
    #[must_use]
    pub fn nothing(received: Timestamp) -> Self {
        let (changes, unchanged, objects, cursors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (completed, seeds, crawls) = (Vec::new(), Vec::new(), Vec::new());
        let (harvests, positions, jobs) = (Vec::new(), Vec::new(), Vec::new());
        let accepted = AcceptanceTime::from(received);
        Self {
            changes,
            unchanged,
            received,
            accepted,
            objects,
            cursors,
            completed,
            seeds,
            crawls,
            harvests,
            positions,
            jobs,
        }
    }
}
