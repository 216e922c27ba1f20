//! Appends one part of a crawl to the journal, either to the registry only or also as changes.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Intake, ReceivedMessage, Source, bounds::check_scheme};
use crate::{
    format::{ParsedMessage, Rejection},
    journal::{
        DraftOutcome, DuplicatePolicy, JournalError, Submission,
        registry::ObjectState,
        seed::{CrawlPart, CrawlPartOutcome, CrawlProgress},
        settle::{ReceiptClock, settle},
        store::{EventIdentity, event_key},
    },
    model::{
        ContentObjectModification, CrawledItem, CrawledObject, Draft, DraftChange, DraftItem, DraftItems, DraftLookup,
        DraftTime, EventId, NonEmpty, Reading, Text, Timestamp, User,
    },
};

/// Description of the changes that a crawl reports, in place of a method name.
const DESCRIPTION: &str = "found in the repository";

/// Reason why the intake did not accept a part of a crawl.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// An object exceeds a limit. Nothing of the part was written.
    #[error("{}", .0.reason)]
    TooLarge(#[from] Rejection),
    /// The journal could not write the part. The caller must send it again.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Intake {
    /// Accepts the objects that a crawl found. On return they are on disk together with the position of the
    /// crawl. If `emit` is true, each object is appended as a change, except facts that the registry already
    /// has. Otherwise the objects only fill the registry.
    ///
    /// # Errors
    /// Fails if an object exceeds a limit or the journal could not write. Nothing is written in either case. After
    /// a failed write the caller must send the part again; a repeat makes no second change.
    pub async fn seed(
        &self,
        source: &Source,
        objects: Vec<CrawledObject>,
        emit: bool,
        walk: CrawlProgress,
    ) -> Result<CrawlPartOutcome, SeedError> {
        for CrawledObject { object, types, items, .. } in &objects {
            source.check_types(object, types)?;
            let content = items.iter().filter_map(|item| item.content.as_ref()).map(|content| &content.url);
            [object].into_iter().chain(items.iter().map(|item| &item.uri)).chain(content).try_for_each(check_scheme)?;
            if emit {
                source.check_items(object, items.len())?;
            }
        }
        let (emitted, objects) = if emit { (objects, Vec::new()) } else { (Vec::new(), objects) };
        let keyed = |objects| {
            let draft = draft(objects);
            let key = draft.event_id.as_ref().map(|id| event_key(source.name(), EventIdentity::Id(id.as_str()), 0));
            (key, draft)
        };
        let drafts: Vec<_> = emitted.into_iter().map(keyed).collect();
        source.check(&drafts)?;
        let submission = Submission {
            policy: Arc::clone(&source.policy),
            drafts,
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        let (part, object_count) = (walk.parts, walk.objects);
        let seeded = self.journal.seed(CrawlPart { submission, crawled: objects, progress: walk }).await?;
        if seeded.too_many_items {
            return Err(self.too_many_items().into());
        }
        tracing::debug!(source = %source.name(), part, objects = object_count, filled = seeded.updated_objects, "crawl part written to the journal");
        Ok(seeded)
    }
}

/// Number of corrections by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// Number of changes that were made.
    pub changes: u64,
    /// Number of corrections that were refused.
    pub refused: u64,
}

impl Intake {
    /// Appends drafts that an audit made, each with its event identifier. On return they are on disk. A draft that is refused
    /// costs no other.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub async fn correct(&self, source: &Source, drafts: Vec<Draft>) -> Result<Corrections, SeedError> {
        let keyed = |draft: Draft| {
            let key = draft.event_id.as_ref().map(|id| event_key(source.name(), EventIdentity::Id(id.as_str()), 0));
            (key, draft)
        };
        let submission = |draft| Submission {
            policy: Arc::clone(&source.policy),
            drafts: vec![keyed(draft)],
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: None,
        };
        let (mut submissions, mut refused) = (Vec::new(), 0_u64);
        for submission in drafts.into_iter().map(submission) {
            match source.check(&submission.drafts) {
                Ok(()) => submissions.push(submission),
                Err(error) => {
                    refused += 1;
                    tracing::warn!(source = %source.name(), %error, "a correction of an audit is refused");
                }
            }
        }
        if submissions.is_empty() {
            return Ok(Corrections { changes: 0, refused });
        }
        let mut changes = 0;
        for outcome in self.journal.append_batch(submissions).await?.iter().flatten() {
            if outcome.is_refusal() {
                refused += 1;
                tracing::warn!(source = %source.name(), ?outcome, "the journal refuses a correction of an audit");
            }
            changes += u64::from(matches!(outcome, DraftOutcome::Accepted { .. }));
        }
        Ok(Corrections { changes, refused })
    }
}

impl Source {
    /// Returns the drafts of a message without writing them; `None` if it cannot be read.
    #[must_use]
    pub fn drafts(&self, message: ReceivedMessage) -> Option<Vec<Draft>> {
        let ReceivedMessage::Readable(mut incoming) = message else { return None };
        match self.read(&mut incoming).ok()? {
            ParsedMessage::Drafts(drafts) => Some(drafts.into_vec()),
            ParsedMessage::NoChange(_) => Some(Vec::new()),
        }
    }

    /// Settles a draft against the state of its object without writing. Returns the change that it would make.
    #[must_use]
    pub fn preview(&self, draft: Draft, registered: &ObjectState) -> Option<ContentObjectModification> {
        let settled = settle(draft, &self.policy, ReceiptClock::at(Timestamp::now()), registered);
        settled.change.map(|(modification, _)| modification)
    }
}

/// Converts a crawled object to a draft. An object that was found in the same state before has the same event
/// identifier.
fn draft(objects: CrawledObject) -> Draft {
    let time = objects.newest();
    let event_id = EventId::parse(&format!("found:sha256:{}", hex::encode(Sha256::digest(identity(&objects)))));
    let CrawledObject { object, parent, types, items, .. } = objects;
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
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Serializes all facts of an object, as input of the digest that identifies it.
fn identity(objects: &CrawledObject) -> Vec<u8> {
    // Serialization cannot fail: every value of the model has a JSON form.
    serde_json::to_vec(objects).unwrap_or_default()
}
