//! Reading of a feed for an audit: from its beginning, without the memory of the harvest but for the keys of its entries.
//!
//! An entry that the feed does not show is gone only if the feed has everything: it says that it is complete, or all its
//! archives were read (RFC 5005). An entry that another feed shows is not gone.

use std::collections::HashSet;

use super::{harvest::FeedHarvester, position::Position, sharing::PART_ENTRIES};
use crate::{
    harvest::{UnlistedObject, request_name},
    journal::JournalError,
    model::Uri,
};

impl Position {
    /// Returns the position at which an audit begins. It has what the URIs of the entries depend on.
    pub(super) fn of_audit(self) -> Self {
        let Self { settings, any_scheme, ambiguous, .. } = self;
        Self { settings, any_scheme, ambiguous, ..Self::default() }
    }
}

impl FeedHarvester {
    /// Returns those objects that the feed no longer has, if it has shown everything.
    pub(super) async fn gone_entries(
        &self,
        position: Position,
        unlisted: Vec<UnlistedObject>,
    ) -> Result<Vec<Uri>, JournalError> {
        let is_complete = position.is_complete == Some(true);
        if !is_complete && !position.has_archives {
            return Ok(Vec::new());
        }
        // The journal lists nothing under this name, so the claims of this feed are among those of the others.
        let nobody = request_name("reader", &self.source);
        let mut gone = Vec::new();
        // Only a complete feed says something about an object that another source has reported first.
        let unlisted: Vec<_> = unlisted.into_iter().filter(|unlisted| is_complete || unlisted.is_own).collect();
        for part in unlisted.chunks(PART_ENTRIES) {
            let uris = part.iter().map(|unlisted| unlisted.object.to_string()).collect();
            let claims = self.journal.claims(nobody.clone(), uris).await?;
            let (own, others): (Vec<_>, Vec<_>) = claims
                .into_iter()
                .filter(|claim| claim.is_listed)
                .partition(|claim| claim.source == self.source.as_str());
            let own: HashSet<_> = own.into_iter().map(|claim| claim.identifier).collect();
            let others = others.into_iter().filter(|claim| self.harvests.has(&claim.source));
            let others: HashSet<_> = others.map(|claim| claim.identifier).collect();
            // A complete feed has lost only what it has claimed. Before, it may have shown its newest entries alone.
            let is_gone = |unlisted: &&UnlistedObject| {
                let is_claimed = if is_complete { own.contains(unlisted.object.as_str()) } else { unlisted.is_own };
                is_claimed && !others.contains(unlisted.object.as_str())
            };
            gone.extend(part.iter().filter(is_gone).map(|unlisted| unlisted.object.clone()));
        }
        Ok(gone)
    }
}
