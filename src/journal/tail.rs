//! The tail: the newest changes in memory. Most reads are answered from the tail without access to the disk, and each
//! change is encoded once per format, however many readers there are.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use bytes::Bytes;
use serde::Deserialize;

use super::store::{Store, StoreError, StoredChange};
use crate::model::{Change, ChangeId, Filter, Rendition, Seq, SourceName, Timestamp, Uri, VisibilityNotes};

/// Number of changes in one read when the tail is filled, because some changes may be large.
const LOAD_PAGE: usize = 100;

/// A change of the journal for readers: its JSON, and, created once on demand, the parsed change and its other
/// encodings.
#[derive(Debug)]
pub struct RecordedChange {
    stored: StoredChange,
    change: OnceLock<Change>,
    public: OnceLock<Option<Arc<RecordedChange>>>,
    anonymous: OnceLock<Arc<RecordedChange>>,
    encodings: Mutex<Vec<(EncodingKey, Bytes)>>,
}

/// Outline of a change: its times, its object and the URIs of its items.
#[derive(Clone, Debug, Deserialize)]
pub struct ChangeOutline {
    /// Time of receipt, by the gateway's clock.
    pub received: Timestamp,
    /// Time of the change, by the source's clock.
    pub time: Timestamp,
    /// The object.
    pub object: Uri,
    /// Whether the change purges the object.
    #[serde(default)]
    pub purge: bool,
    /// The items that the change lists.
    pub items: Vec<ItemOutline>,
}

/// Source of a change, and the time of its receipt.
#[derive(Clone, Debug, Deserialize)]
pub struct ChangeArrival {
    /// Source that reported the change.
    pub source: SourceName,
    /// Time of receipt, by the gateway's clock.
    pub received: Timestamp,
}

/// Outline of an item in a change.
#[derive(Clone, Debug, Deserialize)]
pub struct ItemOutline {
    /// The item.
    pub uri: Uri,
}

/// Key of an encoding: the name of its frame, if it has one, and the name of the format.
type EncodingKey = (Option<&'static str>, &'static str);

impl RecordedChange {
    /// Wraps a change that was just written.
    pub(super) fn new(change: Change, json: Bytes, visibility: Option<Bytes>) -> Self {
        let stored = StoredChange { seq: change.seq, json, visibility };
        Self { change: OnceLock::from(change), ..Self::from(stored) }
    }

    /// Wraps the JSON of a change that is stored outside of the journal, for example as a dead letter.
    #[must_use]
    pub fn from_json(seq: Seq, json: Bytes) -> Self {
        Self::from(StoredChange { seq, json, visibility: None })
    }

    /// Returns the number of the change.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.stored.seq
    }

    /// Returns the JSON of the change.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.stored.json
    }

    /// Returns the parsed change.
    ///
    /// # Errors
    /// Fails if the JSON is not a change: the journal is damaged.
    pub fn change(&self) -> Result<&Change, StoreError> {
        if let Some(change) = self.change.get() {
            return Ok(change);
        }
        let change = self.parse()?;
        Ok(self.change.get_or_init(|| change))
    }

    /// Returns a copy without the parsed change and the encodings, for the reader of a large change who drops them
    /// after use.
    #[must_use]
    pub fn without_caches(&self) -> Self {
        Self::from(self.stored.clone())
    }

    /// Returns the identifier of the change. Does not parse the rest of the change.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn id(&self) -> Result<ChangeId, StoreError> {
        #[derive(Deserialize)]
        struct IdMember {
            id: ChangeId,
        }
        match self.change.get() {
            Some(change) => Ok(change.modification.id),
            None => self.parse().map(|IdMember { id }| id),
        }
    }

    /// Returns the outline of the change. Does not parse the rest of the change.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn outline(&self) -> Result<ChangeOutline, StoreError> {
        match self.change.get() {
            Some(Change { received, modification, settlement, .. }) => Ok(ChangeOutline {
                received: *received,
                time: modification.time,
                object: modification.object.clone(),
                purge: settlement.purge,
                items: modification.items.iter().map(|item| ItemOutline { uri: item.uri.clone() }).collect(),
            }),
            None => self.parse(),
        }
    }

    /// Returns the source of the change and the time of its receipt. Does not parse the rest of the change.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn arrival(&self) -> Result<ChangeArrival, StoreError> {
        match self.change.get() {
            Some(Change { received, modification, .. }) => {
                Ok(ChangeArrival { source: modification.origin.source.clone(), received: *received })
            }
            None => self.parse(),
        }
    }

    fn parse<'j, T: Deserialize<'j>>(&'j self) -> Result<T, StoreError> {
        let parsed = serde_json::from_slice(&self.stored.json);
        parsed.map_err(|error| StoreError::DamagedChange { seq: self.seq(), what: error.to_string() })
    }

    /// Returns the change as the public sees it ([`Change::public`]), computed once; `None` if the change has no
    /// effect for the public.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn public(&self) -> Result<Option<&Arc<Self>>, StoreError> {
        if let Some(public) = self.public.get() {
            return Ok(public.as_ref());
        }
        let visibility: VisibilityNotes = match &self.stored.visibility {
            Some(visibility) => serde_json::from_slice(visibility).map_err(|error| StoreError::DamagedChange {
                seq: self.seq(),
                what: format!("its visibility: {error}"),
            })?,
            None => VisibilityNotes::default(),
        };
        let public = self.change()?.public(&visibility).map(|change| {
            let json = Bytes::from(super::json_of(&change));
            Arc::new(Self::new(change, json, None))
        });
        Ok(self.public.get_or_init(|| public).as_ref())
    }

    /// Returns the change without names of users ([`Change::anonymous`]), computed once.
    fn anonymous(&self) -> Result<&Arc<Self>, StoreError> {
        if let Some(anonymous) = self.anonymous.get() {
            return Ok(anonymous);
        }
        let change = self.change()?.anonymous();
        let json = Bytes::from(super::json_of(&change));
        Ok(self.anonymous.get_or_init(|| Arc::new(Self::new(change, json, None))))
    }

    /// Returns the change as a reader with this filter gets it; `None` if the change does not match.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn filtered(self: &Arc<Self>, filter: &Filter) -> Result<Option<Arc<Self>>, StoreError> {
        if *filter == Filter::default() {
            return Ok(Some(Arc::clone(self)));
        }
        let shown = match filter.rendition() {
            Rendition::Recorded => Some(self),
            Rendition::Public => self.public()?,
            Rendition::Anonymous => self.public()?.map(|public| public.anonymous()).transpose()?,
        };
        let Some(shown) = shown else { return Ok(None) };
        Ok(filter.matches(shown.change()?).then(|| Arc::clone(shown)))
    }

    /// Returns the encoding in the format with this name; the first call creates it with `encode`.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn encoded(&self, format: &'static str, encode: impl FnOnce(&Change) -> Vec<u8>) -> Result<Bytes, StoreError> {
        self.encoding((None, format), encode)
    }

    /// Returns the encoding in the format with this name inside of a frame; the first call creates it with `encode`.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn framed(
        &self,
        frame: &'static str,
        format: &'static str,
        encode: impl FnOnce(&Change) -> Vec<u8>,
    ) -> Result<Bytes, StoreError> {
        self.encoding((Some(frame), format), encode)
    }

    fn encoding(&self, key: EncodingKey, encode: impl FnOnce(&Change) -> Vec<u8>) -> Result<Bytes, StoreError> {
        let change = self.change()?;
        let mut encodings = self.encodings.lock().unwrap_or_else(PoisonError::into_inner);
        // A linear search is fast enough for a handful of encodings.
        if let Some((_, encoding)) = encodings.iter().find(|(other, _)| *other == key) {
            return Ok(encoding.clone());
        }
        let encoding = Bytes::from(encode(change));
        encodings.push((key, encoding.clone()));
        Ok(encoding)
    }
}

impl From<StoredChange> for RecordedChange {
    fn from(stored: StoredChange) -> Self {
        Self {
            stored,
            change: OnceLock::new(),
            public: OnceLock::new(),
            anonymous: OnceLock::new(),
            encodings: Mutex::default(),
        }
    }
}

/// Takes changes until there are `limit` or they have `bytes` of JSON, and at least one if there is one.
pub fn take_within<'a>(
    changes: impl IntoIterator<Item = &'a Arc<RecordedChange>>,
    limit: usize,
    bytes: usize,
) -> Vec<Arc<RecordedChange>> {
    let mut size = 0_usize;
    let fits = |change: &&Arc<RecordedChange>| {
        let fits = size < bytes;
        size = size.saturating_add(change.json().len());
        fits
    };
    changes.into_iter().take(limit).take_while(fits).cloned().collect()
}

/// Bounds on the changes in memory.
#[derive(Clone, Copy, Debug)]
pub struct TailBounds {
    /// Maximum number of changes.
    pub changes: usize,
    /// Maximum size of the JSON of all changes, in bytes. The newest change stays in memory whatever its size. Parsed
    /// changes and other encodings need several times as much.
    pub bytes: usize,
}

impl Default for TailBounds {
    fn default() -> Self {
        Self { changes: 1000, bytes: 4 * 1024 * 1024 }
    }
}

/// The newest changes, without a gap, oldest first.
#[derive(Debug)]
pub(super) struct Tail {
    bounds: TailBounds,
    content: RwLock<TailContent>,
}

#[derive(Debug, Default)]
struct TailContent {
    changes: VecDeque<Arc<RecordedChange>>,
    bytes: usize,
}

impl TailContent {
    fn push(&mut self, change: Arc<RecordedChange>) {
        self.bytes = self.bytes.saturating_add(change.json().len());
        self.changes.push_back(change);
    }

    fn pop(&mut self) -> Option<Arc<RecordedChange>> {
        let oldest = self.changes.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.json().len());
        Some(oldest)
    }
}

impl Tail {
    fn new(bounds: TailBounds) -> Self {
        Self { bounds, content: RwLock::default() }
    }

    /// Loads the newest changes of a store, up to `head`.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub(super) fn load(store: &dyn Store, head: Seq, bounds: TailBounds) -> Result<Self, StoreError> {
        let newest = Self::read_newest(store, Seq::ZERO, head, bounds)?;
        let tail = Self::new(bounds);
        let _ = tail.extend(newest.into_iter().map(|stored| Arc::new(RecordedChange::from(stored))));
        Ok(tail)
    }

    /// Reads the newest changes after `after` up to `head` that fit into a tail, oldest first.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub(super) fn read_newest(
        store: &dyn Store,
        after: Seq,
        head: Seq,
        bounds: TailBounds,
    ) -> Result<Vec<StoredChange>, StoreError> {
        let (mut newest, mut bytes, mut before) = (Vec::new(), 0_usize, head.next());
        while newest.len() < bounds.changes && bytes < bounds.bytes && before > after.next() {
            let wanted = usize::try_from(before.0 - after.0 - 1).unwrap_or(usize::MAX);
            let limit = LOAD_PAGE.min(bounds.changes - newest.len()).min(wanted);
            let read = match store.before(before, limit, bounds.bytes - bytes) {
                // Readers of the changes before a damaged one read them from the store.
                Err(StoreError::DamagedChange { .. }) => break,
                read => read?,
            };
            let Some(oldest) = read.last() else { break };
            before = oldest.seq;
            bytes += read.iter().map(|change| change.json.len()).sum::<usize>();
            newest.extend(read.into_iter().filter(|change| change.seq > after));
        }
        newest.reverse();
        Ok(newest)
    }

    /// Returns the bounds on the changes.
    pub(super) fn bounds(&self) -> TailBounds {
        self.bounds
    }

    /// Drops all changes.
    pub(super) fn clear(&self) {
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = TailContent::default();
    }

    /// Appends changes and returns the evicted changes, so that the caller can free them after it has replied. At a
    /// gap in the numbering, which a restore leaves, the tail drops all earlier changes.
    pub(super) fn extend(&self, newer: impl IntoIterator<Item = Arc<RecordedChange>>) -> Vec<Arc<RecordedChange>> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        for change in newer {
            if content.changes.back().is_some_and(|newest| newest.seq().next() != change.seq()) {
                *content = TailContent::default();
            }
            content.push(change);
        }
        let mut evicted = Vec::new();
        while content.changes.len() > self.bounds.changes
            || (content.changes.len() > 1 && content.bytes > self.bounds.bytes)
        {
            evicted.extend(content.pop());
        }
        evicted
    }

    /// Drops the changes before `first`, which retention has removed.
    pub(super) fn drop_before(&self, first: Seq) {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        while content.changes.front().is_some_and(|oldest| oldest.seq() < first) {
            content.pop();
        }
    }

    /// Returns up to `limit` changes after `after`, oldest first, and ends once they have `bytes` of JSON; `None`
    /// if the first of them may be older than the tail, or `after` is past the newest.
    pub(super) fn after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let TailContent { changes, .. } = &*self.content.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = changes.front()?.seq();
        let skipped = after.next().0.checked_sub(oldest.0)?;
        let skipped = usize::try_from(skipped).ok().filter(|skipped| *skipped <= changes.len())?;
        Some(take_within(changes.range(skipped..), limit, bytes))
    }

    /// Returns up to `limit` changes before `before`, newest first, and ends once they have `bytes` of JSON; `None`
    /// if some of them may be older than the tail.
    pub(super) fn before(&self, before: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let TailContent { changes, .. } = &*self.content.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = changes.front()?.seq();
        let available = usize::try_from(before.0.checked_sub(oldest.0)?).unwrap_or(usize::MAX).min(changes.len());
        let page = take_within(changes.range(..available).rev(), limit, bytes);
        let is_complete = page.len() == limit || page.len() < available || oldest == Seq::ZERO.next();
        is_complete.then_some(page)
    }
}

#[cfg(test)]
mod tests;
