//! The single writer: a thread that takes what is waiting, settles it, and appends it in one transaction (group commit), so
//! that throughput grows with concurrency while each waits for one sync of the disk only.
//!
//! Drafts come from [`super::Journal::append`]; changes go to the store, then to the tail, then the
//! head is moved, then the answers are sent: nobody hears of a change before it is on disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::{
    First, json_of, metrics,
    order::{KnownKey, Order, Outcome, Submission, Taken, answer_all, sorted},
    registry::ObjectState,
    settle::{Settled, SourcePolicy, settle},
    sight::Before,
    store::{Decision, EventKey, ItemsAsked, Known, KnownObject, NewChange, Questions, Store, StoreError, Touched},
    tail::{Recorded, Tail},
};
use crate::model::{
    Aspect, Change, ChangeId, ContentObjectModification, Draft, DraftItems, ItemChange, Seq, Settlement, Sight,
    SubscriptionName, Timestamp, Uri,
};

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    pub(super) batch: usize,
    /// Wakes who does the store's upkeep.
    pub(super) upkeep: SyncSender<()>,
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done.
    pub(super) fn run(self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(self.batch);
        while orders.blocking_recv_many(&mut waiting, self.batch) > 0 {
            self.execute(sorted(waiting.drain(..)));
            if self.store.upkeep_is_due() {
                // One who is at it already finds what is due now when he is done.
                let _ = self.upkeep.try_send(());
            }
        }
    }

    fn execute(&self, taken: Taken) {
        let Taken { submissions, submitters, messages, senders, releases, cursors, advancers, writes, prunes } = taken;
        // What has left the tail is freed when everybody has been answered.
        let mut old = Vec::new();
        if !submissions.is_empty() || !cursors.is_empty() {
            let outcomes = self.append(submissions, cursors, &mut old);
            for advancer in advancers {
                let _ = advancer.send(outcomes.as_ref().map(|_| ()).map_err(StoreError::clone));
            }
            answer_all(submitters, outcomes);
        }
        // After the cursors, so that none undoes a rewind that was ordered later.
        for (what, answer) in writes {
            let _ = answer.send(self.store.write_subscriptions(&what));
        }
        let quarantine_changes = !messages.is_empty() || !releases.is_empty();
        if !messages.is_empty() {
            answer_all(senders, self.store.quarantine(&messages));
        }
        for (id, answer) in releases {
            let _ = answer.send(self.store.release(id));
        }
        if quarantine_changes {
            // Who asked has been answered; if this fails, the numbers are old for a while.
            let _ = self.store.quarantine_size().map(metrics::quarantined);
        }
        // Last: whoever waits for an answer does not wait for this.
        for (before, at_most, answer) in prunes {
            let _ = answer.send(self.prune(before, at_most));
        }
    }

    fn prune(&self, before: Seq, at_most: usize) -> Result<usize, StoreError> {
        let removed = self.store.prune(before, at_most)?;
        if removed > 0
            && let Some(first) = self.store.first()?
        {
            self.first.set(first);
            self.tail.drop_before(first);
        }
        Ok(removed)
    }

    fn append(
        &self,
        submissions: Vec<Submission>,
        cursors: Vec<(SubscriptionName, Seq)>,
        old: &mut Vec<Arc<Recorded>>,
    ) -> Result<Vec<Vec<Outcome>>, StoreError> {
        let began = Instant::now();
        let events = submissions.len();
        let questions = questions(&submissions);
        let mut waiting = Some((submissions, cursors));
        let mut outcomes = Vec::with_capacity(events);
        let written = self.store.append(&questions, &mut |known| {
            let mut settling = Settlements::new(known, Timestamp::now());
            let (submissions, cursors) = waiting.take().unwrap_or_default();
            outcomes.extend(submissions.into_iter().map(|submission| settling.submission(submission)));
            Decision { cursors, ..settling.decision() }
        })?;
        let took = began.elapsed();
        if events > 0 {
            metrics::batch(events, took);
        }
        self.show(written.changes, took, old);
        Ok(outcomes)
    }

    /// Shows what is on disk to those who read.
    fn show(&self, changes: Vec<NewChange>, took: Duration, old: &mut Vec<Arc<Recorded>>) {
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if self.first.get().is_none() {
            self.first.set(oldest);
        }
        let new = changes.into_iter().map(|new| Arc::new(Recorded::new(new.change, new.json, new.sight)));
        *old = self.tail.extend(new);
        self.head.send_replace(newest);
        metrics::head(newest);
    }
}

fn questions(submissions: &[Submission]) -> Questions {
    let mut questions = Questions::default();
    let all = submissions.iter().flat_map(|submission| {
        let remembered = submission.known_key != KnownKey::Same;
        submission.drafts.iter().map(move |(key, draft)| (remembered, key, draft))
    });
    for (remembered, key, draft) in all {
        questions.keys.extend(*key);
        questions.unchanged.extend(key.filter(|_| remembered));
        questions.ids.extend(draft.id);
        let asked = match &draft.items {
            DraftItems::Purge => ItemsAsked::All,
            DraftItems::Listed(items) => ItemsAsked::Some(items.iter().map(|item| item.uri.clone()).collect()),
        };
        match questions.objects.get_mut(&draft.object) {
            Some(held) => held.widen(asked),
            None => {
                questions.objects.insert(draft.object.clone(), asked);
            }
        }
    }
    questions
}

/// A batch being settled: each draft sees what the ones before it in the batch have done.
struct Settlements {
    head: Seq,
    received: Timestamp,
    seen: HashMap<EventKey, (Seq, Option<ChangeId>)>,
    known_unchanged: HashSet<EventKey>,
    taken: BTreeSet<ChangeId>,
    objects: BTreeMap<Uri, Settling>,
    changes: Vec<NewChange>,
    unchanged: Vec<EventKey>,
}

/// An object, and what of it was touched.
#[derive(Default)]
struct Settling {
    object: KnownObject,
    itself: bool,
    items: BTreeSet<Uri>,
}

impl Settlements {
    fn new(known: Known, now: Timestamp) -> Self {
        let Known { head, received, seen, unchanged: known_unchanged, taken, objects } = known;
        // A clock that was set back must not make what comes now older than what came before.
        let received = received.map_or(now, |newest| newest.max(now));
        let settling = |object| Settling { object, ..Settling::default() };
        let objects = objects.into_iter().map(|(uri, object)| (uri, settling(object))).collect();
        Self { head, received, seen, known_unchanged, taken, objects, changes: Vec::new(), unchanged: Vec::new() }
    }

    fn submission(&mut self, submission: Submission) -> Vec<Outcome> {
        let Submission { policy, drafts, known_key } = submission;
        drafts.into_iter().map(|(key, draft)| self.draft(&policy, key, known_key, draft)).collect()
    }

    fn draft(
        &mut self,
        policy: &SourcePolicy,
        key: Option<EventKey>,
        known_key: KnownKey,
        mut draft: Draft,
    ) -> Outcome {
        let first = key.and_then(|key| self.first(key));
        if let Some(first) = first.filter(|_| known_key != KnownKey::RememberedUnlessNews) {
            return first;
        }
        // An identifier that another event has taken is not this one's, whatever its source says.
        draft.id = draft.id.filter(|id| !self.taken.contains(id));
        if !self.objects.contains_key(&draft.object) {
            self.objects.insert(draft.object.clone(), Settling::default());
        }
        let Some(settling) = self.objects.get_mut(&draft.object) else { return Outcome::Unchanged };
        let settled = settle(draft, policy, self.received, &settling.object.state);
        if let Some(first) = first.filter(|_| !settled.change.as_ref().is_some_and(is_news)) {
            return first;
        }
        let Some((modification, settlement, sight)) = settling.take_over(settled) else {
            let new = key.filter(|key| known_key != KnownKey::Same && self.known_unchanged.insert(*key));
            self.unchanged.extend(new);
            return Outcome::Unchanged;
        };
        self.head = self.head.next();
        self.number(key, Change { seq: self.head, received: self.received, modification, settlement }, &sight)
    }

    /// What became of the event when it was first told, if it is known.
    fn first(&self, key: EventKey) -> Option<Outcome> {
        let changed = self.seen.get(&key).map(|(seq, id)| Outcome::Duplicate { seq: *seq, id: *id });
        changed.or_else(|| self.known_unchanged.contains(&key).then_some(Outcome::Unchanged))
    }

    fn number(&mut self, key: Option<EventKey>, change: Change, sight: &Sight) -> Outcome {
        let (seq, id) = (change.seq, change.modification.id);
        self.taken.insert(id);
        // Of one event that was told twice the first is remembered.
        let key = key.filter(|key| !self.seen.contains_key(key));
        if let Some(key) = key {
            self.seen.insert(key, (seq, Some(id)));
        }
        let json = Bytes::from(json_of(&change));
        let sight = (!sight.is_empty()).then(|| Bytes::from(json_of(sight)));
        self.changes.push(NewChange { change, json, sight, key });
        Outcome::Accepted { seq, id }
    }

    fn decision(self) -> Decision {
        let touched = |(uri, Settling { object, itself, items })| Touched { uri, object, itself, items };
        let is_touched = |(_, settling): &(Uri, Settling)| settling.itself || !settling.items.is_empty();
        let objects = self.objects.into_iter().filter(is_touched).map(touched).collect();
        let (changes, unchanged, received) = (self.changes, self.unchanged, self.received);
        Decision { changes, unchanged, received, objects, cursors: Vec::new() }
    }
}

impl Settling {
    /// Takes over what a draft of this object says.
    fn take_over(&mut self, settled: Settled) -> Option<(ContentObjectModification, Settlement, Sight)> {
        let state = &mut self.object.state;
        let Settled { change, confirmations, order } = settled;
        state.confirm(order, &confirmations);
        self.itself |= confirmations.purged;
        self.items.extend(confirmations.items.into_iter().map(|(uri, _)| uri));
        let (modification, settlement) = change?;
        let before = Before::of(state, &modification, &settlement);
        state.apply(order, &modification, &settlement);
        let sight = before.note(state, &modification, &settlement);
        self.itself |= ObjectState::is_told_by(&modification, &settlement);
        self.items.extend(modification.items.iter().map(|item| item.uri.clone()));
        Some((modification, settlement, sight))
    }
}

/// Whether a state is told that is not the one before, and not too late.
fn is_news((modification, settlement): &(ContentObjectModification, Settlement)) -> bool {
    modification.items.iter().enumerate().any(|(index, item)| {
        let on_time = !settlement.item(index).late.contains(Aspect::State);
        on_time && matches!(item.change, ItemChange::State { .. })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Known, KnownKey, Outcome, Settlements, SourcePolicy, Submission, Timestamp};
    use crate::model::{Draft, SourceName};

    #[test]
    fn a_clock_that_goes_back_does_not_take_the_times_of_receipt_back() {
        let time = |millis| Timestamp::from_millis(millis).unwrap();
        let draft =
            r#"{"object":"http://h/1","time":"2000-01-01T00:00:00Z","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
        let draft: Draft = serde_json::from_str(draft).unwrap();
        let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
        for (newest, now, received) in [(None, 5_000, 5_000), (Some(9_000), 5_000, 9_000), (Some(9_000), 9_500, 9_500)]
        {
            let known = Known { received: newest.map(time), ..Known::default() };
            let mut batch = Settlements::new(known, time(now));
            let drafts = vec![(None, draft.clone())];
            let outcomes =
                batch.submission(Submission { policy: Arc::clone(&policy), drafts, known_key: KnownKey::Same });
            assert!(matches!(outcomes[..], [Outcome::Accepted { .. }]), "{outcomes:?}");
            assert_eq!(batch.decision().changes[0].change.received, time(received));
        }
    }
}
