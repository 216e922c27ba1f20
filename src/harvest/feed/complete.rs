//! Complete feeds (RFC 5005 section 2): an entry that such a feed no longer has is deleted.
//!
//! The journal has the URIs of the entries ([`ListedRecords`]). If more than half of them are missing, the next run must
//! find the same before they are deleted, because a feed that was generated from an empty database is valid, too.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::{
    harvest::{FeedHarvester, page},
    message::tombstone,
    position::{Position, Walk},
    read_document::ReadDocument,
    sharing::{ended_claim, files_of, share_of_gone},
    walk::complete,
};
use crate::{
    harvest::{HarvestError, Page, PageEnd, deletions::FEW},
    intake::ReceivedMessage,
    journal::harvest::{Claim, FormerRecords, ListedCounts, ListedRecords},
    model::Timestamp,
};

/// Number of deletions in one page.
const PAGE_ENTRIES: usize = 100;

impl FeedHarvester {
    /// Returns the page with all entries of a complete feed.
    pub(super) fn complete_feed(&self, mut position: Position, document: ReadDocument) -> Page {
        let since = Timestamp::now();
        // A feed that had only its newest entries has not deleted the others.
        let is_new = position.body.is_empty() || position.is_complete == Some(false);
        let former = if is_new { FormerRecords::Unlist } else { FormerRecords::Keep };
        position.is_complete = Some(true);
        if self.is_audit {
            return document.into_page(&position, PageEnd::Complete);
        }
        position.pending = Some(document.facts.clone());
        let uris: Vec<_> = document.shown.iter().map(|entry| &*entry.uri).collect();
        position.walk = Some(Walk::Missing { since, entries: digest(uris), is_plausible: false });
        let listed = document.listed(former, since);
        Page { listed, ..document.into_page(&position, PageEnd::More) }
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
        let claims = self.claims(gone.clone()).await?;
        let is_claimed =
            |uri: &String| claims.get(uri).is_some_and(|claims| claims.iter().any(|claim| claim.is_listed));
        let (shared, lost): (Vec<_>, Vec<_>) = gone.iter().cloned().partition(is_claimed);
        let present = shared.into_iter().map(|uri| ended_claim(uri, since)).collect();
        let listed = ListedRecords { gone: lost, present, at: Some(since), ..ListedRecords::default() };
        let messages = self.deletions(gone, claims, since).await?;
        Ok(Page { listed, ..page(&position, messages, PageEnd::More, Vec::new()) })
    }

    /// Returns the messages about entries that the feed no longer has, with the claims of others.
    async fn deletions(
        &self,
        gone: Vec<String>,
        claims: HashMap<String, Vec<Claim>>,
        since: Timestamp,
    ) -> Result<Vec<ReceivedMessage>, HarvestError> {
        let former = self.journal.validators(self.source.clone(), gone.clone()).await?;
        let feed_url = self.feed_url.clone();
        let message = move |uri: &String| {
            let Some(claims) = claims.get(uri).filter(|claims| claims.iter().any(|claim| claim.is_listed)) else {
                return Some(tombstone(uri, &feed_url, since, None));
            };
            // An entry that another feed shows is not gone, but its files may be.
            let former = former.get(uri).map(|validator| files_of(validator)).unwrap_or_default();
            share_of_gone(claims, &former).map(|share| tombstone(uri, &feed_url, since, Some(&share)))
        };
        let messages = self.client.budget().work(move |_| gone.iter().filter_map(message).collect());
        messages.await.map_err(|error| HarvestError::fail(error.to_string()))
    }
}

/// Returns a digest of the entries of a document, in any order.
fn digest(mut uris: Vec<&str>) -> String {
    uris.sort_unstable();
    let mut hash = Sha256::new();
    for uri in uris {
        hash.update((uri.len() as u64).to_be_bytes());
        hash.update(uri);
    }
    hex::encode(&hash.finalize()[..16])
}
