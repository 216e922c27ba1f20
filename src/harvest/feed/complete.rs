//! Complete feeds (RFC 5005 section 2): an entry that such a feed no longer has is deleted.
//!
//! The journal has the URIs of the entries ([`ListedRecords`]). If more than half of them are missing, the next run must
//! find the same before they are deleted, because a feed that was generated from an empty database is valid, too.

use sha2::{Digest, Sha256};

use super::{
    harvest::{FeedHarvester, ReadDocument, page},
    message::tombstone,
    position::{Position, Walk},
    walk::complete,
};
use crate::{
    harvest::{HarvestError, Page, PageEnd, deletions::FEW},
    journal::harvest::{ListedCounts, ListedRecord, ListedRecords},
    model::Timestamp,
};

/// Number of deletions in one page.
const PAGE_ENTRIES: usize = 100;

impl FeedHarvester {
    /// Returns the page with the entries of a complete feed. `uris` are those of all its entries.
    pub(super) fn complete_feed(&self, mut position: Position, document: ReadDocument, uris: Vec<String>) -> Page {
        let since = Timestamp::now();
        let replaces = position.body.is_empty();
        position.pending = Some(document.facts.clone());
        position.walk = Some(Walk::Missing { since, entries: digest(&uris), is_plausible: false });
        let mut page = document.into_page(&position, PageEnd::More);
        page.listed = ListedRecords {
            replaces,
            kept_as: None,
            present: uris.into_iter().map(ListedRecord::from).collect(),
            at: Some(since),
            gone: Vec::new(),
        };
        page
    }

    /// Deletes the next entries that are missing in a complete feed.
    pub(super) async fn delete_missing(
        &self,
        mut position: Position,
        since: Timestamp,
        entries: String,
        is_plausible: bool,
    ) -> Result<Page, HarvestError> {
        if !is_plausible {
            let ListedCounts { all, missing } = self.journal.listed_counts(self.source.clone(), since).await?;
            if missing > FEW && missing.saturating_mul(2) > all && position.doubt.as_ref() != Some(&entries) {
                position.doubt = Some(entries);
                // The next run must not get a response without the document.
                let earliest = position.pending.take().and_then(|facts| facts.earliest);
                position.earliest = earliest;
                let remark = format!(
                    "{missing} of {all} entries are missing in the complete feed; they are deleted if the next run finds \
                     the same entries"
                );
                return Ok(page(&position, Vec::new(), PageEnd::Complete, vec![remark]));
            }
            position.doubt = None;
        }
        let gone = self.journal.missing_records(self.source.clone(), since, String::new(), PAGE_ENTRIES).await?;
        if gone.is_empty() {
            return Ok(complete(position, |position, end| page(position, Vec::new(), end, Vec::new())));
        }
        position.walk = Some(Walk::Missing { since, entries, is_plausible: true });
        // An entry that another feed shows is not gone.
        let claims = self.journal.claims(self.source.clone(), gone.clone()).await?;
        let unclaimed = gone.iter().filter(|uri| !claims.contains_key(*uri));
        let messages: Vec<_> = unclaimed.map(|uri| tombstone(uri, &self.feed_url, since)).collect();
        let listed = ListedRecords { gone, ..ListedRecords::default() };
        Ok(Page { listed, ..page(&position, messages, PageEnd::More, Vec::new()) })
    }
}

/// Returns a digest of the entries of a document, in any order.
fn digest(uris: &[String]) -> String {
    let mut sorted: Vec<_> = uris.iter().collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    for uri in sorted {
        hash.update((uri.len() as u64).to_be_bytes());
        hash.update(uri);
    }
    hex::encode(&hash.finalize()[..16])
}
