//! Entries that several feeds show.
//!
//! * Of the feeds that show an entry, the one with the first name describes it. Of those that have a file of the entry, the
//!   first one describes the file.
//! * What a feed no longer has ends its own claim. An entry or a file is deleted when no feed claims it any more.
//! * The claim to an entry ends when a complete feed no longer has it. Another feed, which has only its newest entries, then
//!   stops to describe the entry, but its files are still claimed.
//!
//! The claims are the listed records of the journal, with the files as validators. Each run compares them with those that it
//! knows, so a feed that has not changed describes an entry when the other one no longer does.

use std::collections::{BTreeSet, HashMap};

use sha2::{Digest, Sha256};

use super::{
    harvest::FeedHarvester,
    position::{Position, Validators},
};
use crate::{
    format::feed::EntryShare,
    journal::{
        JournalError,
        harvest::{Claim, ListedRecord},
    },
};

/// Maximum number of records of other feeds that a run compares with those that it knows.
const MAX_SHARED: usize = 10_000;

/// An entry that a document shows, as the journal lists it.
#[derive(Clone, Debug)]
pub(super) struct ListedEntry {
    /// URI of the object.
    pub(super) uri: String,
    /// URLs of its files.
    pub(super) files: Vec<String>,
    /// Whether its change does not count at this look.
    pub(super) is_withheld: bool,
}

impl From<ListedEntry> for ListedRecord {
    fn from(ListedEntry { uri, files, .. }: ListedEntry) -> Self {
        // Serialization cannot fail: a list of texts has a JSON form.
        let validator =
            if files.is_empty() { String::new() } else { serde_json::to_string(&files).unwrap_or_default() };
        Self { identifier: uri, validator, listed: None }
    }
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

    /// Returns the shares of the entries that other feeds claim. An entry that is withheld keeps its former files.
    pub(super) async fn shares(&self, entries: &mut [ListedEntry]) -> Result<Shares, JournalError> {
        let claims = self.claims(entries.iter().map(|entry| entry.uri.clone()).collect()).await?;
        let is_asked = |entry: &&ListedEntry| entry.is_withheld || claims.contains_key(&entry.uri);
        let asked: Vec<_> = entries.iter().filter(is_asked).map(|entry| entry.uri.clone()).collect();
        if asked.is_empty() {
            return Ok(Shares::new());
        }
        let former = self.journal.validators(self.source.clone(), asked).await?;
        let mut shares = Shares::new();
        for entry in entries {
            let former = former.get(&entry.uri).map(|validator| files_of(validator));
            if let Some(claims) = claims.get(&entry.uri) {
                shares
                    .insert(entry.uri.clone(), self.share(claims, former.as_deref().unwrap_or_default(), &entry.files));
            }
            if entry.is_withheld
                && let Some(former) = former
            {
                entry.files = former;
            }
        }
        Ok(shares)
    }

    /// Returns the share of an entry that this feed shows with these files, and that others claim; `None` if nothing is left
    /// to report.
    fn share(&self, claims: &[Claim], former: &[String], files: &[String]) -> Option<EntryShare> {
        let is_first = |claim: &&Claim| claim.is_listed && claim.source.as_str() < self.source.as_str();
        let elsewhere: BTreeSet<_> = claims.iter().flat_map(|claim| files_of(&claim.validator)).collect();
        let first: BTreeSet<_> = claims.iter().filter(is_first).flat_map(|claim| files_of(&claim.validator)).collect();
        let is_gone = |file: &&String| !files.contains(file) && !elsewhere.contains(*file);
        let share = EntryShare {
            is_described: claims.iter().any(|claim| is_first(&claim)),
            described: files.iter().filter(|file| first.contains(*file)).cloned().collect(),
            gone: former.iter().filter(is_gone).cloned().collect(),
        };
        let has_news = !share.is_described || !share.gone.is_empty() || share.described.len() < files.len();
        has_news.then_some(share)
    }

    /// Returns the share of an entry that this feed no longer shows, but others do: its files that no feed has any more.
    /// `None` if there are none.
    pub(super) fn share_of_gone(claims: &[Claim], former: &[String]) -> Option<EntryShare> {
        let elsewhere: BTreeSet<_> = claims.iter().flat_map(|claim| files_of(&claim.validator)).collect();
        let gone: Vec<_> = former.iter().filter(|file| !elsewhere.contains(*file)).cloned().collect();
        (!gone.is_empty()).then(|| EntryShare { is_described: true, gone, ..EntryShare::default() })
    }

    /// Begins a run with the document of the feed, even an unchanged one, if other feeds claim something else than before.
    pub(super) async fn notice_claims(&self, position: &mut Position) -> Result<(), JournalError> {
        if !position.is_unchecked && position.claims.is_empty() {
            return Ok(());
        }
        position.is_unchecked = false;
        let mut shared = self.journal.shared_records(self.source.clone(), MAX_SHARED).await?;
        shared.iter_mut().for_each(|claim| claim.is_listed &= self.harvests.has(&claim.source));
        let claims = digest(&shared);
        if claims != position.claims {
            (position.claims, position.validators) = (claims, Validators::default());
            if !position.body.is_empty() {
                position.body.insert(0, '-');
            }
        }
        Ok(())
    }
}

/// Returns a digest of claims; an empty text without claims.
fn digest(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for Claim { identifier, source, validator, is_listed } in claims {
        for text in [identifier, source, validator] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        hash.update([u8::from(*is_listed)]);
    }
    hex::encode(&hash.finalize()[..8])
}
