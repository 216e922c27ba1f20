//! A part of a walk through a repository, on its way to the journal: to the registry alone, or as changes.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Intake, Source, bounds::check_scheme};
use crate::{
    format::Rejection,
    journal::{
        DuplicatePolicy, JournalError, Submission,
        seed::{CrawlPart, CrawlPartOutcome, CrawlProgress},
        store::{EventIdentity, event_key},
    },
    model::{
        CrawledItem, CrawledObject, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, EventId,
        NonEmpty, Text, User,
    },
};

/// What stands for the method that was called, or the like, in a change that a walk tells.
const DESCRIPTION: &str = "found in the repository";

/// Why a part of a walk was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// An object is past a bound. Nothing of the part was written.
    #[error("{}", .0.reason)]
    TooLarge(#[from] Rejection),
    /// Nothing could be written: the part must be sent again.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Intake {
    /// Takes in what a walk found; on return it is on disk, with how far the walk is. If `emit` says so it is told as
    /// changes, except what the registry holds already; else it goes to the registry alone.
    ///
    /// # Errors
    /// When an object is past a bound, and then nothing is written; or when nothing could be written: it must be sent again,
    /// and makes no second change.
    pub async fn seed(
        &self,
        source: &Source,
        found: Vec<CrawledObject>,
        emit: bool,
        walk: CrawlProgress,
    ) -> Result<CrawlPartOutcome, SeedError> {
        for CrawledObject { object, types, items, .. } in &found {
            source.check_types(object, types)?;
            let content = items.iter().filter_map(|item| item.content.as_ref()).map(|content| &content.url);
            [object].into_iter().chain(items.iter().map(|item| &item.uri)).chain(content).try_for_each(check_scheme)?;
            if emit {
                source.check_items(object, items.len())?;
            }
        }
        let (told, found) = if emit { (found, Vec::new()) } else { (Vec::new(), found) };
        let keyed = |found| {
            let draft = draft(found);
            let key = draft.event_id.as_ref().map(|id| event_key(source.name(), EventIdentity::Id(id.as_str()), 0));
            (key, draft)
        };
        let drafts: Vec<_> = told.into_iter().map(keyed).collect();
        source.check(&drafts)?;
        let submission = Submission {
            policy: Arc::clone(&source.policy),
            drafts,
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        let (part, objects) = (walk.parts, walk.objects);
        let seeded = self.journal.seed(CrawlPart { submission, crawled: found, progress: walk }).await?;
        if seeded.too_many_items {
            return Err(self.too_many_items().into());
        }
        tracing::debug!(source = %source.name(), part, objects, filled = seeded.updated_objects, "a part of a walk is on disk");
        Ok(seeded)
    }
}

/// An object as it was found, as something that was told. What was found so before is the same event.
fn draft(found: CrawledObject) -> Draft {
    let time = found.newest();
    let event_id = EventId::parse(&format!("found:sha256:{}", hex::encode(Sha256::digest(identity(&found)))));
    let CrawledObject { object, parent, types, items, .. } = found;
    let item =
        |CrawledItem { uri, at, content, state }| DraftItem::new(uri, DraftChange::Crawled { content, state, at });
    Draft {
        id: None,
        event_id,
        software_version: None,
        user: User::unknown(),
        time: DraftTime::Reported(time),
        object,
        parent,
        types,
        description: Text::new(DESCRIPTION),
        items: DraftItems::Listed(NonEmpty::map(items, item)),
        lookup: DraftLookup::default(),
    }
}

/// All that is told of an object, in one text.
fn identity(found: &CrawledObject) -> Vec<u8> {
    // The model has a JSON shape for every value.
    serde_json::to_vec(found).unwrap_or_default()
}
