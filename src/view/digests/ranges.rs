//! Digests of ranges of objects, in memory.
//!
//! The objects of a selection, in the order of their URIs, are divided into ranges of some dozen objects. One pass over the
//! registry makes the ranges. After that, the changes of the journal say which ranges to read again, so a request costs what
//! has changed since the one before. The registry stores nothing for this, and an append does nothing.

use std::{collections::BTreeSet, time::Instant};

use uuid::Uuid;

use super::selection::{Digests, Selection};
use crate::{
    journal::{Journal, JournalError, store::StoreError},
    model::{Seq, Uri},
};

/// Number of objects of a range at first. It grows with the number of ranges.
const RANGE_OBJECTS: u64 = 64;

/// Number of objects that are passed before a range ends, even if few of them are selected.
const EXAMINED_OBJECTS: u64 = 4096;

/// Maximum number of ranges of a selection. With more, neighbours are joined. A range has some 200 bytes.
const MAX_RANGES: usize = 65_536;

/// Number of objects that are read at once, by the pass and for one range.
const PASS_OBJECTS: usize = 1000;
const READ_OBJECTS: usize = 160;

/// Number of changes that are read at once. Many changes in few ranges read these once.
const PAGE_CHANGES: usize = 5000;

/// Number of changes since the last request, above which all ranges are made anew.
const MAX_CHANGES: u64 = 100_000;

/// Range of objects: those after the one before, up to and including `through`.
#[derive(Clone, Debug)]
pub(super) struct Range {
    /// Last URI; `None` if the range has no end.
    pub(super) through: Option<Uri>,
    pub(super) digests: Digests,
}

/// Part of a range that was asked for: a whole range, or one that must be read.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Whole(Range),
    Part { after: Option<Uri>, through: Option<Uri> },
}

/// Ranges of one selection.
pub(super) struct Ranges {
    selection: Selection,
    journal: Uuid,
    /// Number of the last change that the ranges have.
    pub(super) head: Seq,
    /// Number of additions by crawls that the ranges have.
    pub(super) seeds: u64,
    /// Ranges in the order of their URIs. The last one has no end, once all are made.
    ranges: Vec<Range>,
    range_objects: u64,
    /// Progress while the ranges are made.
    pass: Option<Pass>,
}

/// Pass over the registry.
#[derive(Default)]
struct Pass {
    after: Option<Uri>,
    current: Digests,
    examined: u64,
    total: u64,
}

/// Whether the ranges have all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Complete,
    /// The pass over the registry goes on with the next request. It has read so many objects.
    Passing(u64),
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
            range_objects: RANGE_OBJECTS,
            pass: Some(Pass::default()),
        }
    }

    /// Brings the ranges to the newest change, or as far as time permits. What is done stays done if the future is dropped.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or the next object is damaged.
    pub(super) async fn advance(&mut self, journal: &Journal, until: Instant) -> Result<Progress, JournalError> {
        let is_stale = self.journal != journal.identity()
            || self.seeds != journal.seed_count()
            || self.head > journal.head()
            || journal.count_after(self.head) > MAX_CHANGES;
        if is_stale && self.pass.is_none() {
            *self = Self::new(self.selection.clone(), journal);
        }
        loop {
            while self.pass.is_some() {
                self.pass_on(journal).await?;
                if let Some(pass) = self.pass.as_ref().filter(|_| Instant::now() >= until) {
                    return Ok(Progress::Passing(pass.total));
                }
            }
            match self.follow(journal).await {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::Complete),
                // Retention has removed changes that the ranges do not have.
                Err(JournalError::Gone { .. }) => *self = Self::new(self.selection.clone(), journal),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the next objects of the pass.
    async fn pass_on(&mut self, journal: &Journal) -> Result<(), JournalError> {
        let after = self.pass.as_ref().and_then(|pass| pass.after.clone());
        let page = read(journal, &self.selection, after, PASS_OBJECTS).await?;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.total += page.len() as u64;
        let is_restricted = self.selection.is_restricted();
        let is_end = page.is_empty();
        for (uri, digests) in page {
            pass.examined += 1;
            let is_selected = digests.is_some();
            pass.current.add(digests.unwrap_or_default());
            let is_full = pass.current.objects >= self.range_objects || pass.examined >= EXAMINED_OBJECTS;
            if is_full && (is_selected || !is_restricted) {
                let digests = std::mem::take(&mut pass.current);
                self.ranges.push(Range { through: Some(uri.clone()), digests });
                pass.examined = 0;
            }
            pass.after = Some(uri);
        }
        if is_end {
            let digests = std::mem::take(&mut pass.current);
            self.ranges.push(Range { through: None, digests });
            self.pass = None;
        }
        self.join_neighbours();
        Ok(())
    }

    /// Joins each two neighbours, if there are too many ranges.
    fn join_neighbours(&mut self) {
        while self.ranges.len() > MAX_RANGES {
            let mut joined: Vec<Range> = Vec::with_capacity(self.ranges.len() / 2 + 1);
            for (at, range) in self.ranges.drain(..).enumerate() {
                match joined.last_mut().filter(|_| at % 2 == 1) {
                    Some(last) => {
                        last.through = range.through;
                        last.digests.add(range.digests);
                    }
                    None => joined.push(range),
                }
            }
            self.ranges = joined;
            self.range_objects *= 2;
        }
    }

    /// Reads the ranges of the next changes again. Returns false if there are none.
    async fn follow(&mut self, journal: &Journal) -> Result<bool, JournalError> {
        let changes = journal.intact_after(self.head, PAGE_CHANGES).await?;
        let Some(last) = changes.last().map(|change| change.seq()) else { return Ok(false) };
        let mut touched = BTreeSet::new();
        for change in &changes {
            let object = &change.change()?.modification.object;
            if self.selection.can_have(object) {
                touched.insert(self.position(object.as_str()));
            }
        }
        // From the end, because reading a range again can divide or remove it.
        for at in touched.into_iter().rev() {
            self.read_again(journal, at).await?;
        }
        self.join_neighbours();
        self.head = last;
        Ok(true)
    }

    /// Returns the place of the range that has an object.
    fn position(&self, object: &str) -> usize {
        self.ranges.partition_point(|range| range.through.as_ref().is_some_and(|through| through.as_str() < object))
    }

    /// Reads a range again, and divides it if it has grown.
    async fn read_again(&mut self, journal: &Journal, at: usize) -> Result<(), JournalError> {
        let Some(range) = self.ranges.get(at) else { return Ok(()) };
        let through = range.through.clone();
        let after = at.checked_sub(1).and_then(|before| self.ranges[before].through.clone());
        let is_restricted = self.selection.is_restricted();
        let mut parts = Vec::new();
        let mut current = Digests::default();
        let mut last_selected = None;
        let objects = read_range(journal, &self.selection, after, through.as_ref()).await?;
        for (uri, digests) in objects {
            let Some(digests) = digests else { continue };
            current.add(digests);
            last_selected = Some(uri.clone());
            if current.objects >= 2 * self.range_objects {
                parts.push(Range { through: Some(uri), digests: std::mem::take(&mut current) });
            }
        }
        // The end of a range stays, except where it would name an object that the reader may not see any more. Between that
        // object and the last selected one, nothing is selected.
        let end = match through {
            None => None,
            Some(_) if is_restricted => last_selected,
            through => through,
        };
        if end.is_none() && at + 1 < self.ranges.len() {
            self.ranges.remove(at);
            return Ok(());
        }
        match parts.last_mut().filter(|part| part.through == end && current == Digests::default()) {
            Some(_) => {}
            None => parts.push(Range { through: end, digests: current }),
        }
        self.ranges.splice(at..=at, parts);
        Ok(())
    }

    /// Returns the pieces of the objects after one URI, up to and including another.
    pub(super) fn pieces(&self, after: Option<&Uri>, through: Option<&Uri>) -> Vec<Piece> {
        let first = after.map_or(0, |after| {
            self.ranges.partition_point(|range| range.through.as_ref().is_some_and(|end| end <= after))
        });
        let mut pieces = Vec::new();
        let mut position = after.cloned();
        let mut begin = first.checked_sub(1).and_then(|before| self.ranges[before].through.clone());
        for range in &self.ranges[first.min(self.ranges.len())..] {
            let is_whole = begin == position && is_through(range.through.as_ref(), through);
            let end =
                if is_through(range.through.as_ref(), through) { range.through.clone() } else { through.cloned() };
            pieces.push(match is_whole {
                true => Piece::Whole(range.clone()),
                false => Piece::Part { after: position, through: end.clone() },
            });
            if end.as_ref() == through {
                break;
            }
            (position, begin) = (end, range.through.clone());
        }
        pieces
    }
}

/// Returns whether a range that ends with `end` ends at or before `through`. `None` is the end of all objects.
fn is_through(end: Option<&Uri>, through: Option<&Uri>) -> bool {
    match (end, through) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(end), Some(through)) => end <= through,
    }
}

/// An object with its digests, if it is selected.
pub(super) type Examined = (Uri, Option<Digests>);

/// Reads the next objects after a URI. The digests are made on a thread that may block.
async fn read(
    journal: &Journal,
    selection: &Selection,
    after: Option<Uri>,
    objects: usize,
) -> Result<Vec<Examined>, JournalError> {
    let page = journal.registry(after, objects).await?;
    let selection = selection.clone();
    let working = tokio::task::spawn_blocking(move || {
        let examine = |(uri, state)| match selection.digests(&uri, &state) {
            Ok(digests) => Ok((uri, digests)),
            Err(error) => Err(error.of_object(&uri)),
        };
        page.into_iter().map(examine).collect::<Result<Vec<_>, StoreError>>()
    });
    Ok(working.await.map_err(|_| JournalError::Closed)??)
}

/// Reads all objects after one URI, up to and including another.
pub(super) async fn read_range(
    journal: &Journal,
    selection: &Selection,
    mut after: Option<Uri>,
    through: Option<&Uri>,
) -> Result<Vec<Examined>, JournalError> {
    let mut objects = Vec::new();
    loop {
        let page = read(journal, selection, after, READ_OBJECTS).await?;
        let Some((last, _)) = page.last() else { return Ok(objects) };
        after = Some(last.clone());
        let is_end = through.is_some_and(|through| last >= through);
        // What is not selected is of no use after this.
        let within = |(uri, digests): &Examined| digests.is_some() && is_through(Some(uri), through);
        objects.extend(page.into_iter().filter(within));
        if is_end {
            return Ok(objects);
        }
    }
}
