//! The writer: takes what is waiting, settles it, and appends it in one transaction (group commit), so
//! that throughput grows with concurrency while each waits for one sync of the disk only. Two threads
//! take turns, so that one batch is settled while the one before is written.
//!
//! Drafts come from [`super::Journal::append`]; changes go to the store, then to the tail, then the
//! head is moved, then the answers are sent: nobody hears of a change before it is on disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    First, metrics,
    quarantine::{NewQuarantined, QuarantineId},
    registry::ObjectState,
    settle::{Settled, SourcePolicy, settle},
    store::{
        self, Decision, EventKey, ItemsAsked, Known, KnownObject, NewChange, Questions, Store, StoreError, Touched,
    },
    tail::{Recorded, Tail},
};
use crate::model::{
    Aspect, Change, ChangeId, ContentObjectModification, Draft, DraftItems, ItemChange, Seq, Settlement, Timestamp, Uri,
};

/// Room for the JSON of most changes, in bytes.
const USUAL_JSON: usize = 1024;

/// What one message told, to be accepted as a whole.
#[derive(Debug)]
pub struct Submission {
    /// Whose message it is.
    pub policy: Arc<SourcePolicy>,
    /// What it tells, each with the key by which a repeat is known; `None` where none can be known.
    pub drafts: Vec<(Option<EventKey>, Draft)>,
    /// What it means that a key is known.
    pub known_key: KnownKey,
}

/// What it means that the key of a draft is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownKey {
    /// It is the same event. Events that change nothing are not remembered: if one comes again, it
    /// is older than what has changed since.
    Same,
    /// It is the same event. Those that change nothing are remembered too, since one that came again
    /// could undo what has changed since.
    Remembered,
    /// The same, unless it is news: it tells a state that the registry does not hold, and it is not
    /// late.
    RememberedUnlessNews,
}

/// What became of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the journal.
    Accepted {
        /// Its number.
        seq: Seq,
        /// Its identifier.
        id: ChangeId,
    },
    /// It was in the journal already.
    Duplicate {
        /// The number of the first.
        seq: Seq,
        /// The identifier of the first; `None` when it has been removed since.
        id: Option<ChangeId>,
    },
    /// It changed nothing.
    Unchanged,
}

/// An order to the writer, with the place where the answer goes. Who has stopped waiting for an
/// answer has not withdrawn the order.
pub(super) enum Order {
    Append(Vec<Submission>, Answers<Vec<Outcome>>),
    Quarantine(Vec<NewQuarantined>, Answers<QuarantineId>),
    Release(QuarantineId, Answer<bool>),
    Prune { before: Seq, at_most: usize, answer: Answer<usize> },
}

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// Where the answer goes to an order of several: one for each, in order, or that none was done.
type Answers<T> = Answer<Vec<T>>;

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    pub(super) batch: usize,
    pub(super) orders: Mutex<mpsc::Receiver<Order>>,
}

/// The orders that one thread has taken at once.
#[derive(Default)]
struct Taken {
    submissions: Vec<Submission>,
    submitters: Vec<(usize, Answers<Vec<Outcome>>)>,
    messages: Vec<NewQuarantined>,
    senders: Vec<(usize, Answers<QuarantineId>)>,
    releases: Vec<(QuarantineId, Answer<bool>)>,
    prunes: Vec<(Seq, usize, Answer<usize>)>,
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done. Two threads do this at the
    /// same time: while one has its batch written, the other settles the next.
    pub(super) fn run(&self) {
        let mut waiting = Vec::with_capacity(self.batch);
        loop {
            // Whoever has the orders takes some and decides on them before the other takes more, so
            // that what came first is settled first.
            let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            if orders.blocking_recv_many(&mut waiting, self.batch) == 0 {
                return;
            }
            self.execute(sorted(waiting.drain(..)), orders);
        }
    }

    fn execute(&self, taken: Taken, orders: MutexGuard<'_, mpsc::Receiver<Order>>) {
        let Taken { submissions, submitters, messages, senders, releases, prunes } = taken;
        if submissions.is_empty() {
            drop(orders);
        } else {
            answer_all(submitters, self.append(submissions, orders));
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
        orders: MutexGuard<'_, mpsc::Receiver<Order>>,
    ) -> Result<Vec<Vec<Outcome>>, StoreError> {
        let began = Instant::now();
        let events = submissions.len();
        let questions = questions(&submissions);
        let mut appending =
            Appending { writer: self, began, orders: Some(orders), submissions, outcomes: Vec::new(), old: Vec::new() };
        self.store.append(&questions, &mut appending)?;
        metrics::batch(events, began.elapsed());
        Ok(appending.outcomes)
    }
}

/// Submissions on their way into the store.
struct Appending<'a> {
    writer: &'a Writer,
    began: Instant,
    orders: Option<MutexGuard<'a, mpsc::Receiver<Order>>>,
    submissions: Vec<Submission>,
    outcomes: Vec<Vec<Outcome>>,
    /// What has left the tail: it is freed when the store is free for the next batch.
    old: Vec<Arc<Recorded>>,
}

impl store::Batch for Appending<'_> {
    fn decide(&mut self, known: Known) -> Decision {
        let mut settling = Settlements::new(known, Timestamp::now());
        let submissions = std::mem::take(&mut self.submissions);
        self.outcomes = submissions.into_iter().map(|submission| settling.submission(submission)).collect();
        self.orders = None;
        settling.decision()
    }

    fn written(&mut self, decision: Decision) {
        let Writer { first, tail, head, .. } = self.writer;
        let changes = decision.changes;
        let (Some(oldest), Some(newest)) = (changes.first(), changes.last()) else { return };
        let (oldest, newest) = (oldest.change.seq, newest.change.seq);
        let took_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let count = changes.len();
        tracing::debug!(changes = count, first_seq = oldest.0, last_seq = newest.0, took_us, "a batch is on disk");
        if first.get().is_none() {
            first.set(oldest);
        }
        self.old = tail.extend(changes.into_iter().map(|new| Arc::new(Recorded::new(new.change, new.json))));
        head.send_replace(newest);
        metrics::head(newest);
    }
}

/// Orders by what they ask for.
fn sorted(orders: impl Iterator<Item = Order>) -> Taken {
    let mut taken = Taken::default();
    for order in orders {
        match order {
            Order::Append(more, answer) => {
                taken.submitters.push((more.len(), answer));
                taken.submissions.extend(more);
            }
            Order::Quarantine(more, answer) => {
                taken.senders.push((more.len(), answer));
                taken.messages.extend(more);
            }
            Order::Release(id, answer) => taken.releases.push((id, answer)),
            Order::Prune { before, at_most, answer } => taken.prunes.push((before, at_most, answer)),
        }
    }
    taken
}

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn json_of(change: &Change) -> Vec<u8> {
    let mut json = Vec::with_capacity(USUAL_JSON);
    serde_json::to_writer(&mut json, change).expect("the model has a JSON shape for every value");
    json
}

/// Gives each as many answers as it has asked for, or all the same error.
fn answer_all<T>(waiting: Vec<(usize, Answers<T>)>, answers: Result<Vec<T>, StoreError>) {
    match answers {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (count, waiting) in waiting {
                let _ = waiting.send(Ok(answers.by_ref().take(count).collect()));
            }
        }
        Err(error) => {
            for (_, waiting) in waiting {
                let _ = waiting.send(Err(error.clone()));
            }
        }
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
        let Some((modification, settlement)) = settling.take_over(settled) else {
            let new = key.filter(|key| known_key != KnownKey::Same && self.known_unchanged.insert(*key));
            self.unchanged.extend(new);
            return Outcome::Unchanged;
        };
        self.head = self.head.next();
        self.number(key, Change { seq: self.head, received: self.received, modification, settlement })
    }

    /// What became of the event when it was first told, if it is known.
    fn first(&self, key: EventKey) -> Option<Outcome> {
        let changed = self.seen.get(&key).map(|(seq, id)| Outcome::Duplicate { seq: *seq, id: *id });
        changed.or_else(|| self.known_unchanged.contains(&key).then_some(Outcome::Unchanged))
    }

    fn number(&mut self, key: Option<EventKey>, change: Change) -> Outcome {
        let (seq, id) = (change.seq, change.modification.id);
        self.taken.insert(id);
        // Of one event that was told twice the first is remembered.
        let key = key.filter(|key| !self.seen.contains_key(key));
        if let Some(key) = key {
            self.seen.insert(key, (seq, Some(id)));
        }
        let json = Bytes::from(json_of(&change));
        self.changes.push(NewChange { change, json, key });
        Outcome::Accepted { seq, id }
    }

    fn decision(self) -> Decision {
        let touched = |(uri, Settling { object, itself, items })| Touched { uri, object, itself, items };
        let is_touched = |(_, settling): &(Uri, Settling)| settling.itself || !settling.items.is_empty();
        let objects = self.objects.into_iter().filter(is_touched).map(touched).collect();
        Decision { changes: self.changes, unchanged: self.unchanged, received: self.received, objects }
    }
}

impl Settling {
    /// Takes over what a draft of this object says.
    fn take_over(&mut self, settled: Settled) -> Option<(ContentObjectModification, Settlement)> {
        let state = &mut self.object.state;
        let Settled { change, confirmations, order } = settled;
        state.confirm(order, &confirmations);
        self.itself |= confirmations.purged;
        self.items.extend(confirmations.items.into_iter().map(|(uri, _)| uri));
        let (modification, settlement) = change?;
        state.apply(order, &modification, &settlement);
        self.itself |= ObjectState::is_told_by(&modification, &settlement);
        self.items.extend(modification.items.iter().map(|item| item.uri.clone()));
        Some((modification, settlement))
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
