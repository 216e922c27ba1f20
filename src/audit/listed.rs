//! The objects that a list of a harvest has shown, within bounds.

use std::collections::{BTreeMap, BTreeSet};

use super::{progress::WalkError, seen::SeenObjects};
use crate::{
    harvest::UnlistedObject,
    journal::harvest::ListedRecords,
    model::{Draft, DraftItem, Timestamp, Uri},
};

/// Maximum number of differing objects. More are a harvest that has never run, which a run repairs.
const MAX_DIFFERING: usize = 50_000;

/// Maximum size of the notes about differing objects, and of their records, in bytes.
const MAX_DIFFERING_BYTES: usize = 64 << 20;

/// Assumed size of the facts about an item or an object, without its URIs, in bytes.
const ITEM_BYTES: usize = 512;

/// Differing objects.
pub(super) type Differing = BTreeMap<Uri, DifferingObject>;

/// Differences of an object.
#[derive(Default)]
pub(super) struct DifferingObject {
    /// Fingerprints of its differences.
    pub(super) fingerprints: BTreeSet<u64>,
    /// Mark of the registry's state with which it was compared first.
    pub(super) state_mark: u64,
}

/// An object of the registry that a list did not have.
pub(super) struct ExtraObject {
    pub(super) unlisted: UnlistedObject,
    /// Mark of the registry's state that it had then.
    pub(super) state_mark: u64,
}

/// The objects of a list, and their differences.
pub(super) struct Listed {
    pub(super) seen: SeenObjects,
    /// Objects that differ. Only the first list notes them.
    pub(super) differing: Differing,
    /// The drafts of the newest record about each of these objects, with its date. Only the second list notes them.
    pub(super) newest: BTreeMap<Uri, (Option<Timestamp>, Vec<Draft>)>,
    /// Size of all of them, in bytes.
    bytes: usize,
    /// Number of records that could not be read, or that the repository does not deliver.
    pub(super) unreadable: u64,
    /// Whether the list may lack objects that exist.
    pub(super) has_gaps: bool,
    /// Position after the list.
    pub(super) position: String,
}

/// The objects that differ are too many, or too large.
#[derive(Debug)]
pub(super) struct TooMany;

impl Listed {
    pub(super) fn new(position: String) -> Self {
        let (differing, newest) = (BTreeMap::new(), BTreeMap::new());
        Self { seen: SeenObjects::new(), differing, newest, bytes: 0, unreadable: 0, has_gaps: false, position }
    }

    /// Notes how an object differs from the registry's state of this mark.
    pub(super) fn note_difference(
        &mut self,
        object: Uri,
        state_mark: u64,
        fingerprints: impl Iterator<Item = u64>,
    ) -> Result<(), TooMany> {
        let size = object.as_str().len();
        let known = self.differing.len();
        let new = DifferingObject { state_mark, ..DifferingObject::default() };
        let noted = &mut self.differing.entry(object).or_insert(new).fingerprints;
        let before = noted.len();
        noted.extend(fingerprints);
        self.bytes += (noted.len() - before) * size_of::<u64>() * 2;
        if self.differing.len() > known {
            self.bytes += ITEM_BYTES + size;
        }
        self.check()
    }

    /// Notes a record about an object. Of equally new ones the first counts, and of those without a date the last, as in a
    /// run.
    pub(super) fn note_newest(
        &mut self,
        object: Uri,
        date: Option<Timestamp>,
        drafts: Vec<Draft>,
    ) -> Result<(), TooMany> {
        let is_older = |newest: Option<Timestamp>| newest.is_some() && date <= newest;
        if self.newest.get(&object).is_some_and(|(newest, _)| is_older(*newest)) {
            return Ok(());
        }
        self.bytes += drafts.iter().map(size_of_draft).sum::<usize>();
        if let Some((_, older)) = self.newest.insert(object, (date, drafts)) {
            self.bytes -= older.iter().map(size_of_draft).sum::<usize>();
        }
        self.check()
    }

    fn check(&self) -> Result<(), TooMany> {
        let is_small = self.differing.len() <= MAX_DIFFERING && self.bytes <= MAX_DIFFERING_BYTES;
        if is_small { Ok(()) } else { Err(TooMany) }
    }

    /// Notes the entries of a page, some of which may exist without being readable.
    pub(super) fn note_entries(&mut self, entries: ListedRecords) {
        for object in entries.present.into_iter().filter_map(|entry| Uri::parse(&entry.identifier).ok()) {
            if !self.seen.contains(&object) {
                self.seen.insert(&object);
                self.unreadable += 1;
            }
        }
    }
}

/// Returns about how much memory a draft needs, in bytes.
fn size_of_draft(draft: &Draft) -> usize {
    let items = draft.items.listed().iter().map(size_of_item).sum::<usize>();
    let report = draft.report.as_ref().map_or(0, |report| report.document().as_str().len());
    let uris = [Some(&draft.object), draft.parent.as_ref()].into_iter().flatten().chain(&draft.types);
    let uris = uris.map(|uri| uri.as_str().len()).sum::<usize>();
    ITEM_BYTES + uris + draft.description.as_str().len() + items + report
}

fn size_of_item(item: &DraftItem) -> usize {
    let content = item.change.content().map_or(0, |content| {
        let original = content.original.as_ref().map_or(0, |original| original.url.as_str().len());
        content.url.as_str().len()
            + original
            + content.generated_by.as_ref().map_or(0, |program| program.as_str().len())
    });
    ITEM_BYTES + item.uri.as_str().len() + content
}

/// Objects of the registry that a list did not have, within bounds.
#[derive(Default)]
pub(super) struct ExtraObjects {
    objects: Vec<ExtraObject>,
    bytes: usize,
}

impl ExtraObjects {
    pub(super) fn add(&mut self, objects: Vec<ExtraObject>) -> Result<(), WalkError> {
        let size = |extra: &ExtraObject| size_of::<ExtraObject>() + extra.unlisted.object.as_str().len();
        self.bytes += objects.iter().map(size).sum::<usize>();
        self.objects.extend(objects);
        if self.objects.len() > MAX_DIFFERING || self.bytes > MAX_DIFFERING_BYTES {
            return Err(WalkError::Harvest(format!(
                "more than {} objects are no longer listed; see whether the list is complete",
                self.objects.len().min(MAX_DIFFERING)
            )));
        }
        Ok(())
    }

    pub(super) fn into_objects(self) -> Vec<ExtraObject> {
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::{ExtraObject, ExtraObjects, Listed, MAX_DIFFERING, MAX_DIFFERING_BYTES, TooMany, UnlistedObject, Uri};

    fn uri(number: usize, bytes: usize) -> Uri {
        let start = format!("http://h/{number}/");
        Uri::parse(&format!("{start}{}", "x".repeat(bytes.saturating_sub(start.len())))).unwrap()
    }

    /// Short URIs meet the limit of their number, and long ones that of their bytes.
    #[test]
    fn notes_have_a_bound_in_number_and_bytes() {
        for (bytes, most) in [(20, MAX_DIFFERING), (Uri::MAX_BYTES, MAX_DIFFERING_BYTES / Uri::MAX_BYTES)] {
            let mut listed = Listed::new(String::new());
            let fails = |number: &usize| listed.note_difference(uri(*number, bytes), 1, [1, 2].into_iter()).is_err();
            let first = (0..=most).find(fails).unwrap();
            assert!(first > most / 2 && first <= most, "{first} of {most}");
            let mut extra = ExtraObjects::default();
            let object = |number| ExtraObject {
                unlisted: UnlistedObject { object: uri(number, bytes), is_own: true },
                state_mark: 1,
            };
            let fails = |number: &usize| extra.add(vec![object(*number)]).is_err();
            let first = (0..=most).find(fails).unwrap();
            assert!(first > most / 2 && first <= most, "{first} of {most}");
        }
    }

    #[test]
    fn one_object_has_a_bound_for_its_differences() {
        let mut listed = Listed::new(String::new());
        let fails = |part: usize| {
            let fingerprints = (0..100_000).map(|number| part as u64 * 100_000 + number);
            matches!(listed.note_difference(uri(1, 20), 1, fingerprints), Err(TooMany))
        };
        assert!((0..100).any(fails));
    }
}
