//! What a repository did not answer is asked again: a change that is in the journal incomplete is completed by an UPDATE of
//! the same time. Which changes these are the journal remembers, so that neither a restart nor a long time
//! makes them forgotten, and only a few of them are in memory at a time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Source, looking::Looking};
use crate::{
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalError, Submission,
        store::{EventIdentity, IncompleteChange, event_key},
    },
    lookup::LookupError,
    model::{Aspect, Change, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, ItemChange, Seq},
    retry::Backoff,
};

/// How many changes are asked about at once.
const PAGE: usize = 64;

/// First and longest wait until the repository is asked again, at most.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Asks about the changes of one source again.
pub struct FollowUp {
    /// Where they are.
    pub journal: Journal,
    /// The source.
    pub source: Arc<Source>,
}

/// What came of asking about all of them.
enum Round {
    /// None is left.
    Done,
    /// Some are left; whether any was answered.
    Left { any_answered: bool },
}

impl FollowUp {
    /// Asks whenever there is something to ask, until `stop` is cancelled. It ends at once where the source's repository
    /// is not asked.
    pub async fn run(self, stop: CancellationToken) {
        if let Some(looking) = &self.source.looking {
            let _ = stop.run_until_cancelled(self.keep_asking(looking)).await;
        }
    }

    async fn keep_asking(&self, looking: &Looking) {
        let mut backoff = Backoff::new(SHORTEST, LONGEST);
        // What is left of an earlier time is shown at once.
        let _ = self.count(looking).await;
        loop {
            let round = self.round(looking).await.unwrap_or_else(|error| {
                tracing::debug!(source = %self.source.name(), %error, "incomplete changes cannot be completed now");
                Round::Left { any_answered: false }
            });
            match round {
                Round::Done => {
                    backoff.reset();
                    looking.is_more.notified().await;
                    // What has just failed is not asked in the same moment.
                    sleep(SHORTEST).await;
                }
                Round::Left { any_answered } => {
                    if any_answered {
                        backoff.reset();
                    }
                    tokio::select! {
                        () = sleep(backoff.next_wait()) => {}
                        () = looking.lookup.repository().recovers() => {}
                    }
                }
            }
        }
    }

    /// Asks about every change once, or until the repository is left alone.
    async fn round(&self, looking: &Looking) -> Result<Round, JournalError> {
        let mut after = Seq::ZERO;
        let (mut answered, mut is_left_alone) = (0, false);
        while !is_left_alone {
            let page = self.journal.incomplete(self.source.name().clone(), after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            let since = Instant::now();
            let asked = join_all(page.iter().map(|incomplete| self.ask(looking, incomplete, since))).await;
            let mut submissions = Vec::new();
            for told in asked {
                match told {
                    Ok(submission) => submissions.push(submission),
                    Err(error) => is_left_alone |= matches!(error, LookupError::LeftAlone { .. }),
                }
            }
            answered += submissions.len();
            if !submissions.is_empty() {
                let outcomes = self.journal.append_all(submissions).await?;
                if outcomes.iter().flatten().any(|outcome| *outcome == DraftOutcome::TooManyItems) {
                    let reason = "an object would have more items than limits.object_items";
                    tracing::warn!(source = %self.source.name(), reason, "changes cannot be completed");
                }
            }
        }
        let left = self.count(looking).await?;
        if answered > 0 {
            tracing::info!(source = %self.source.name(), answered, left, "the repository has answered what it had not");
        }
        Ok(if left == 0 { Round::Done } else { Round::Left { any_answered: answered > 0 } })
    }

    async fn count(&self, looking: &Looking) -> Result<u64, JournalError> {
        let counts = self.journal.incomplete_counts().await?;
        let left = counts.get(self.source.name()).copied().unwrap_or_default();
        looking.counted(left);
        Ok(left)
    }

    /// What is to be told of a change, after the repository has been asked again.
    async fn ask(
        &self,
        looking: &Looking,
        incomplete: &IncompleteChange,
        since: Instant,
    ) -> Result<Submission, LookupError> {
        let mut drafts = Vec::new();
        // One that cannot be read is a fault of ours, and asking again would not mend it.
        if let Ok(change) = serde_json::from_slice::<Change>(&incomplete.json) {
            let told = format!("lookup of {}", change.modification.id);
            let key = event_key(self.source.name(), EventIdentity::Id(&told), 0);
            let mut draft = draft_of(change, incomplete);
            looking.lookup.complete(&mut draft, since).await?;
            draft.items = completed(draft.items);
            draft.lookup = DraftLookup { mark: draft.lookup.mark, ..DraftLookup::default() };
            drafts.push((Some(key), draft));
            if let Err(rejection) = self.source.check(&drafts) {
                // To ask again would bring the same answer.
                let change = incomplete.seq.0;
                tracing::warn!(source = %self.source.name(), change, %rejection, "a change cannot be completed");
                drafts.clear();
            }
        }
        let policy = Arc::clone(&self.source.policy);
        Ok(Submission {
            policy,
            drafts,
            duplicate_policy: DuplicatePolicy::RememberChanges,
            completes: Some(incomplete.seq),
        })
    }
}

/// The change as its source told it, without what the registry has added.
fn draft_of(change: Change, incomplete: &IncompleteChange) -> Draft {
    let (told, filled) = (change.modification, change.settlement.filled);
    Draft {
        id: None,
        event_id: told.origin.event_id,
        software_version: told.origin.software_version,
        user: told.user,
        time: DraftTime::Reported(told.time),
        object: told.object,
        parent: told.parent.filter(|_| !filled.contains(Aspect::Parent)),
        types: if filled.contains(Aspect::Types) { Vec::new() } else { told.types },
        description: told.description,
        items: DraftItems::Listed(told.items.map(|item| DraftItem::new(item.uri, DraftChange::Reported(item.change)))),
        lookup: DraftLookup::of(incomplete.missing),
    }
}

/// What is told now counts as far as it is news.
fn completed(items: DraftItems) -> DraftItems {
    let each = |mut item: DraftItem| {
        item.change = match item.change {
            DraftChange::Reported(change) => DraftChange::FollowUp(change),
            DraftChange::AddOrUpdate { content, .. } | DraftChange::Present { content } => {
                DraftChange::FollowUp(ItemChange::Update { content, before: None, after: None })
            }
            other => other,
        };
        item
    };
    match items {
        DraftItems::Listed(items) => DraftItems::Listed(items.map(each)),
        DraftItems::Purge => DraftItems::Purge,
    }
}
