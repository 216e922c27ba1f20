//! The single writer: a thread that takes what is waiting, settles it, and appends it in one
//! transaction (group commit), so that throughput grows with concurrency while each waits for one
//! sync of the disk only.
//!
//! Drafts come from [`super::Journal::append`]; changes go to the store, then to the tail, then the
//! head is moved, then the answers are sent: nobody hears of a change before it is on disk.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    First, metrics,
    quarantine::{NewQuarantined, QuarantineId},
    registry::Confirmations,
    settle::{Settled, SourcePolicy, settle},
    store::{Decision, EventKey, ItemsAsked, Known, NewChange, Questions, Store, StoreError},
    tail::{Recorded, Tail},
};
use crate::model::{
    Aspect, Change, ChangeId, ContentObjectModification, Draft, DraftItems, ItemChange, Seq, Settlement, Timestamp, Uri,
};

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
    Append(Submission, oneshot::Sender<Result<Vec<Outcome>, StoreError>>),
    Quarantine(NewQuarantined, oneshot::Sender<Result<QuarantineId, StoreError>>),
    Release(QuarantineId, oneshot::Sender<Result<bool, StoreError>>),
    Prune { before: Seq, at_most: usize, answer: oneshot::Sender<Result<usize, StoreError>> },
}

pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) tail: Arc<Tail>,
    pub(super) head: watch::Sender<Seq>,
    pub(super) first: Arc<First>,
    pub(super) batch: usize,
}

impl Writer {
    /// Works until all senders of orders are gone and all orders are done.
    pub(super) fn run(self, mut orders: mpsc::Receiver<Order>) {
        let mut waiting = Vec::with_capacity(self.batch);
        while orders.blocking_recv_many(&mut waiting, self.batch) > 0 {
            self.execute(waiting.drain(..));
        }
    }

    fn execute(&self, orders: impl Iterator<Item = Order>) {
        let (mut submissions, mut submitters) = (Vec::new(), Vec::new());
        let (mut messages, mut senders) = (Vec::new(), Vec::new());
        let mut released = false;
        let mut prunes = Vec::new();
        for order in orders {
            match order {
                Order::Append(submission, answer) => {
                    submissions.push(submission);
                    submitters.push(answer);
                }
                Order::Quarantine(message, answer) => {
                    messages.push(message);
                    senders.push(answer);
                }
                Order::Release(id, answer) => {
                    released = true;
                    let _ = answer.send(self.store.release(id));
                }
                Order::Prune { before, at_most, answer } => prunes.push((before, at_most, answer)),
            }
        }
        if !submissions.is_empty() {
            answer_all(submitters, self.append(submissions));
        }
        let quarantined = !messages.is_empty();
        if quarantined {
            answer_all(senders, self.store.quarantine(&messages));
        }
        if quarantined || released {
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

    fn append(&self, submissions: Vec<Submission>) -> Result<Vec<Vec<Outcome>>, StoreError> {
        let began = Instant::now();
        let events = submissions.len();
        let questions = questions(&submissions);
        let mut submissions = Some(submissions);
        let mut outcomes = Vec::new();
        let mut recorded = Vec::new();
        self.store.append(&questions, &mut |known| {
            let mut batch = Batch::new(known, Timestamp::now());
            for submission in submissions.take().unwrap_or_default() {
                outcomes.push(batch.submission(submission));
            }
            let decision = batch.decision();
            recorded = decision.changes.iter().map(|new| (new.change.clone(), new.json.clone())).collect();
            decision
        })?;
        let took = began.elapsed();
        metrics::batch(events, took);
        let oldest = recorded.first().map(|(change, _)| change.seq);
        let newest = recorded.last().map(|(change, _)| change.seq);
        if let (Some(first), Some(last)) = (oldest, newest) {
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(events, first_seq = first.0, last_seq = last.0, took_us, "a batch is on disk");
            if self.first.get().is_none() {
                self.first.set(first);
            }
        }
        self.tail.extend(recorded.into_iter().map(|(change, json)| Arc::new(Recorded::new(change, json))));
        if let Some(newest) = newest {
            self.head.send_replace(newest);
            metrics::head(newest);
        }
        Ok(outcomes)
    }
}

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn json_of(change: &Change) -> Vec<u8> {
    serde_json::to_vec(change).expect("the model has a JSON shape for every value")
}

/// Gives each its answer, or all the same error.
fn answer_all<T>(waiting: Vec<oneshot::Sender<Result<T, StoreError>>>, answers: Result<Vec<T>, StoreError>) {
    match answers {
        Ok(answers) => {
            for (waiting, answer) in waiting.into_iter().zip(answers) {
                let _ = waiting.send(Ok(answer));
            }
        }
        Err(error) => {
            for waiting in waiting {
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
struct Batch {
    known: Known,
    received: Timestamp,
    changes: Vec<NewChange>,
    unchanged: Vec<EventKey>,
    touched: BTreeSet<Uri>,
}

impl Batch {
    fn new(known: Known, now: Timestamp) -> Self {
        // A clock that was set back must not make what comes now older than what came before.
        let received = known.received.map_or(now, |newest| newest.max(now));
        Self { known, received, changes: Vec::new(), unchanged: Vec::new(), touched: BTreeSet::new() }
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
        let first = key.and_then(|key| self.known.seen.get(&key)).copied();
        let unchanged = key.filter(|key| self.known.unchanged.contains(key)).map(|_| Outcome::Unchanged);
        let first = first.map(|(seq, id)| Outcome::Duplicate { seq, id }).or(unchanged);
        if let Some(first) = first.filter(|_| known_key != KnownKey::RememberedUnlessNews) {
            return first;
        }
        // An identifier that another event has taken is not this one's, whatever its source says.
        draft.id = draft.id.filter(|id| !self.known.taken.contains(id));
        let object = draft.object.clone();
        let state = self.known.objects.entry(object.clone()).or_default();
        let Settled { change, confirmations, order } = settle(draft, policy, self.received, state);
        if let Some(first) = first.filter(|_| !change.as_ref().is_some_and(is_news)) {
            return first;
        }
        if confirmations != Confirmations::default() {
            state.confirm(order, &confirmations);
            self.touched.insert(object.clone());
        }
        let Some((modification, settlement)) = change else {
            if let Some(key) = key.filter(|_| known_key != KnownKey::Same)
                && self.known.unchanged.insert(key)
            {
                self.unchanged.push(key);
            }
            return Outcome::Unchanged;
        };
        state.apply(order, &modification, &settlement);
        self.touched.insert(object);
        self.known.head = self.known.head.next();
        let change = Change { seq: self.known.head, received: self.received, modification, settlement };
        self.number(key, change)
    }

    fn number(&mut self, key: Option<EventKey>, change: Change) -> Outcome {
        let (seq, id) = (change.seq, change.modification.id);
        self.known.taken.insert(id);
        // Of one event that was told twice the first is remembered.
        let key = key.filter(|key| !self.known.seen.contains_key(key));
        if let Some(key) = key {
            self.known.seen.insert(key, (seq, Some(id)));
        }
        let json = Bytes::from(json_of(&change));
        self.changes.push(NewChange { change, json, key });
        Outcome::Accepted { seq, id }
    }

    fn decision(self) -> Decision {
        let Self { known, received, changes, unchanged, touched } = self;
        let objects = known.objects.into_iter().filter(|(uri, _)| touched.contains(uri)).collect();
        Decision { changes, unchanged, received, objects }
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

    use super::{Batch, Known, KnownKey, Outcome, SourcePolicy, Submission, Timestamp};
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
            let mut batch = Batch::new(known, time(now));
            let drafts = vec![(None, draft.clone())];
            let outcomes =
                batch.submission(Submission { policy: Arc::clone(&policy), drafts, known_key: KnownKey::Same });
            assert!(matches!(outcomes[..], [Outcome::Accepted { .. }]), "{outcomes:?}");
            assert_eq!(batch.decision().changes[0].change.received, time(received));
        }
    }
}
