//! What a list of a harvest has shown, within bounds.

use std::collections::{BTreeMap, BTreeSet};

use super::{progress::WalkError, seen::SeenObjects};
use crate::{
    journal::harvest::ListedRecords,
    model::{Draft, Timestamp, Uri},
};

/// Maximum number of differing objects. More are a harvest that has never run, which a run repairs.
const MAX_DIFFERING: usize = 50_000;

/// Maximum size of the notes about differing objects, and of their records, in bytes.
const MAX_DIFFERING_BYTES: usize = 64 << 20;

/// Assumed size of the facts about an item or an object, without its URIs, in bytes.
const ITEM_BYTES: usize = 512;

/// Differing objects, with the fingerprints of their differences.
pub(super) type Differing = BTreeMap<Uri, BTreeSet<u64>>;

/// What a list has shown.
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

    /// Notes how an object differs.
    pub(super) fn note_difference(
        &mut self,
        object: Uri,
        fingerprints: impl Iterator<Item = u64>,
    ) -> Result<(), TooMany> {
        let size = object.as_str().len();
        let known = self.differing.len();
        let noted = self.differing.entry(object).or_default();
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
    let items = draft.items.listed().iter().map(|item| ITEM_BYTES + item.uri.as_str().len()).sum::<usize>();
    let report = draft.report.as_ref().map_or(0, |report| report.document().as_str().len());
    ITEM_BYTES + draft.object.as_str().len() + items + report
}

/// Objects of the registry that a list did not have, within bounds.
#[derive(Default)]
pub(super) struct ExtraObjects {
    objects: Vec<Uri>,
    bytes: usize,
}

impl ExtraObjects {
    pub(super) fn add(&mut self, objects: Vec<Uri>) -> Result<(), WalkError> {
        self.bytes += objects.iter().map(|object| size_of::<Uri>() + object.as_str().len()).sum::<usize>();
        self.objects.extend(objects);
        if self.objects.len() > MAX_DIFFERING || self.bytes > MAX_DIFFERING_BYTES {
            return Err(WalkError::Harvest(format!(
                "more than {} objects are no longer listed; see whether the list is complete",
                self.objects.len().min(MAX_DIFFERING)
            )));
        }
        Ok(())
    }

    pub(super) fn into_objects(self) -> Vec<Uri> {
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::{ExtraObjects, Listed, MAX_DIFFERING, MAX_DIFFERING_BYTES, TooMany, Uri};

    fn uri(number: usize, bytes: usize) -> Uri {
        let start = format!("http://h/{number}/");
        Uri::parse(&format!("{start}{}", "x".repeat(bytes.saturating_sub(start.len())))).unwrap()
    }

    /// Short URIs meet the limit of their number, and long ones that of their bytes.
    #[test]
    fn notes_have_a_bound_in_number_and_bytes() {
        for (bytes, most) in [(20, MAX_DIFFERING), (Uri::MAX_BYTES, MAX_DIFFERING_BYTES / Uri::MAX_BYTES)] {
            let mut listed = Listed::new(String::new());
            let fails = |number: &usize| listed.note_difference(uri(*number, bytes), [1, 2].into_iter()).is_err();
            let first = (0..=most).find(fails).unwrap();
            assert!(first > most / 2 && first <= most, "{first} of {most}");
            let mut extra = ExtraObjects::default();
            let fails = |number: &usize| extra.add(vec![uri(*number, bytes)]).is_err();
            let first = (0..=most).find(fails).unwrap();
            assert!(first > most / 2 && first <= most, "{first} of {most}");
        }
    }

    #[test]
    fn one_object_has_a_bound_for_its_differences() {
        let mut listed = Listed::new(String::new());
        let fails = |part: usize| {
            let fingerprints = (0..100_000).map(|number| part as u64 * 100_000 + number);
            matches!(listed.note_difference(uri(1, 20), fingerprints), Err(TooMany))
        };
        assert!((0..100).any(fails));
    }
}
