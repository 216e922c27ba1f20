//! Comparison of entries with the last look at them, to notice those that change without a new date at each look.
//!
//! Some publishers write a token, a nonce or the time of the request into their entries. Such a change is no news. After
//! the third one in a row an entry is withheld, except once a day, until two looks in a row find it the same. It is not
//! withheld if it gains or loses a file, unless that returns at each look as well.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    format::feed::{EntryIdentity, EntryKey},
    model::Timestamp,
};

/// Number of changes in a row without a new date after which an entry is noisy.
const NOISY_CHANGES: u32 = 3;

/// Time after which the change of a noisy entry counts again, in milliseconds.
const PAUSE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Maximum number of entries that are remembered. Those of the newest document come first.
const MAX_LOOKS: usize = 500;

/// Digest of the key of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct KeyDigest(String);

impl KeyDigest {
    pub(super) fn of(key: &str) -> Self {
        Self(short_digest(key))
    }
}

/// An entry as the last look found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Look {
    #[serde(rename = "k")]
    key: KeyDigest,
    /// Digest of the link, without its scheme; absent without a link.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// Digest of the entry.
    #[serde(rename = "d")]
    digest: String,
    /// Date of the entry, in milliseconds since 1970.
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    date: Option<i64>,
    /// Number of changes in a row without a new date.
    #[serde(rename = "n", skip_serializing_if = "is_zero")]
    changes: u32,
    /// Time at which a change of the noisy entry last counted.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    counted: Option<Timestamp>,
    /// Digest of the URLs of its files, without their queries; absent in looks of earlier versions.
    #[serde(rename = "f", skip_serializing_if = "Option::is_none")]
    files: Option<String>,
    /// Number of changes of the files in a row without a new date.
    #[serde(rename = "m", skip_serializing_if = "is_zero")]
    file_changes: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Look {
    /// Returns the look of an entry that has not changed before.
    fn without_changes(&self) -> Self {
        Self { changes: 0, counted: None, file_changes: 0, ..self.clone() }
    }
}

/// Result of the comparison of a document with the last looks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noise {
    /// Keys of the noisy entries.
    pub(super) noisy: Vec<String>,
    /// Places of the entries whose change does not count at this look.
    pub(super) withheld: Vec<usize>,
    /// Number of entries with a new key and the link of a known entry that has left the document.
    pub(super) renamed: usize,
}

/// Compares the entries of a document with the last looks at them, which are replaced. `deletes` tells whether the document
/// deletes the entry with a key if it does not show it.
pub(super) fn look<'e>(
    looks: &mut Vec<Look>,
    entries: impl Iterator<Item = (&'e EntryIdentity, EntryKey)>,
    deletes: impl Fn(&KeyDigest) -> bool,
    now: Timestamp,
) -> Noise {
    let mut noise = Noise::default();
    let former = std::mem::take(looks);
    let by_key: HashMap<&KeyDigest, &Look> = former.iter().map(|look| (&look.key, look)).collect();
    for (place, (identity, key)) in entries.enumerate() {
        let name = identity.key(key);
        let digest = KeyDigest::of(&name);
        let known = by_key.get(&digest).copied();
        let mut new = Look {
            key: digest,
            link: identity.link.as_deref().map(|link| short_digest(without_scheme(link))),
            digest: identity.digest.chars().take(16).collect(),
            date: identity.date.map(Timestamp::millis),
            files: Some(files_digest(identity)),
            ..Look::default()
        };
        let mut has_other_files = false;
        if let Some(known) = known.filter(|known| known.digest != new.digest && known.date == new.date) {
            (new.changes, new.counted) = (known.changes.saturating_add(1), known.counted);
            if known.files.is_some() && known.files != new.files {
                new.file_changes = known.file_changes.saturating_add(1);
                has_other_files = new.file_changes < NOISY_CHANGES;
            }
        }
        if new.changes >= NOISY_CHANGES {
            noise.noisy.push(name);
            let is_due = |counted: Timestamp| now.millis().saturating_sub(counted.millis()) >= PAUSE_MILLIS;
            if new.counted.is_none_or(is_due) || has_other_files {
                new.counted = Some(now);
            } else {
                noise.withheld.push(place);
            }
        }
        looks.push(new);
    }
    let present: HashSet<KeyDigest> = looks.iter().map(|look| look.key.clone()).collect();
    let gone: Vec<_> = former.iter().filter(|look| !present.contains(&look.key)).collect();
    let links: HashSet<&str> = gone.iter().filter_map(|look| look.link.as_deref()).collect();
    let is_renamed = |look: &&Look| {
        let has_known_link = look.link.as_deref().is_some_and(|link| links.contains(link));
        has_known_link && !by_key.contains_key(&look.key)
    };
    noise.renamed = looks.iter().filter(is_renamed).count();
    // An entry that comes back after its deletion counts, however often it has changed before.
    let absent = |look: &Look| if deletes(&look.key) { look.without_changes() } else { look.clone() };
    looks.extend(gone.into_iter().map(absent));
    looks.truncate(MAX_LOOKS);
    noise
}

/// Returns a digest of the URLs of the files of an entry. A query may have a token that is new at each look.
fn files_digest(identity: &EntryIdentity) -> String {
    let path = |url: &String| url.split(['?', '#']).next().unwrap_or_default().to_owned();
    let mut paths: Vec<_> = identity.files.iter().map(path).collect();
    paths.sort_unstable();
    short_digest(&paths.join("\n"))
}

fn without_scheme(link: &str) -> &str {
    link.strip_prefix("https:").or_else(|| link.strip_prefix("http:")).unwrap_or(link)
}

fn short_digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..8])
}

#[cfg(test)]
mod tests {
    use super::{EntryIdentity, EntryKey, Look, Noise, PAUSE_MILLIS, Timestamp, look};

    fn entry(id: &str, digest: u32, date: Option<i64>) -> EntryIdentity {
        EntryIdentity {
            id: Some(id.to_owned()),
            link: Some(format!("http://h/{}", &id[..1])),
            title: String::new(),
            date: date.and_then(Timestamp::from_millis),
            unreadable_date: None,
            signed_url: None,
            files: Vec::new(),
            digest: format!("{digest:064}").chars().rev().collect(),
            content_digest: String::new(),
        }
    }

    fn look_in_window(looks: &mut Vec<Look>, entries: &[EntryIdentity], now: i64, is_complete: bool) -> Noise {
        let entries = entries.iter().map(|entry| (entry, EntryKey::Id));
        look(looks, entries, |_| is_complete, Timestamp::from_millis(now).unwrap())
    }

    fn look_at(looks: &mut Vec<Look>, entries: &[EntryIdentity], now: i64) -> Noise {
        look_in_window(looks, entries, now, false)
    }

    #[test]
    fn entry_is_withheld_after_its_third_change_in_a_row() {
        let mut looks = Vec::new();
        let mut now = 0;
        let mut withheld = |digest: u32, wait: i64| {
            now += wait;
            let noise = look_at(&mut looks, &[entry("a", digest, None)], now);
            (noise.noisy.len(), noise.withheld.len())
        };
        let found: Vec<_> = (1..=6).map(|digest| withheld(digest, 1000)).collect();
        assert_eq!(found, [(0, 0), (0, 0), (0, 0), (1, 0), (1, 1), (1, 1)]);
        assert_eq!([withheld(7, PAUSE_MILLIS), withheld(8, 1000)], [(1, 0), (1, 1)]);
        // The entry has settled.
        assert_eq!([withheld(8, 1000), withheld(9, 1000)], [(0, 0), (0, 0)]);
    }

    #[test]
    fn noisy_entry_with_other_files_is_not_withheld() {
        let (mut looks, mut digest) = (Vec::new(), 0);
        let mut withheld = |files: &[&str]| {
            digest += 1;
            let files = files.iter().map(|file| format!("http://h/{file}")).collect();
            look_at(&mut looks, &[EntryIdentity { files, ..entry("a", digest, None) }], 0).withheld.len()
        };
        assert_eq!([(); 6].map(|()| withheld(&["a.mp3?t=1"])), [0, 0, 0, 0, 1, 1]);
        assert_eq!(withheld(&["a.mp3?t=2"]), 1, "another token is no other file");
        assert_eq!([withheld(&["b.mp3", "a.mp3"]), withheld(&["a.mp3", "b.mp3"])], [0, 1]);
        let files_that_change = ["c", "d", "e", "f"];
        assert_eq!(files_that_change.map(|file| withheld(&[file])), [0, 0, 1, 1]);
    }

    #[test]
    fn look_of_an_earlier_version_knows_no_files() {
        let mut looks = Vec::new();
        (1..=5).for_each(|digest| _ = look_at(&mut looks, &[entry("a", digest, None)], 0));
        looks.iter_mut().for_each(|look: &mut Look| look.files = None);
        let files = vec!["http://h/a.mp3".to_owned()];
        let noise = look_at(&mut looks, &[EntryIdentity { files, ..entry("a", 6, None) }], 0);
        assert_eq!(noise.withheld, [0]);
    }

    #[test]
    fn noisy_entry_counts_after_its_deletion_and_stays_withheld_after_an_absence() {
        for (is_complete, withheld) in [(true, 0), (false, 1)] {
            let mut looks = Vec::new();
            for digest in 1..=5 {
                look_in_window(&mut looks, &[entry("a", digest, None)], 0, is_complete);
            }
            look_in_window(&mut looks, &[], 0, is_complete);
            let noise = look_in_window(&mut looks, &[entry("a", 6, None)], 0, is_complete);
            assert_eq!(noise.withheld.len(), withheld);
        }
    }

    #[test]
    fn change_with_a_new_date_counts() {
        let mut looks = Vec::new();
        for number in 1..10 {
            let noise = look_at(&mut looks, &[entry("a", number, Some(number.into()))], 0);
            assert_eq!(noise, Noise::default());
        }
    }

    #[test]
    fn new_ids_with_known_links_are_counted() {
        let mut looks = Vec::new();
        look_at(&mut looks, &[entry("a1", 1, None), entry("b1", 1, None)], 0);
        let noise = look_at(&mut looks, &[entry("a2", 1, None), entry("b1", 1, None), entry("c", 1, None)], 0);
        assert_eq!(noise.renamed, 1);
        // The former entry is remembered.
        assert_eq!(looks.len(), 4);
    }
}
