//! Entries that several feeds show.
//!
//! * Of the feeds that show an entry, the one with the first name describes it. Of those that have a file of the entry, the
//!   first one describes the file.
//! * What a feed no longer has ends its own claim. An entry or a file is deleted when no feed claims it any more.
//! * The claim to an entry ends when a complete feed no longer has it. Another feed, which has only its newest entries, then
//!   stops to describe the entry, but its files are still claimed.
//!
//! The claims are the listed records of the journal, with the files as validators. Each run compares them with those that it
//! knows, so a feed that has not changed describes an entry when the other one no longer does. A claim that another feed may
//! not have seen leaves a record that it has ended, because the entry has been described otherwise meanwhile.

use std::collections::{BTreeSet, HashMap, HashSet};

use sha2::{Digest, Sha256};

use super::{
    harvest::FeedHarvester,
    position::{Position, Validators},
};
use crate::{
    format::feed::EntryShare,
    harvest::HarvestError,
    journal::{
        JournalError,
        harvest::{Claim, ListedAt, ListedRecord},
    },
    model::{SourceName, Timestamp},
};

/// Maximum number of records of other feeds that a run compares with those that it knows.
const MAX_SHARED: usize = 1000;

/// Number of entries whose claims are in memory at a time: each has at most 17 lists of files of 8 KiB.
pub(super) const PART_ENTRIES: usize = 64;

/// An entry that a document shows, as the journal lists it.
#[derive(Clone, Debug)]
pub(super) struct ListedEntry {
    /// URI of the object.
    pub(super) uri: String,
    /// URLs of its files.
    pub(super) files: Vec<String>,
    /// Whether its change does not count at this look.
    pub(super) is_withheld: bool,
    /// Whether other feeds claim it too.
    pub(super) is_shared: bool,
}

impl From<ListedEntry> for ListedRecord {
    fn from(ListedEntry { uri, files, is_shared, .. }: ListedEntry) -> Self {
        let validator = match (files.is_empty(), is_shared) {
            (true, false) => String::new(),
            // Without a validator, the record would not stay when the claim ends.
            (true, true) => ListedRecord::NO_PROPERTIES.to_owned(),
            // Serialization cannot fail: a list of texts has a JSON form.
            (false, _) => serde_json::to_string(&files).unwrap_or_default(),
        };
        Self { identifier: uri, validator, listed: ListedAt::Run }
    }
}

/// Returns the record of an entry that a feed no longer has, but others.
pub(super) fn ended_claim(uri: String, at: Timestamp) -> ListedRecord {
    ListedRecord { identifier: uri, validator: ListedRecord::NO_PROPERTIES.to_owned(), listed: ListedAt::Ended(at) }
}

/// Returns the files of a listed record.
pub(super) fn files_of(validator: &str) -> Vec<String> {
    serde_json::from_str(validator).unwrap_or_default()
}

/// Shares of the entries that other feeds claim, by their URIs; `None` for an entry of which this feed has nothing to
/// report.
pub(super) type Shares = HashMap<String, Option<EntryShare>>;

impl FeedHarvester {
    /// Returns what other feeds claim of entries.
    pub(super) async fn claims(&self, uris: Vec<String>) -> Result<HashMap<String, Vec<Claim>>, JournalError> {
        let mut claims = HashMap::<_, Vec<Claim>>::new();
        for mut claim in self.journal.claims(self.source.clone(), uris).await? {
            claim.is_listed &= self.harvests.has(&claim.source);
            claims.entry(claim.identifier.clone()).or_default().push(claim);
        }
        Ok(claims)
    }

    /// Returns entries with their shares. An entry that is withheld keeps its former files.
    pub(super) async fn shares(&self, entries: Vec<ListedEntry>) -> Result<(Vec<ListedEntry>, Shares), HarvestError> {
        let (mut all, mut shares) = (Vec::with_capacity(entries.len()), Shares::new());
        let mut rest = entries.into_iter();
        loop {
            let part: Vec<_> = rest.by_ref().take(PART_ENTRIES).collect();
            if part.is_empty() {
                return Ok((all, shares));
            }
            let claims = self.claims(part.iter().map(|entry| entry.uri.clone()).collect()).await?;
            let is_asked = |entry: &&ListedEntry| entry.is_withheld || claims.contains_key(&entry.uri);
            let asked: Vec<_> = part.iter().filter(is_asked).map(|entry| entry.uri.clone()).collect();
            if asked.is_empty() {
                all.extend(part);
                continue;
            }
            let former = self.journal.validators(self.source.clone(), asked).await?;
            let (source, is_audit) = (self.source.clone(), self.is_audit);
            let shared = self.client.budget().work(move |_| share_all(part, &claims, &former, &source, is_audit));
            let (part, found) = shared.await.map_err(|error| HarvestError::fail(error.to_string()))?;
            all.extend(part);
            shares.extend(found);
        }
    }

    /// Begins a run with the document of the feed, even an unchanged one, if other feeds claim something else than before.
    pub(super) async fn notice_claims(&self, position: &mut Position) -> Result<(), HarvestError> {
        if !position.is_unchecked && position.claims.is_empty() {
            return Ok(());
        }
        position.is_unchecked = false;
        let mut shared = self.journal.shared_records(self.source.clone(), MAX_SHARED).await?;
        shared.iter_mut().for_each(|claim| claim.is_listed &= self.harvests.has(&claim.source));
        let claims = self.client.budget().work(move |_| digest(&shared));
        let claims = claims.await.map_err(|error| HarvestError::fail(error.to_string()))?;
        if claims != position.claims {
            (position.claims, position.validators) = (claims, Validators::default());
            if !position.body.is_empty() {
                position.body.insert(0, '-');
            }
        }
        Ok(())
    }
}

/// Returns entries with the shares of those that others claim. An entry that is withheld keeps its former files.
fn share_all(
    mut entries: Vec<ListedEntry>,
    claims: &HashMap<String, Vec<Claim>>,
    former: &HashMap<String, String>,
    source: &SourceName,
    is_audit: bool,
) -> (Vec<ListedEntry>, Shares) {
    let mut shares = Shares::new();
    for entry in &mut entries {
        let former = former.get(&entry.uri).map(|validator| files_of(validator));
        if let Some(claims) = claims.get(&entry.uri) {
            let mut share = share(claims, former.as_deref().unwrap_or_default(), &entry.files, source);
            // An audit claims nothing, so an entry that only others have claimed is still described by them.
            if is_audit && former.is_none() && claims.iter().any(|claim| claim.is_listed) {
                share = share.map(|share| EntryShare { is_described: true, ..share });
            }
            shares.insert(entry.uri.clone(), share);
            entry.is_shared = true;
        }
        if entry.is_withheld
            && let Some(former) = former
        {
            entry.files = former;
        }
    }
    (entries, shares)
}

/// Returns the share of an entry that the feed shows with these files, and that others claim; `None` if nothing is left to
/// report.
fn share(claims: &[Claim], former: &[String], files: &[String], source: &SourceName) -> Option<EntryShare> {
    let is_first = |claim: &&Claim| claim.is_listed && claim.source.as_str() < source.as_str();
    let first: BTreeSet<_> = claims.iter().filter(is_first).flat_map(|claim| files_of(&claim.validator)).collect();
    let share = EntryShare {
        is_described: claims.iter().any(|claim| is_first(&claim)),
        described: files.iter().filter(|file| first.contains(*file)).cloned().collect(),
        gone: gone_files(claims, former, files),
    };
    let has_news = !share.is_described || !share.gone.is_empty() || share.described.len() < files.len();
    has_news.then_some(share)
}

/// Returns the share of an entry that the feed no longer shows, but others do: its files that no feed has any more. `None`
/// if there are none.
pub(super) fn share_of_gone(claims: &[Claim], former: &[String]) -> Option<EntryShare> {
    let gone = gone_files(claims, former, &[]);
    (!gone.is_empty()).then(|| EntryShare { is_described: true, gone, ..EntryShare::default() })
}

/// Returns the former files that neither these files nor the claims of others have.
fn gone_files(claims: &[Claim], former: &[String], files: &[String]) -> Vec<String> {
    let mut claimed: HashSet<String> = claims.iter().flat_map(|claim| files_of(&claim.validator)).collect();
    claimed.extend(files.iter().cloned());
    former.iter().filter(|file| !claimed.contains(*file)).cloned().collect()
}

/// Returns a digest of claims; an empty text without claims.
fn digest(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for Claim { identifier, source, validator, is_listed, ended } in claims {
        let files = if validator == ListedRecord::NO_PROPERTIES { "" } else { validator };
        for text in [identifier, source, files] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        hash.update([u8::from(*is_listed)]);
        hash.update(ended.to_be_bytes());
    }
    hex::encode(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::{Claim, EntryShare, SourceName, digest, share, share_of_gone};

    fn claim(source: &str, files: &[&str], is_listed: bool) -> Claim {
        let validator = if files.is_empty() { String::new() } else { serde_json::to_string(files).unwrap() };
        Claim {
            identifier: "urn:1".to_owned(),
            source: source.to_owned(),
            validator,
            is_listed,
            ended: i64::from(is_listed) - 1,
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn first_feed_describes_the_entry_and_each_file_is_described_once() {
        let source = SourceName::parse("b").unwrap();
        let share = |claims: &[Claim], former: &[&str], files: &[&str]| {
            share(claims, &texts(former), &texts(files), &source)
                .map(|EntryShare { is_described, described, gone }| (is_described, Vec::from_iter(described), gone))
        };
        let none = || texts(&[]);
        // A later feed changes nothing for an earlier one, but its files stay.
        assert_eq!(share(&[claim("c", &["1"], true)], &["1", "2"], &[]), Some((false, none(), texts(&["2"]))));
        assert_eq!(share(&[claim("a", &["1"], true)], &[], &["1"]), None, "a says it all");
        assert_eq!(share(&[claim("a", &["1"], true)], &[], &["1", "2"]), Some((true, texts(&["1"]), none())));
        assert_eq!(share(&[claim("a", &[], true)], &["1"], &[]), Some((true, none(), texts(&["1"]))));
        // A feed that no longer shows the entry describes nothing, and has its files still.
        assert_eq!(share(&[claim("a", &["1"], false)], &["1"], &[]), Some((false, none(), none())));
    }

    #[test]
    fn files_of_a_lost_entry_stay_while_another_feed_has_them() {
        let gone = |claims: &[Claim]| share_of_gone(claims, &texts(&["1", "2"])).map(|share| share.gone);
        assert_eq!(gone(&[claim("a", &["1"], true)]), Some(texts(&["2"])));
        assert_eq!(gone(&[claim("a", &["1"], true), claim("c", &["2"], false)]), None);
    }

    #[test]
    fn each_fact_about_a_claim_is_in_its_digest() {
        let digests = [
            digest(&[]),
            digest(&[claim("a", &["1"], true)]),
            digest(&[claim("a", &["1"], false)]),
            digest(&[claim("a", &["2"], true)]),
            digest(&[claim("c", &["1"], true)]),
            digest(&[Claim { ended: -7, ..claim("a", &["1"], false) }]),
        ];
        assert_eq!(digests[0], "");
        assert_eq!(std::collections::HashSet::from(digests).len(), 6);
    }
}
