//! What a walk through a repository found, in the registry: facts that no change tells.
//!
//! A seed has for its clocks the repository's own dates, the earliest that it has for a fact. So a newer event wins
//! whichever of the two comes first, and what was found never moves the registry back; and an event that was on its way
//! while the repository was walked is not late for what the walk saw of it.
//!
//! What a walk moved is written down as that ([`Filled`]), as with a change, and takes its place between the changes:
//! a fold over both rebuilds the registry without repeating any decision.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Submission,
    order::Outcome,
    registry::{ItemRecord, ObjectState, Registry, order_of},
};
use crate::model::{Aspect, ContentLocation, FoundItem, FoundObject, SourceName, State, Timestamp, Uri};

/// A part of a walk.
#[derive(Debug)]
pub struct Seeding {
    /// What of it is to be told as changes.
    pub submission: Submission,
    /// What goes to the registry alone.
    pub found: Vec<FoundObject>,
    /// How far the walk is with it.
    pub walk: Walk,
}

/// What became of a part of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeded {
    /// Of how many objects the registry learnt something.
    pub filled: usize,
    /// What became of each draft of the submission.
    pub outcomes: Vec<Outcome>,
    /// Whether an object would have had too many items. Then nothing of the part was written.
    pub too_many_items: bool,
}

/// How far a walk through a source's repository is. It is written in one transaction with what was found up to there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The source.
    pub source: SourceName,
    /// Tells the walk from every other one.
    pub id: Uuid,
    /// How many parts of it are here.
    pub part: u64,
    /// Where it goes on: what that means is the walker's own affair.
    pub place: Arc<str>,
    /// How many objects it found.
    pub objects: u64,
    /// When it began.
    pub began: Timestamp,
    /// When its newest part came.
    pub moved: Timestamp,
    /// Whether it came to its end.
    pub done: bool,
}

/// What a walk told the registry of one object, as far as it was new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Dated<Uri>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Dated<Vec<Uri>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    items: Vec<FilledItem>,
}

/// A fact and its clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Dated<T> {
    value: T,
    at: Timestamp,
}

/// What was new of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FilledItem {
    uri: Uri,
    at: Timestamp,
    /// Whether that it is there was new.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exists: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<ContentLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// Whether a change had told just this state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    heard: bool,
}

impl Filled {
    /// What of an object as it was found is news to the registry.
    #[must_use]
    pub fn news(found: &FoundObject, received: Timestamp, held: &ObjectState) -> Self {
        let at = held.counts_from(&found.object, order_of(found.at, received));
        let is_newer = |aspect| held.is_newer(&found.object, aspect, at);
        let parent = found.parent.clone().filter(|_| is_newer(Aspect::Parent));
        let types = Some(found.types.clone()).filter(|types| !types.is_empty() && is_newer(Aspect::Types));
        Self {
            parent: parent.map(|value| Dated { value, at }),
            types: types.map(|value| Dated { value, at }),
            items: found
                .items
                .iter()
                .filter_map(|item| FilledItem::news(&found.object, item, received, held))
                .collect(),
        }
    }

    /// Whether it was all known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parent.is_none() && self.types.is_none() && self.items.is_empty()
    }

    /// Whether it tells anything that is not an item's.
    #[must_use]
    pub fn is_of_the_object(&self) -> bool {
        self.parent.is_some() || self.types.is_some()
    }

    /// The items of which it tells.
    pub fn items(&self) -> impl Iterator<Item = &Uri> {
        self.items.iter().map(|item| &item.uri)
    }
}

impl FilledItem {
    fn news(object: &Uri, found: &FoundItem, received: Timestamp, held: &ObjectState) -> Option<Self> {
        let FoundItem { uri, content, state, .. } = found;
        let at = held.counts_from(object, order_of(found.at, received));
        let is_newer = |aspect| held.is_newer(uri, aspect, at);
        let exists = is_newer(Aspect::Existence);
        if !exists && !held.is_live(uri) {
            return None;
        }
        let content = content.clone().filter(|_| is_newer(Aspect::Content));
        let state = state.clone().filter(|_| is_newer(Aspect::State));
        let heard = state.is_some() && held.state(uri) == state.as_ref() && !held.is_unheard(uri);
        (exists || content.is_some() || state.is_some()).then(|| Self {
            uri: uri.clone(),
            at,
            exists,
            content,
            state,
            heard,
        })
    }
}

impl ObjectState {
    /// The time from which on what was found of the object counts. An export that is ingested again keeps its dates, and
    /// they may be older than the purge in between; what is of an object that is there again is so since then.
    fn counts_from(&self, object: &Uri, at: Timestamp) -> Timestamp {
        let since =
            self.items.get(object).filter(|_| self.is_live(object)).and_then(|record| record.existence.clock.at);
        since.filter(|since| Some(at) <= self.purged.latest() && Some(*since) > self.purged.latest()).unwrap_or(at)
    }

    /// Takes over what a walk told. As with [`ObjectState::take`], it sets what it sets whatever was there.
    pub fn fill(&mut self, filled: &Filled) {
        if let Some(Dated { value, at }) = &filled.parent {
            self.parent.set(Some(value.clone()), *at);
        }
        if let Some(Dated { value, at }) = &filled.types {
            self.types.set(value.clone(), *at);
        }
        for item in &filled.items {
            self.items.entry(item.uri.clone()).or_default().fill(item);
        }
    }
}

impl Registry {
    /// Takes over what a walk told of an object, in its place between the changes.
    pub fn fill(&mut self, object: Uri, filled: &Filled) {
        self.objects.entry(object).or_default().fill(filled);
    }
}

impl ItemRecord {
    fn fill(&mut self, filled: &FilledItem) {
        if filled.exists {
            self.existence.set(true, filled.at);
        }
        if let Some(content) = &filled.content {
            self.content.set(Some(content.into()), filled.at);
        }
        if let Some(state) = &filled.state {
            self.state.set(Some(state.clone()), filled.at);
            self.unheard = !filled.heard;
        }
    }
}
