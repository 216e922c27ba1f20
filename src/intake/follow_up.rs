//! Follow-up of incomplete changes. When the repository did not respond in time, the change is in the journal
//! without some of its facts; here it is completed by an UPDATE with the same time. The journal stores which
//! changes are incomplete, so they survive restarts, and only one page of them is in memory at a time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Source, enrichment::Enricher};
use crate::{
    journal::{
        DraftOutcome, DuplicatePolicy, Journal, JournalError, Submission,
        store::{EventIdentity, IncompleteChange, event_key},
    },
    lookup::LookupError,
    model::{
        Aspect, Change, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, ItemChange, Reading, Seq,
        State, StatedDates, VisibilityDates,
    },
    retry::Backoff,
};

/// Number of changes that are looked up concurrently.
const PAGE: usize = 64;

/// Bounds of the wait between two rounds. Jitter may shorten each wait by half.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Maximum time between two counts while there are incomplete changes. A lookup without a result completes a change, but
/// makes no other.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Background worker that completes the incomplete changes of one source.
pub struct FollowUp {
    /// The journal that contains the changes.
    pub journal: Journal,
    /// The source.
    pub source: Arc<Source>,
}

/// Result of one round over all incomplete changes.
enum Round {
    /// No incomplete change is left.
    Done,
    /// Some changes are left. `any_answered` is true if at least one was completed, and no request was denied access.
    Remaining { any_answered: bool },
}

impl FollowUp {
    /// Completes changes until `stop` is cancelled. Returns immediately if the source has no lookups.
    pub async fn run(self, stop: CancellationToken) {
        if let Some(enricher) = &self.source.enricher {
            let _ = stop.run_until_cancelled(self.run_rounds(enricher)).await;
        }
    }

    /// Counts the incomplete changes whenever another node may have added or completed some, until the future is dropped.
    /// The node that completes them learns in this way of those that other nodes have written.
    pub async fn keep_count(self) {
        let Some(enricher) = &self.source.enricher else { return std::future::pending().await };
        let mut head = self.journal.watch();
        loop {
            head.mark_unchanged();
            let left = self.count(enricher).await;
            match left {
                Ok(0) => {}
                Ok(_) => enricher.more_incomplete.notify_one(),
                Err(ref error) => {
                    tracing::debug!(source = %self.source.name(), %error, "cannot count incomplete changes; retrying");
                }
            }
            sleep(SHORTEST_WAIT).await;
            tokio::select! {
                changed = head.changed() => if changed.is_err() { return std::future::pending().await },
                () = sleep(COUNT_INTERVAL), if !matches!(left, Ok(0)) => {}
            }
        }
    }

    async fn run_rounds(&self, enricher: &Enricher) {
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        // Report changes that an earlier run left incomplete right after the start.
        let _ = self.count(enricher).await;
        loop {
            let round = self.round(enricher).await.unwrap_or_else(|error| {
                tracing::debug!(source = %self.source.name(), %error, "cannot complete incomplete changes; retrying");
                Round::Remaining { any_answered: false }
            });
            match round {
                Round::Done => {
                    backoff.reset();
                    enricher.more_incomplete.notified().await;
                    // Wait a moment: the lookup of the new change has just failed.
                    sleep(SHORTEST_WAIT).await;
                }
                Round::Remaining { any_answered } => {
                    if any_answered {
                        backoff.reset();
                    }
                    // A moment at least, because requests for new messages can show all the time that the repository answers.
                    sleep(SHORTEST_WAIT).await;
                    tokio::select! {
                        () = sleep(backoff.next_wait()) => {}
                        () = enricher.lookup.repository().wait_for_recovery() => {}
                    }
                }
            }
        }
    }

    /// Looks up every incomplete change once, or stops as soon as the circuit is open.
    async fn round(&self, enricher: &Enricher) -> Result<Round, JournalError> {
        let mut after = Seq::ZERO;
        let (mut answered, mut is_circuit_open, mut is_denied) = (0, false, false);
        while !is_circuit_open {
            let page = self.journal.incomplete(self.source.name().clone(), after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            let since = Instant::now();
            let lookups = join_all(page.iter().map(|incomplete| self.look_up(enricher, incomplete, since))).await;
            let mut submissions = Vec::new();
            for FollowUpLookup { submission, error } in lookups {
                is_circuit_open |= matches!(error, Some(LookupError::CircuitOpen { .. }));
                is_denied |= matches!(error, Some(LookupError::AccessDenied(_)));
                answered += usize::from(error.is_none());
                submissions.extend(submission);
            }
            if !submissions.is_empty() {
                let outcomes = self.journal.append_all(submissions).await?;
                if outcomes.iter().flatten().any(DraftOutcome::is_refusal) {
                    let reason =
                        "an object would have more items than limits.object_items, or the storage refuses the change";
                    tracing::warn!(source = %self.source.name(), reason, "cannot complete changes");
                }
            }
        }
        if !is_circuit_open {
            // What the requests of this round have shown is no reason for another one.
            enricher.lookup.repository().forget_recovery();
        }
        let left = self.count(enricher).await?;
        if answered > 0 {
            tracing::info!(source = %self.source.name(), answered, left, "incomplete changes were completed from the repository");
        }
        // While the repository denies access, the wait grows, although it answers for other objects.
        Ok(if left == 0 { Round::Done } else { Round::Remaining { any_answered: answered > 0 && !is_denied } })
    }

    async fn count(&self, enricher: &Enricher) -> Result<u64, JournalError> {
        let counts = self.journal.incomplete_counts().await?;
        let left = counts.get(self.source.name()).copied().unwrap_or_default();
        enricher.set_incomplete(left);
        Ok(left)
    }

    /// Looks up an incomplete change again and builds the submission that completes it. If a request fails, the submission has
    /// the dates that were read and nothing else, and the change stays incomplete.
    async fn look_up(&self, enricher: &Enricher, incomplete: &IncompleteChange, since: Instant) -> FollowUpLookup {
        let mut drafts = Vec::new();
        let mut failed = None;
        // A stored change that cannot be deserialized is a bug. Asking again would not help, so it is settled
        // without a draft.
        if let Ok(change) = serde_json::from_slice::<Change>(&incomplete.json) {
            let event_id = format!("lookup of {}", change.modification.id);
            let key = event_key(self.source.name(), EventIdentity::Id(&event_id), 0);
            let mut draft = draft_of(change, incomplete);
            let reported = draft.items.clone();
            failed = enricher.lookup.complete(&mut draft, since).await.err();
            if failed.is_some() {
                let Some(items) = read_dates(draft.items) else {
                    return FollowUpLookup { submission: None, error: failed };
                };
                // The other facts come with the lookup that completes the change.
                (draft.items, draft.parent, draft.types) = (items, None, Vec::new());
                draft.lookup = DraftLookup::default();
            } else {
                enricher.lookup.keep_unread_dates(&mut draft);
                self.source.note_dropped_parts_from(&draft, 0);
                draft.items = mark_as_completions(draft.items);
                draft.lookup = DraftLookup { mark: draft.lookup.mark, ..DraftLookup::default() };
            }
            if draft.time == DraftTime::Arrival {
                draft.items = compare_with(&reported, draft.items);
            }
            drafts.push((failed.is_none().then_some(key), draft));
            if let Err(rejection) = self.source.check(&drafts) {
                // A repeated lookup would return the same facts.
                let change = incomplete.seq.0;
                tracing::warn!(source = %self.source.name(), change, %rejection, "cannot complete a change");
                drafts.clear();
            }
        }
        let policy = Arc::clone(&self.source.policy);
        let completes = failed.is_none().then_some(incomplete.seq);
        let duplicate_policy = DuplicatePolicy::RememberChanges;
        let submission = Submission { policy, drafts, duplicate_policy, completes };
        FollowUpLookup { submission: Some(submission), error: failed }
    }
}

/// Result of a repeated lookup.
struct FollowUpLookup {
    submission: Option<Submission>,
    error: Option<LookupError>,
}

/// Returns the dates that a lookup has read, as completions without any other fact; `None` if it has read none.
fn read_dates(items: DraftItems) -> Option<DraftItems> {
    let DraftItems::Listed(items) = items else { return None };
    let dates_of = |item: DraftItem| match item.change {
        DraftChange::Restricted { change, dates } if dates != StatedDates::Partial(VisibilityDates::NONE) => {
            let nothing_else = match *change {
                // Settling ignores an item of the object that the registry lacks.
                unnamed @ DraftChange::Present { content: None, state: None } => unnamed,
                _ => DraftChange::FollowUp(ItemChange::Update { content: None, before: None, after: None }),
            };
            Some(DraftItem::new(item.uri, nothing_else).restricted(dates))
        }
        _ => None,
    };
    let dates: Vec<_> = items.into_vec().into_iter().filter_map(dates_of).collect();
    dates.try_into().ok().map(DraftItems::Listed)
}

/// Rebuilds the draft as the source reported it, without the facts that the registry and the dates added.
fn draft_of(change: Change, incomplete: &IncompleteChange) -> Draft {
    let has_made_up_time = change.has_made_up_time();
    let (modification, filled) = (change.modification, change.settlement.filled);
    Draft {
        id: None,
        event_id: modification.origin.event_id,
        software_version: modification.origin.software_version,
        user: modification.user,
        // A time that the gateway made up must not become the clock of what the lookup found.
        time: if has_made_up_time { DraftTime::Arrival } else { DraftTime::Reported(modification.time) },
        object: modification.object,
        parent: modification.parent.filter(|_| !filled.contains(Aspect::Parent)),
        types: if filled.contains(Aspect::Types) { Vec::new() } else { modification.types },
        description: modification.description,
        report: modification.report,
        items: DraftItems::Listed(
            modification
                .items
                .map(|item| DraftItem::new(item.uri, DraftChange::Reported(without_state_of_dates(item.change)))),
        ),
        lookup: DraftLookup::of(incomplete.missing),
        reading: Reading::default(),
    }
}

/// Removes a state that the dates of the item had implied. No repository with lookups reports one.
fn without_state_of_dates(change: ItemChange) -> ItemChange {
    if !change.after().is_some_and(State::is_of_dates) {
        return change;
    }
    match change {
        ItemChange::Add { content, .. } => ItemChange::Add { content, after: None },
        ItemChange::Update { content, before, .. } => ItemChange::Update { content, before, after: None },
        ItemChange::State { before, .. } => ItemChange::Update { content: None, before, after: None },
        delete @ ItemChange::Delete { .. } => delete,
    }
}

/// Adds what the event said about each item to its completion, for an event without a time.
fn compare_with(reported: &DraftItems, items: DraftItems) -> DraftItems {
    let DraftItems::Listed(items) = items else { return items };
    let each = |item: DraftItem| {
        let mut same = reported.listed().iter().filter(|reported| reported.uri == item.uri);
        let Some(DraftChange::Reported(reported)) = same.next().map(|reported| &reported.change) else { return item };
        DraftItem { change: follow_up_to(reported, item.change), ..item }
    };
    DraftItems::Listed(items.map(each))
}

fn follow_up_to(reported: &ItemChange, change: DraftChange) -> DraftChange {
    match change {
        DraftChange::FollowUp(change) => DraftChange::FollowUpTo { reported: reported.clone(), change },
        DraftChange::Restricted { change, dates } => {
            DraftChange::Restricted { change: Box::new(follow_up_to(reported, *change)), dates }
        }
        other => other,
    }
}

/// Marks the items as completions, so that settling keeps only the facts that are new.
fn mark_as_completions(items: DraftItems) -> DraftItems {
    let each = |item: DraftItem| DraftItem { change: completion(item.change), ..item };
    match items {
        DraftItems::Listed(items) => DraftItems::Listed(items.map(each)),
        DraftItems::Complete(items) => DraftItems::Complete(items.into_iter().map(each).collect()),
        DraftItems::Purge => DraftItems::Purge,
        relayed @ DraftItems::Relayed { .. } => relayed,
    }
}

fn completion(change: DraftChange) -> DraftChange {
    let update = |content, after| DraftChange::FollowUp(ItemChange::Update { content, before: None, after });
    match change {
        DraftChange::Reported(change) => DraftChange::FollowUp(change),
        // An item of the object that the message does not name.
        unnamed @ DraftChange::Present { content: None, state: None } => unnamed,
        DraftChange::AddOrUpdate { content, .. } => update(content, None),
        DraftChange::AddOrUpdateWithState { content, state } => update(content, Some(state)),
        DraftChange::Present { content, state } => update(content, state),
        DraftChange::Redigested { content, .. } => update(Some(content), None),
        DraftChange::Restricted { change, dates } => {
            DraftChange::Restricted { change: Box::new(completion(*change)), dates }
        }
        other => other,
    }
}
