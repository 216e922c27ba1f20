//! Seeding the registry with facts from a crawl of a repository, which no change contains.
//!
//! The clock of a seeded fact is a date of the repository: the earliest one that is known for the fact. A newer
//! event therefore wins whichever of the two arrives first, and a seeded fact never moves the registry back. An
//! event that was in flight during the crawl is not late compared with the facts that the crawl found.
//!
//! The journal stores the facts that a crawl changed ([`RegistryDelta`]), ordered between the changes. Replaying
//! changes and deltas in order rebuilds the registry without repeating any decision.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Submission,
    command::DraftOutcome,
    registry::{ItemRecord, ObjectState, Registry, Schedule, ordering_time},
};
use crate::model::{Aspect, ContentLocation, CrawledItem, CrawledObject, SourceName, State, Timestamp, Uri, is_public};

/// One part of a crawl.
#[derive(Clone, Debug)]
pub struct CrawlPart {
    /// Drafts for the facts that become changes.
    pub submission: Submission,
    /// Objects whose facts only update the registry.
    pub crawled: Vec<CrawledObject>,
    /// Progress of the crawl including this part.
    pub progress: CrawlProgress,
}

/// Outcome of one part of a crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrawlPartOutcome {
    /// Number of objects about which the registry got new facts.
    pub updated_objects: usize,
    /// Outcome of each draft of the submission.
    pub outcomes: Vec<DraftOutcome>,
    /// Whether an object would have exceeded its maximum number of items. Then nothing of the part was written.
    pub too_many_items: bool,
}

/// Progress of a crawl, written in one transaction with the facts up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlProgress {
    /// Source whose repository is crawled.
    pub source: SourceName,
    /// Unique identifier of the crawl.
    pub id: Uuid,
    /// Number of parts received.
    pub parts: u64,
    /// Position from which the crawl resumes, in a format that only the crawler knows.
    pub position: Arc<str>,
    /// Number of objects found.
    pub objects: u64,
    /// Start time of the crawl.
    pub started: Timestamp,
    /// Time of receipt of the newest part.
    pub updated: Timestamp,
    /// Whether the crawl reached the end of the repository.
    pub finished: bool,
}

/// New facts about one object and its items, as a crawl found them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryDelta {
    /// Source of the crawl, if no source has reported the object before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Dated<Uri>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Dated<Vec<Uri>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<ItemDelta>,
}

/// A fact and its clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Dated<T> {
    value: T,
    at: Timestamp,
}

/// New facts about one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ItemDelta {
    uri: Uri,
    at: Timestamp,
    /// Whether the existence of the item is a new fact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exists: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<ContentLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// Whether a change has reported the same state already.
    #[serde(rename = "heard", default, skip_serializing_if = "std::ops::Not::not")]
    announced: bool,
}

impl RegistryDelta {
    /// Returns the facts about a crawled object that the registry lacks, or has with an older clock.
    #[must_use]
    pub fn from_crawl(
        source: &SourceName,
        crawled: &CrawledObject,
        received: Timestamp,
        registered: &ObjectState,
    ) -> Self {
        let at = registered.valid_from(&crawled.object, ordering_time(crawled.at, received));
        let is_newer = |aspect| registered.is_newer(&crawled.object, aspect, at);
        let parent = crawled.parent.clone().filter(|_| is_newer(Aspect::Parent));
        let types = Some(crawled.types.clone()).filter(|types| !types.is_empty() && is_newer(Aspect::Types));
        let items = crawled.items.iter();
        let items = items.filter_map(|item| ItemDelta::from_crawl(&crawled.object, item, received, registered));
        let mut delta = Self {
            source: None,
            parent: parent.map(|value| Dated { value, at }),
            types: types.map(|value| Dated { value, at }),
            items: items.collect(),
        };
        if registered.source.is_none() && !delta.is_empty() {
            delta.source = Some(source.clone());
        }
        delta
    }

    /// Returns whether there are no new facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.changes_object() && self.items.is_empty()
    }

    /// Returns whether there are new facts about the object itself.
    #[must_use]
    pub fn changes_object(&self) -> bool {
        self.source.is_some() || self.parent.is_some() || self.types.is_some()
    }

    /// Returns the items with new facts.
    pub fn items(&self) -> impl Iterator<Item = &Uri> {
        self.items.iter().map(|item| &item.uri)
    }
}

impl ItemDelta {
    fn from_crawl(object: &Uri, crawled: &CrawledItem, received: Timestamp, registered: &ObjectState) -> Option<Self> {
        let CrawledItem { uri, content, state, .. } = crawled;
        let at = registered.valid_from(object, ordering_time(crawled.at, received));
        let is_newer = |aspect| registered.is_newer(uri, aspect, at);
        let exists = is_newer(Aspect::Existence);
        if !exists && !registered.is_live(uri) {
            return None;
        }
        let content = content.clone().filter(|_| is_newer(Aspect::Content));
        let says_nothing = |state: &State| is_public(Some(state)) && registered.is_decided_by_dates(uri);
        let state = state.clone().filter(|state| is_newer(Aspect::State) && !says_nothing(state));
        let announced = state.is_some() && registered.state(uri) == state.as_ref() && !registered.is_unannounced(uri);
        (exists || content.is_some() || state.is_some()).then(|| Self {
            uri: uri.clone(),
            at,
            exists,
            content,
            state,
            announced,
        })
    }
}

impl ObjectState {
    /// Returns the time from which a crawled fact with the date `at` is valid.
    ///
    /// An export that is ingested again keeps its dates, which may be older than a purge in between. The facts of
    /// an object that exists again after its purge are valid from its new existence.
    fn valid_from(&self, object: &Uri, at: Timestamp) -> Timestamp {
        let since =
            self.items.get(object).filter(|_| self.is_live(object)).and_then(|record| record.existence.clock.at);
        since.filter(|since| Some(at) <= self.purged.latest() && Some(*since) > self.purged.latest()).unwrap_or(at)
    }

    /// Applies facts from a crawl. As with [`ObjectState::apply_change`], the result does not depend on the facts
    /// before, except that an object keeps its first source.
    pub fn apply_delta(&mut self, delta: &RegistryDelta) {
        if self.source.is_none() {
            self.source.clone_from(&delta.source);
        }
        if let Some(Dated { value, at }) = &delta.parent {
            self.parent.set(Some(value.clone()), *at);
        }
        if let Some(Dated { value, at }) = &delta.types {
            self.types.set(value.clone(), *at);
        }
        for item in &delta.items {
            self.items.entry(item.uri.clone()).or_default().apply_delta(item);
        }
    }
}

impl Registry {
    /// Applies facts from a crawl, in their order between the changes.
    pub fn apply_delta(&mut self, object: Uri, delta: &RegistryDelta) {
        self.objects.entry(object).or_default().apply_delta(delta);
    }
}

impl ItemRecord {
    fn apply_delta(&mut self, delta: &ItemDelta) {
        if delta.exists {
            self.existence.set(true, delta.at);
        }
        if let Some(content) = &delta.content {
            self.content.set(Some(content.into()), delta.at);
        }
        if let Some(state) = &delta.state {
            self.state.set(Some(state.clone()), delta.at);
            self.unannounced = !delta.announced;
            self.schedule = Schedule::default();
        }
    }
}
