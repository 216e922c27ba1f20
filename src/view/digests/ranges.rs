//! Digests of ranges of objects, in memory.
//!
//! The objects of a selection, in the order of their URIs, are divided into ranges of some dozen objects. One pass over the
//! registry makes the ranges. After that, the changes of the journal and the facts of crawls say which ranges to read again,
//! so a request costs what has changed since the one before. The registry stores nothing for this, and an append does
//! nothing.
//!
//! A range ends at any object, selected or not, so that reading it again costs little even if nearly all objects are hidden
//! from the reader. Responses name only selected objects: the last one of a range instead of its end.

mod piece;
mod reading;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Instant};

use uuid::Uuid;

use self::reading::{READ_OBJECTS, read};
pub(super) use self::{piece::Piece, reading::read_range};
use super::selection::{Digests, Selection};
use crate::{
    journal::{BlockingQueries, Journal, JournalError, RegistryPosition, store::StoreError},
    model::{Seq, Uri},
};

/// Size of a range at first. A range that is read again is divided if it has twice as much.
const RANGE_SIZE: RangeSize = RangeSize { selected: 64, examined: 4096 };

/// Maximum number of ranges of a selection. With more, neighbours are joined. A range has some 300 bytes.
const MAX_RANGES: usize = 65_536;

/// Number of objects that the pass reads at once.
const PASS_OBJECTS: usize = 1000;

/// Number of changes, or of facts of crawls, that are read at once. Many changes in few ranges read these once.
const PAGE_CHANGES: usize = 5000;

/// Maximum size of changes that are read at once, in bytes of JSON.
const PAGE_BYTES: usize = 1 << 20;

/// Number of changes since the last request, above which all ranges are made anew.
const MAX_CHANGES: u64 = 100_000;

/// Range of objects: those after the one before, up to and including `through`.
#[derive(Clone, Debug)]
struct Range {
    /// Last URI; `None` if the range has no end. The reader may not know of its object.
    through: Option<Uri>,
    /// Last selected object; `None` if no object is selected.
    last: Option<Uri>,
    digests: Digests,
}

/// Size of a range.
#[derive(Clone, Copy, Debug)]
struct RangeSize {
    /// Number of selected objects. It grows with the number of ranges.
    selected: u64,
    /// Number of objects after which a range ends, even if few of them are selected.
    examined: u64,
}

/// Ranges of one selection.
pub(super) struct Ranges {
    selection: Selection,
    journal: Uuid,
    /// Number of the last change that the ranges have, once they are complete.
    pub(super) head: Seq,
    /// Number of the last fact of a crawl that the ranges have, once they are complete.
    pub(super) seeds: u64,
    /// Ranges in the order of their URIs. The last one has no end, once all are made.
    ranges: Vec<Range>,
    size: RangeSize,
    /// Progress while the ranges are made.
    pass: Option<Pass>,
    /// Objects of changes up to `head` and facts up to `seeds`, whose ranges have to be read again.
    stale: BTreeSet<Uri>,
    /// Whether the ranges had all changes once.
    was_complete: bool,
}

/// Pass over the registry.
#[derive(Default)]
struct Pass {
    position: RegistryPosition,
    next: NextRange,
    total: u64,
}

/// Objects since the end of the last range.
#[derive(Default)]
struct NextRange {
    last: Option<Uri>,
    digests: Digests,
    examined: u64,
}

/// Whether the ranges have all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Complete,
    /// The pass over the registry goes on with the next request. It has read so many objects.
    Passing(u64),
    /// Ranges of the latest changes are to be read again, with the next request.
    Following,
}

impl NextRange {
    /// Adds the next object; returns the range that ends with it, if it has enough objects.
    fn add(&mut self, object: Uri, digests: Option<Digests>, size: RangeSize) -> Option<Range> {
        self.examined += 1;
        if let Some(digests) = digests {
            self.digests.add(digests);
            self.last = Some(object.clone());
        }
        let is_full = self.digests.objects >= size.selected || self.examined >= size.examined;
        is_full.then(|| self.end(Some(object)))
    }

    fn end(&mut self, through: Option<Uri>) -> Range {
        let Self { last, digests, .. } = std::mem::take(self);
        Range { through, last, digests }
    }
}

impl Ranges {
    /// Creates ranges, without any objects yet.
    pub(super) fn new(selection: Selection, journal: &Journal) -> Self {
        Self {
            selection,
            journal: journal.identity(),
            head: journal.head(),
            seeds: journal.seed_count(),
            ranges: Vec::new(),
            size: RANGE_SIZE,
            pass: Some(Pass::default()),
            stale: BTreeSet::new(),
            was_complete: false,
        }
    }

    /// Brings the ranges to the newest change, or as far as time permits. Dropping the future keeps the ranges that were read.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or the next object is damaged.
    pub(super) async fn advance(&mut self, journal: &Journal, until: Instant) -> Result<Progress, JournalError> {
        // Ranges that are made for the first time catch up, however many changes came meanwhile: the next pass would be no faster.
        if self.was_complete && journal.count_after(self.head) > MAX_CHANGES {
            self.begin_again(journal);
        }
        loop {
            // Another journal may lack what was read before.
            if self.journal != journal.identity() || self.head > journal.head() {
                self.begin_again(journal);
            }
            while self.pass.is_some() {
                self.pass_on(journal).await?;
                if let Some(pass) = self.pass.as_ref().filter(|_| Instant::now() >= until) {
                    return Ok(Progress::Passing(pass.total));
                }
            }
            while let Some(object) = self.stale.last().cloned() {
                self.read_again(journal, &object).await?;
                if !self.stale.is_empty() && Instant::now() >= until {
                    return Ok(Progress::Following);
                }
            }
            match self.note_changes(journal).await {
                Ok(true) => {}
                Ok(false) if self.note_seeds(journal).await? => {}
                Ok(false) if self.journal != journal.identity() => {}
                Ok(false) => {
                    self.was_complete = true;
                    return Ok(Progress::Complete);
                }
                // Retention has removed changes that the ranges do not have.
                Err(JournalError::Gone { .. }) => self.begin_again(journal),
                Err(error) => return Err(error),
            }
            if Instant::now() >= until && self.pass.is_none() {
                return Ok(Progress::Following);
            }
        }
    }

    fn begin_again(&mut self, journal: &Journal) {
        *self = Self::new(self.selection.clone(), journal);
    }

    /// Reads the next objects of the pass.
    async fn pass_on(&mut self, journal: &Journal) -> Result<(), JournalError> {
        let position = self.pass.as_ref().map(|pass| pass.position.clone()).unwrap_or_default();
        let page = read(journal, &self.selection, position, PASS_OBJECTS).await?;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        match page {
            Some((objects, next)) => {
                for (uri, digests) in objects {
                    // A reader must not learn how many objects are hidden.
                    pass.total += u64::from(digests.is_some());
                    self.ranges.extend(pass.next.add(uri, digests, self.size));
                }
                pass.position = next;
            }
            None => {
                self.ranges.push(pass.next.end(None));
                self.pass = None;
            }
        }
        self.join_neighbours();
        Ok(())
    }

    /// Joins each two neighbours, if there are too many ranges.
    fn join_neighbours(&mut self) {
        while self.ranges.len() > MAX_RANGES {
            let mut joined: Vec<Range> = Vec::with_capacity(self.ranges.len() / 2 + 1);
            for (at, Range { through, last, digests }) in self.ranges.drain(..).enumerate() {
                match joined.last_mut().filter(|_| at % 2 == 1) {
                    Some(range) => {
                        range.through = through;
                        range.last = last.or(range.last.take());
                        range.digests.add(digests);
                    }
                    None => joined.push(Range { through, last, digests }),
                }
            }
            self.ranges = joined;
            self.size.selected *= 2;
        }
    }

    /// Notes the objects of the next changes. Returns false if there are none.
    async fn note_changes(&mut self, journal: &Journal) -> Result<bool, JournalError> {
        let after = self.head;
        // A change can be large, so it is parsed on a thread that may block.
        let (objects, last) = journal.query_in_a_row(move |journal| changed_objects(journal, after)).await?;
        self.stale.extend(objects.into_iter().filter(|object| self.selection.can_have(object)));
        self.head = last;
        Ok(last > after)
    }

    /// Notes the objects of the next facts that a crawl has added without changes. Returns false if there are none.
    async fn note_seeds(&mut self, journal: &Journal) -> Result<bool, JournalError> {
        let count = journal.seed_count();
        let seeds = if self.seeds < count { journal.seeded_after(self.seeds, PAGE_CHANGES).await? } else { Vec::new() };
        let (first, last) = (seeds.first().map(|(number, _)| *number), seeds.last().map(|(number, _)| *number));
        match last {
            Some(last) if first == Some(self.seeds + 1) => {
                let objects = seeds.into_iter().map(|(_, object)| object);
                self.stale.extend(objects.filter(|object| self.selection.can_have(object)));
                self.seeds = last;
            }
            None if self.seeds >= count => return Ok(false),
            // Retention has removed facts that the ranges do not have.
            _ => self.begin_again(journal),
        }
        Ok(true)
    }

    /// Reads the range of the last stale object again, and divides it if it has grown.
    async fn read_again(&mut self, journal: &Journal, object: &Uri) -> Result<(), JournalError> {
        let at = self.ranges.partition_point(|range| range.through.as_ref().is_some_and(|through| through < object));
        let Some(Range { through, .. }) = self.ranges.get(at).cloned() else { return Ok(()) };
        let after = at.checked_sub(1).and_then(|before| self.ranges[before].through.clone());
        let grown = RangeSize { selected: 2 * self.size.selected, examined: 2 * self.size.examined };
        let (mut parts, mut next) = (Vec::new(), NextRange::default());
        let mut position = RegistryPosition::from(after.clone());
        while let Some((objects, following)) = read(journal, &self.selection, position, READ_OBJECTS).await? {
            let is_end =
                objects.last().is_some_and(|(last, _)| through.as_ref().is_some_and(|through| last >= through));
            for (uri, digests) in objects.into_iter().take_while(|(uri, _)| is_through(uri, through.as_ref())) {
                parts.extend(next.add(uri, digests, grown));
            }
            if is_end {
                break;
            }
            position = following;
        }
        // The last part ends where the range has ended.
        match parts.last_mut().filter(|_| next.examined == 0) {
            Some(part) => part.through = through,
            None => parts.push(next.end(through)),
        }
        self.ranges.splice(at..=at, parts);
        self.join_neighbours();
        self.forget_stale_after(after.as_ref());
        Ok(())
    }

    /// Forgets that the ranges after a URI are to be read again.
    fn forget_stale_after(&mut self, after: Option<&Uri>) {
        let Some(after) = after else { return self.stale.clear() };
        if self.stale.split_off(after).contains(after) {
            self.stale.insert(after.clone());
        }
    }
}

/// Returns the objects of the next changes with the number of the last one, which is `after` if there are none. A damaged
/// change is skipped.
fn changed_objects(journal: &BlockingQueries, after: Seq) -> Result<(Vec<Uri>, Seq), JournalError> {
    let changes = match journal.after_within(after, PAGE_CHANGES, PAGE_BYTES) {
        Err(JournalError::Store(StoreError::DamagedChange { seq, what })) => {
            tracing::warn!(seq = seq.0, what, "a damaged change is skipped");
            return Ok((Vec::new(), seq));
        }
        read => read?,
    };
    let mut objects = Vec::with_capacity(changes.len());
    for change in &changes {
        objects.push(change.outline()?.object.clone());
    }
    Ok((objects, changes.last().map_or(after, |change| change.seq())))
}

/// Returns whether an object is in a range that ends with `through`.
fn is_through(object: &Uri, through: Option<&Uri>) -> bool {
    through.is_none_or(|through| object <= through)
}
