//! The newest changes, in memory: what most readers ask for never touches the disk, and is encoded
//! once for each format however many read it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use bytes::Bytes;
use serde::Deserialize;

use super::store::{Store, StoreError, StoredChange};
use crate::model::{Change, ChangeId, Filter, Seq, VisibilityNotes};

/// How many changes are read at once when the tail is filled: some may be large.
const FILLED_AT_ONCE: usize = 100;

/// A change of the journal as readers get it: its JSON, and on demand the change itself and its
/// other encodings, each made once.
#[derive(Debug)]
pub struct RecordedChange {
    stored: StoredChange,
    change: OnceLock<Change>,
    public: OnceLock<Option<Arc<RecordedChange>>>,
    encodings: Mutex<Vec<(Encoding, Bytes)>>,
}

/// By what an encoding is known: the frame around it, if it has one, and the format.
type Encoding = (Option<&'static str>, &'static str);

impl RecordedChange {
    /// A change that has just been written.
    pub(super) fn new(change: Change, json: Bytes, visibility: Option<Bytes>) -> Self {
        let stored = StoredChange { seq: change.seq, json, visibility };
        Self { change: OnceLock::from(change), ..Self::from(stored) }
    }

    /// A change that was kept elsewhere, by its JSON.
    #[must_use]
    pub fn from_json(seq: Seq, json: Bytes) -> Self {
        Self::from(StoredChange { seq, json, visibility: None })
    }

    /// Its number.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.stored.seq
    }

    /// Its JSON.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.stored.json
    }

    /// The change itself.
    ///
    /// # Errors
    /// When what is stored is not a change: the journal is damaged.
    pub fn change(&self) -> Result<&Change, StoreError> {
        if let Some(change) = self.change.get() {
            return Ok(change);
        }
        let change = serde_json::from_slice(&self.stored.json)
            .map_err(|error| StoreError::Damaged(format!("change {} cannot be read: {error}", self.stored.seq)))?;
        Ok(self.change.get_or_init(|| change))
    }

    /// The same change without what was read and encoded of it: for a large one, whose reader drops all that.
    #[must_use]
    pub fn unread(&self) -> Self {
        Self::from(self.stored.clone())
    }

    /// The identifier of the change. Where the change has not been read yet, nothing else of it is.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn id(&self) -> Result<ChangeId, StoreError> {
        #[derive(Deserialize)]
        struct Identified {
            id: ChangeId,
        }
        if let Some(change) = self.change.get() {
            return Ok(change.modification.id);
        }
        let read: Identified = serde_json::from_slice(&self.stored.json)
            .map_err(|error| StoreError::Damaged(format!("change {} cannot be read: {error}", self.stored.seq)))?;
        Ok(read.id)
    }

    /// The change as the public sees it ([`Change::public`]), worked out once however many read it;
    /// `None` when the public sees nothing of it.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn public(&self) -> Result<Option<&Arc<Self>>, StoreError> {
        if let Some(public) = self.public.get() {
            return Ok(public.as_ref());
        }
        let visibility: VisibilityNotes = match &self.stored.visibility {
            Some(visibility) => serde_json::from_slice(visibility)
                .map_err(|error| StoreError::Damaged(format!("the sight of change {}: {error}", self.stored.seq)))?,
            None => VisibilityNotes::default(),
        };
        let public = self.change()?.public(&visibility).map(|change| {
            let json = Bytes::from(super::json_of(&change));
            Arc::new(Self::new(change, json, None))
        });
        Ok(self.public.get_or_init(|| public).as_ref())
    }

    /// What a reader with this filter gets of the change; `None` when it is not wanted.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn selected(self: &Arc<Self>, filter: &Filter) -> Result<Option<Arc<Self>>, StoreError> {
        if *filter == Filter::default() {
            return Ok(Some(Arc::clone(self)));
        }
        let shown = if filter.visibility { self.public()? } else { Some(self) };
        let Some(shown) = shown else { return Ok(None) };
        Ok(filter.matches(shown.change()?).then(|| Arc::clone(shown)))
    }

    /// Its encoding in the format of that name, made by `encode` the first time.
    ///
    /// # Errors
    /// As [`RecordedChange::change`].
    pub fn encoded(&self, format: &'static str, encode: impl FnOnce(&Change) -> Vec<u8>) -> Result<Bytes, StoreError> {
        self.encoding((None, format), encode)
    }

    /// Its encoding in the format of that name as it stands in the frame of that name, made by `encode` the
    /// first time.
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

    fn encoding(&self, which: Encoding, encode: impl FnOnce(&Change) -> Vec<u8>) -> Result<Bytes, StoreError> {
        let change = self.change()?;
        let mut encodings = self.encodings.lock().unwrap_or_else(PoisonError::into_inner);
        // There are a handful of them.
        if let Some((_, made)) = encodings.iter().find(|(made, _)| *made == which) {
            return Ok(made.clone());
        }
        let made = Bytes::from(encode(change));
        encodings.push((which, made.clone()));
        Ok(made)
    }
}

impl From<StoredChange> for RecordedChange {
    fn from(stored: StoredChange) -> Self {
        Self { stored, change: OnceLock::new(), public: OnceLock::new(), encodings: Mutex::default() }
    }
}

/// The first of these changes, until there are `limit` or they have `bytes` of JSON; one at least, if there is one.
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

/// How much is held in memory.
#[derive(Clone, Copy, Debug)]
pub struct TailBounds {
    /// How many changes at the most.
    pub changes: usize,
    /// How many bytes of JSON they have together at the most; the newest change is held however large it is. What
    /// they say, and their other encodings, take some times as much.
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
    held: RwLock<TailContent>,
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
        Self { bounds, held: RwLock::default() }
    }

    /// The newest changes of a store, up to `head`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn load(store: &dyn Store, head: Seq, bounds: TailBounds) -> Result<Self, StoreError> {
        let (mut newest, mut bytes, mut before) = (Vec::new(), 0_usize, head.next());
        while newest.len() < bounds.changes && bytes < bounds.bytes {
            let limit = FILLED_AT_ONCE.min(bounds.changes - newest.len());
            let read = store.before(before, limit, bounds.bytes - bytes)?;
            let Some(oldest) = read.last() else { break };
            before = oldest.seq;
            bytes += read.iter().map(|change| change.json.len()).sum::<usize>();
            newest.extend(read);
        }
        let tail = Self::new(bounds);
        let _ = tail.extend(newest.into_iter().rev().map(|stored| Arc::new(RecordedChange::from(stored))));
        Ok(tail)
    }

    /// Adds the changes that follow the newest, and gives those beyond the bounds, so that the caller can free them after it has
    /// answered. Where the numbering leaves some out, as it does once after a restore,
    /// the tail begins anew.
    pub(super) fn extend(&self, newer: impl IntoIterator<Item = Arc<RecordedChange>>) -> Vec<Arc<RecordedChange>> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        for change in newer {
            if held.changes.back().is_some_and(|newest| newest.seq().next() != change.seq()) {
                *held = TailContent::default();
            }
            held.push(change);
        }
        let mut excess = Vec::new();
        while held.changes.len() > self.bounds.changes || (held.changes.len() > 1 && held.bytes > self.bounds.bytes) {
            excess.extend(held.pop());
        }
        excess
    }

    /// Drops the changes before `first`, which are no longer kept.
    pub(super) fn drop_before(&self, first: Seq) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        while held.changes.front().is_some_and(|oldest| oldest.seq() < first) {
            held.pop();
        }
    }

    /// Up to `limit` changes after `after`, oldest first, and no more of them once they have `bytes` of JSON; `None` when
    /// the first of them may be older than the tail, or `after` is past the newest.
    pub(super) fn after(&self, after: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let TailContent { changes, .. } = &*self.held.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = changes.front()?.seq();
        let skipped = after.next().0.checked_sub(oldest.0)?;
        let skipped = usize::try_from(skipped).ok().filter(|skipped| *skipped <= changes.len())?;
        Some(take_within(changes.range(skipped..), limit, bytes))
    }

    /// Up to `limit` changes before `before`, newest first, and no more of them once they have `bytes` of JSON; `None`
    /// when some of them may be older than the tail.
    pub(super) fn before(&self, before: Seq, limit: usize, bytes: usize) -> Option<Vec<Arc<RecordedChange>>> {
        let TailContent { changes, .. } = &*self.held.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = changes.front()?.seq();
        let known = usize::try_from(before.0.checked_sub(oldest.0)?).unwrap_or(usize::MAX).min(changes.len());
        let found = take_within(changes.range(..known).rev(), limit, bytes);
        let all_there = found.len() == limit || found.len() < known || oldest == Seq::ZERO.next();
        all_there.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Bytes, Filter, RecordedChange, Seq, StoredChange, Tail, TailBounds};

    fn tail(changes: usize, numbers: std::ops::RangeInclusive<u64>) -> Tail {
        let tail = Tail::new(TailBounds { changes, bytes: usize::MAX });
        tail.extend(numbers.map(|n| recorded(n, 0)));
        tail
    }

    fn recorded(number: u64, size: usize) -> Arc<RecordedChange> {
        Arc::new(RecordedChange::from_json(Seq(number), Bytes::from(vec![b' '; size])))
    }

    fn numbers(changes: Option<Vec<Arc<RecordedChange>>>) -> Option<Vec<u64>> {
        changes.map(|changes| changes.iter().map(|change| change.seq().0).collect())
    }

    #[test]
    fn gives_what_it_has_and_says_when_it_may_not_have_all() {
        let tail = tail(5, 1..=9);
        assert_eq!(numbers(tail.after(Seq(4), 3, usize::MAX)), Some(vec![5, 6, 7]));
        assert_eq!(numbers(tail.after(Seq(9), 3, usize::MAX)), Some(vec![]));
        assert_eq!(numbers(tail.after(Seq(10), 3, usize::MAX)), None);
        assert_eq!(numbers(tail.after(Seq(u64::MAX), 3, usize::MAX)), None);
        assert_eq!(numbers(tail.after(Seq(3), 3, usize::MAX)), None);
        assert_eq!(numbers(tail.before(Seq(9), 2, usize::MAX)), Some(vec![8, 7]));
        assert_eq!(numbers(tail.before(Seq(u64::MAX), 9, usize::MAX)), None);
        assert_eq!(numbers(tail.before(Seq(3), 1, usize::MAX)), None);
    }

    #[test]
    fn it_holds_no_more_than_so_many_bytes_and_the_newest_always() {
        let tail = Tail::new(TailBounds { changes: 5, bytes: 100 });
        let held = |tail: &Tail| {
            numbers(
                tail.before(Seq(u64::MAX), 9, usize::MAX)
                    .or_else(|| (1..9).find_map(|n| tail.before(Seq(u64::MAX), 9 - n, usize::MAX))),
            )
        };
        for (number, size, expected) in
            [(1, 60, vec![1]), (2, 40, vec![2, 1]), (3, 1, vec![3, 2]), (4, 59, vec![4, 3, 2])]
        {
            tail.extend([recorded(number, size)]);
            assert_eq!(held(&tail), Some(expected));
        }
        let gone = tail.extend([recorded(5, 1000)]);
        assert_eq!(numbers(Some(gone)), Some(vec![2, 3, 4]));
        assert_eq!(held(&tail), Some(vec![5]));
        tail.extend([recorded(6, 100)]);
        assert_eq!(held(&tail), Some(vec![6]));
        tail.drop_before(Seq(7));
        tail.extend([recorded(7, 99), recorded(8, 1)]);
        assert_eq!(held(&tail), Some(vec![8, 7]), "what went is not counted any more");
        assert_eq!(numbers(tail.after(Seq(6), 9, 99)), Some(vec![7]));
        assert_eq!(numbers(tail.after(Seq(6), 9, 100)), Some(vec![7, 8]));
    }

    #[test]
    fn a_tail_that_holds_the_whole_journal_holds_its_beginning() {
        let tail = tail(5, 1..=3);
        assert_eq!(numbers(tail.before(Seq(u64::MAX), 9, usize::MAX)), Some(vec![3, 2, 1]));
        assert_eq!(numbers(tail.after(Seq(0), 9, usize::MAX)), Some(vec![1, 2, 3]));
    }

    #[test]
    fn a_gap_in_the_numbering_begins_it_anew() {
        let tail = tail(5, 1..=3);
        tail.extend([7, 8].map(|n| recorded(n, 0)));
        assert_eq!(numbers(tail.after(Seq(6), 9, usize::MAX)), Some(vec![7, 8]));
        assert_eq!(numbers(tail.after(Seq(3), 9, usize::MAX)), None);
        assert_eq!(numbers(tail.before(Seq(9), 3, usize::MAX)), None);
    }

    #[test]
    fn its_identifier_is_told_before_and_after_it_is_read() {
        let json = Bytes::from_static(include_bytes!("../../fixtures/change.json"));
        let recorded = Arc::new(RecordedChange::from_json(Seq(1), json));
        let before = recorded.id().unwrap();
        let all = recorded.selected(&Filter::default()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&all, &recorded) && recorded.change.get().is_none(), "nobody has had to read it");
        assert_eq!(before, recorded.change().unwrap().modification.id);
        assert_eq!(before, recorded.id().unwrap());
        assert!(RecordedChange::from_json(Seq(1), Bytes::from_static(b"{")).id().is_err());
    }

    #[test]
    fn what_is_no_longer_kept_is_dropped() {
        let tail = tail(5, 1..=5);
        tail.drop_before(Seq(4));
        assert_eq!(numbers(tail.after(Seq(3), 9, usize::MAX)), Some(vec![4, 5]));
        assert_eq!(numbers(tail.after(Seq(2), 9, usize::MAX)), None);
        assert_eq!(numbers(tail.before(Seq(9), 2, usize::MAX)), Some(vec![5, 4]));
        assert_eq!(numbers(tail.before(Seq(9), 3, usize::MAX)), None);
    }

    #[test]
    fn an_encoding_is_made_once() {
        let json = include_str!("../../fixtures/change.json");
        let recorded = RecordedChange::from(StoredChange {
            seq: Seq(1),
            json: Bytes::from_static(json.as_bytes()),
            visibility: None,
        });
        let first = recorded.encoded("x", |_| b"one".to_vec()).unwrap();
        assert_eq!(recorded.encoded("x", |_| b"two".to_vec()).unwrap(), first);
        assert_eq!(recorded.framed("f", "x", |_| b"three".to_vec()).unwrap(), "three");
        assert_eq!(recorded.framed("f", "x", |_| b"four".to_vec()).unwrap(), "three");
        assert_eq!(recorded.framed("f", "y", |_| b"five".to_vec()).unwrap(), "five");
    }
}
