//! Selection of the entries of a document: the key of each entry, repeated entries, and deletions.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    ops::Range,
};

use sha2::{Digest, Sha256};

use super::{
    document::FeedDocument,
    looks::{KeyDigest, Look, Noise, look},
};
use crate::{
    format::feed::{EntryIdentity, EntryKey, identify},
    model::Timestamp,
    transfer::Cancelled,
};

/// Maximum number of ambiguous ids and links that are remembered. The oldest are forgotten.
const MAX_AMBIGUOUS: usize = 256;

/// Maximum number of unreadable entries that are remembered.
const MAX_UNREADABLE: usize = 256;

/// Entries and deletions for the dialect, oldest first.
pub(super) struct Selection {
    pub(super) entries: Vec<SelectedEntry>,
    /// The readable entries that the document shows.
    pub(super) shown: Vec<ShownEntry>,
    /// Facts about the entries that an administrator should know.
    pub(super) remarks: Vec<String>,
    /// Comparison with the last look at the entries.
    pub(super) noise: Noise,
}

/// An entry or a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectedEntry {
    /// Parts of the document that belong to it.
    pub(super) parts: Range<usize>,
    /// Property that identifies the entry; `None` for a deletion.
    pub(super) key: Option<EntryKey>,
    /// Value of the property; `None` for a deletion and for an unreadable entry.
    pub(super) key_value: Option<String>,
}

/// A readable entry that a document shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownEntry {
    /// Value of the property that identifies it.
    pub(super) key: String,
    /// URLs of its files.
    pub(super) files: Vec<String>,
    /// Whether its change does not count at this look.
    pub(super) is_withheld: bool,
}

/// An entry that can be parsed.
struct Candidate {
    /// Number of its part.
    part: usize,
    identity: EntryIdentity,
    key: EntryKey,
}

/// Memory of a harvest about the entries of the last document.
pub(super) struct Remembered<'p> {
    /// Digests of ids and links that several entries have had.
    pub(super) ambiguous: &'p mut Vec<String>,
    /// Digests of the unreadable entries.
    pub(super) unreadable: &'p mut Vec<String>,
    /// The readable entries.
    pub(super) looks: &'p mut Vec<Look>,
}

/// Selects the entries of a document. Entries of more than `max_record_bytes` are unreadable. `Remembered` describes the last
/// document before, and this one afterwards. A work that is cancelled selects not all.
pub(super) fn select(
    document: &FeedDocument<'_>,
    feed_url: &str,
    max_record_bytes: usize,
    Remembered { ambiguous, unreadable, looks }: Remembered<'_>,
    cancelled: &Cancelled,
) -> Selection {
    let (mut candidates, mut rejected) = (Vec::new(), Vec::new());
    for (number, part) in document.parts.iter().enumerate().filter(|(_, part)| part.deletion.is_none()) {
        if cancelled.is_cancelled() {
            break;
        }
        let alone = document.alone(part);
        match identify(alone.as_bytes(), feed_url) {
            Ok(identity) if alone.len() <= max_record_bytes => {
                candidates.push(Candidate { part: number, identity, key: EntryKey::Id });
            }
            Ok(_) | Err(_) => rejected.push(number),
        }
    }
    let has_new_ambiguity = choose_keys(&mut candidates, ambiguous);
    let mut newest = newest_by_key(candidates);
    let deletions = apply_deletions(document, &mut newest);
    sort_by_date(&mut newest);
    let seen = newest.iter().map(|candidate| (&candidate.identity, candidate.key));
    let deleted = deleted_keys(document);
    let noise = look(looks, seen, |key| document.is_complete || deleted.contains(key), Timestamp::now());
    let mut entries: Vec<_> = new_rejections(document, &rejected, unreadable)
        .into_iter()
        .map(|part| (part, Some(EntryKey::Id), None))
        .chain(
            published_entries(&newest, &noise)
                .map(|candidate| (candidate.part, Some(candidate.key), Some(candidate.identity.key(candidate.key)))),
        )
        .chain(deletions.into_iter().map(|part| (part, None, None)))
        .map(|(part, key, key_value)| SelectedEntry { parts: part..part + 1, key, key_value })
        .collect();
    // Feeds begin with their newest entries.
    entries.reverse();
    let remarks = remarks(&newest, has_new_ambiguity, &noise);
    let withheld: HashSet<_> = noise.withheld.iter().copied().collect();
    let shown = newest.into_iter().enumerate().map(|(place, Candidate { identity, key, .. })| ShownEntry {
        key: identity.key(key),
        files: identity.files,
        is_withheld: withheld.contains(&place),
    });
    Selection { entries, shown: shown.collect(), remarks, noise }
}

/// Returns the entries that are not withheld.
fn published_entries<'c>(entries: &'c [Candidate], noise: &'c Noise) -> impl Iterator<Item = &'c Candidate> {
    entries.iter().enumerate().filter(|(place, _)| !noise.withheld.contains(place)).map(|(_, candidate)| candidate)
}

/// Sorts entries by their dates, newest first, if all have one. Otherwise the order of the document counts, which has the
/// newest entry first in nearly all feeds.
fn sort_by_date(entries: &mut [Candidate]) {
    if entries.iter().all(|entry| entry.identity.date.is_some()) {
        entries.sort_by_key(|entry| Reverse(entry.identity.date));
    }
}

/// Returns the facts about entries that an administrator should know.
fn remarks(entries: &[Candidate], has_new_ambiguity: bool, noise: &Noise) -> Vec<String> {
    let mut remarks = Vec::new();
    if has_new_ambiguity {
        let remark = "several entries of the feed have the same id or link; their links or contents identify them";
        remarks.push(remark.to_owned());
    }
    let mut remark = |facts: &mut dyn Iterator<Item = &String>, text: &dyn Fn(usize, &str) -> String| {
        let Some(first) = facts.next() else { return };
        remarks.push(text(facts.count() + 1, first));
    };
    remark(&mut entries.iter().filter_map(|entry| entry.identity.unreadable_date.as_ref()), &|count, date| {
        format!("the dates of {count} entries are not readable, such as {date:?}")
    });
    remark(&mut entries.iter().filter_map(|entry| entry.identity.signed_url.as_ref()), &|count, url| {
        format!("{count} entries have files at signed URLs, which are published without the signature, such as {url}")
    });
    remark(&mut noise.noisy.iter(), &|count, key| {
        format!(
            "{count} entries change at each look without a new date, such as {key:?}; a change of such an entry counts \
             once a day, or when it has stayed the same"
        )
    });
    remarks
}

/// Chooses the best key that is unique. A key that was once ambiguous stays so, because an entry must not become another
/// object when its twin leaves the document. Returns whether there are new ambiguities.
fn choose_keys(candidates: &mut [Candidate], ambiguous: &mut Vec<String>) -> bool {
    let mut is_new = false;
    for key in [EntryKey::Id, EntryKey::Link] {
        let known: HashSet<&String> = ambiguous.iter().collect();
        let found = repeated_values(candidates, key).into_iter().map(|value| digest(key, &value));
        let mut new: Vec<_> = found.filter(|value| !known.contains(value)).collect();
        is_new |= !new.is_empty();
        ambiguous.append(&mut new);
        let next = if key == EntryKey::Id { EntryKey::Link } else { EntryKey::Content };
        let known: HashSet<&String> = ambiguous.iter().collect();
        for candidate in candidates.iter_mut().filter(|candidate| candidate.key == key) {
            if known.contains(&digest(key, &candidate.identity.key(key))) {
                candidate.key = next;
            }
        }
    }
    ambiguous.drain(..ambiguous.len().saturating_sub(MAX_AMBIGUOUS));
    is_new
}

/// Returns the values of a key that different entries have. Two versions of one entry have the same link and title.
fn repeated_values(candidates: &[Candidate], key: EntryKey) -> HashSet<String> {
    let mut first: HashMap<String, &EntryIdentity> = HashMap::new();
    let mut repeated = HashSet::new();
    for candidate in candidates.iter().filter(|candidate| candidate.key == key) {
        let (value, identity) = (candidate.identity.key(key), &candidate.identity);
        match first.get(&value) {
            Some(known) if known.link != identity.link || known.title != identity.title => {
                repeated.insert(value);
            }
            Some(_) => {}
            None => {
                first.insert(value, identity);
            }
        }
    }
    repeated
}

/// Returns the newest entry of each key, in the order of the document. Of entries with equal dates the first one counts.
fn newest_by_key(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut newest: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        match places.get(&candidate.identity.key(candidate.key)) {
            Some(&place) if candidate.identity.date > newest[place].identity.date => newest[place] = candidate,
            Some(_) => {}
            None => {
                places.insert(candidate.identity.key(candidate.key), newest.len());
                newest.push(candidate);
            }
        }
    }
    newest
}

/// Removes the entries that were deleted after their date, and returns the deletions that are left: those without a
/// newer entry (RFC 6721 section 3).
fn apply_deletions(document: &FeedDocument<'_>, entries: &mut Vec<Candidate>) -> Vec<usize> {
    let mut by_id: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        by_id.entry(entry.identity.id.as_deref().unwrap_or_default()).or_default().push(place);
    }
    // Entries without an id.
    by_id.remove("");
    let (mut deletions, mut deleted) = (Vec::new(), HashSet::new());
    for (number, part) in document.parts.iter().enumerate() {
        let Some(deletion) = &part.deletion else { continue };
        let of_id = by_id.get(deletion.id.as_str()).map_or(&[][..], Vec::as_slice);
        if !of_id.iter().any(|place| entries[*place].identity.date > deletion.when) {
            deleted.extend(by_id.remove(deletion.id.as_str()).unwrap_or_default());
            deletions.push(number);
        }
    }
    let mut place = 0;
    entries.retain(|_| {
        place += 1;
        !deleted.contains(&(place - 1))
    });
    deletions
}

/// Returns the keys of the entries that the document deletes.
fn deleted_keys(document: &FeedDocument<'_>) -> HashSet<KeyDigest> {
    let deletions = document.parts.iter().filter_map(|part| part.deletion.as_ref());
    deletions.map(|deletion| KeyDigest::of(&deletion.id)).collect()
}

/// Returns the unreadable entries that the last document did not have, so that an entry goes to the quarantine once.
fn new_rejections(document: &FeedDocument<'_>, rejected: &[usize], unreadable: &mut Vec<String>) -> Vec<usize> {
    let digest_of = |number: &usize| hex::encode(&Sha256::digest(document.xml(&document.parts[*number]))[..8]);
    let digests: Vec<_> = rejected.iter().map(digest_of).collect();
    let is_new = |(_, digest): &(&usize, &String)| !unreadable.contains(digest);
    let new = rejected.iter().zip(&digests).filter(is_new).map(|(number, _)| *number).collect();
    *unreadable = digests;
    unreadable.truncate(MAX_UNREADABLE);
    new
}

fn digest(key: EntryKey, value: &str) -> String {
    hex::encode(&Sha256::digest(format!("{}\n{value}", key.name()))[..8])
}

#[cfg(test)]
mod tests {
    use super::{Cancelled, EntryKey, FeedDocument, Look, Remembered, select};

    fn selected(items: &str, ambiguous: &mut Vec<String>) -> Vec<(String, Option<EntryKey>)> {
        selected_after(items, ambiguous, &mut Vec::new())
    }

    fn selected_after(
        items: &str,
        ambiguous: &mut Vec<String>,
        looks: &mut Vec<Look>,
    ) -> Vec<(String, Option<EntryKey>)> {
        let text = format!(
            "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:at='http://purl.org/atompub/tombstones/1.0'>{items}</feed>"
        );
        let document = FeedDocument::parse(&text, 1 << 30).unwrap();
        let (mut unreadable, cancelled) = (Vec::new(), Cancelled::default());
        let lists = Remembered { ambiguous, unreadable: &mut unreadable, looks };
        let selection = select(&document, "http://h.example/feed", 1 << 20, lists, &cancelled);
        let alone = |entry: super::SelectedEntry| (document.alone(&document.parts[entry.parts.start]), entry.key);
        selection.entries.into_iter().map(alone).collect()
    }

    fn entry(id: &str, link: &str, title: &str, date: &str) -> String {
        format!("<entry><id>{id}</id><link href='{link}'/><title>{title}</title><updated>{date}</updated></entry>")
    }

    fn keys(entries: &[(String, Option<EntryKey>)]) -> Vec<Option<EntryKey>> {
        entries.iter().map(|(_, key)| *key).collect()
    }

    #[test]
    fn repeated_ids_of_different_entries_are_replaced_by_links_and_content() {
        let mut ambiguous = Vec::new();
        let (a, b) = (entry("x", "http://h/a", "A", ""), entry("x", "http://h/b", "B", ""));
        let other = entry("y", "http://h/a", "A", "");
        let found = selected(&format!("{a}{b}{other}"), &mut ambiguous);
        assert_eq!(keys(&found), [Some(EntryKey::Id), Some(EntryKey::Link), Some(EntryKey::Link)]);
        // The twin has left the document.
        assert_eq!(keys(&selected(&b, &mut ambiguous)), [Some(EntryKey::Link)]);
        let same_link = entry("x", "http://h/a", "Another", "");
        let found = selected(&format!("{a}{same_link}"), &mut ambiguous);
        assert_eq!(keys(&found), [Some(EntryKey::Content), Some(EntryKey::Content)]);
    }

    #[test]
    fn newest_version_of_an_entry_counts() {
        let version = |date| entry("x", "http://h/a", "A", date);
        let items = ["2024-01-01T00:00:00Z", "2024-01-03T00:00:00Z", "2024-01-02T00:00:00Z"].map(version).concat();
        let found = selected(&items, &mut Vec::new());
        assert_eq!(found.len(), 1);
        assert!(found[0].0.contains("2024-01-03"), "{found:?}");
    }

    #[test]
    fn deletion_counts_unless_the_entry_is_newer() {
        let deleted = "<at:deleted-entry ref='x' when='2024-01-02T00:00:00Z'/>";
        for (date, is_deleted) in [("2024-01-01T00:00:00Z", true), ("2024-01-03T00:00:00Z", false)] {
            let found = selected(&format!("{deleted}{}", entry("x", "http://h/a", "A", date)), &mut Vec::new());
            assert_eq!(keys(&found), [if is_deleted { None } else { Some(EntryKey::Id) }], "{found:?}");
        }
    }

    #[test]
    fn entry_that_changes_at_each_look_counts_after_its_deletion() {
        let mut looks = Vec::new();
        let mut count = |items: &str| selected_after(items, &mut Vec::new(), &mut looks).len();
        let version = |title: &str| entry("x", "http://h/a", title, "");
        assert_eq!(["1", "2", "3", "4", "5", "6"].map(|title| count(&version(title))), [1, 1, 1, 1, 0, 0]);
        assert_eq!([count(""), count(&version("7"))], [0, 0], "it has only left the newest entries");
        assert_eq!([count("<at:deleted-entry ref='x' when='2024-01-02T00:00:00Z'/>"), count(&version("8"))], [1, 1]);
    }

    #[test]
    fn unreadable_entry_is_selected_once() {
        let text =
            "<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>a</id><content type='x y'>a</content></entry></feed>";
        let document = FeedDocument::parse(text, 1 << 30).unwrap();
        let (mut ambiguous, mut unreadable, mut looks) = (Vec::new(), Vec::new(), Vec::new());
        let cancelled = Cancelled::default();
        let mut count = || {
            let lists = Remembered { ambiguous: &mut ambiguous, unreadable: &mut unreadable, looks: &mut looks };
            select(&document, "http://h.example/", 1 << 20, lists, &cancelled).entries.len()
        };
        assert_eq!([count(), count()], [1, 0]);
    }
}
