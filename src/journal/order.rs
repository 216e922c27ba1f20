//! What is asked of the writer, and where the answers go.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    quarantine::{NewQuarantined, QuarantineId},
    seed::{Seeded, Seeding},
    settle::SourcePolicy,
    store::{EventKey, StoreError},
    subscriptions::Write,
};
use crate::model::{ChangeId, Draft, Seq, SubscriptionName};

/// What one message told, to be accepted as a whole.
#[derive(Debug)]
pub struct Submission {
    /// Whose message it is.
    pub policy: Arc<SourcePolicy>,
    /// What it tells, each with the key by which a repeat is known; `None` where none can be known.
    pub drafts: Vec<(Option<EventKey>, Draft)>,
    /// What it means that a key is known.
    pub known_key: KnownKey,
    /// The change that is complete with this, whatever became of the drafts.
    pub completes: Option<Seq>,
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
    /// It would have brought an object beyond the most items that the registry may know of one
    /// ([`ChangeBounds::object_items`](super::ChangeBounds)). Nothing of its message was written.
    TooManyItems,
}

/// An order to the writer, with the place where the answer goes. Who has stopped waiting for an
/// answer has not withdrawn the order.
pub(super) enum Order {
    Append(Vec<Submission>, Answers<Vec<Outcome>>),
    Seed(Box<Seeding>, Answer<Seeded>),
    Quarantine(Vec<NewQuarantined>, Answers<QuarantineId>),
    Release(QuarantineId, Answer<bool>),
    /// Cursors that go forward. They go with the batch that is waiting, if there is one, and so cost
    /// no sync of their own.
    Advance(Vec<(SubscriptionName, Seq)>, Answer<()>),
    Subscriptions(Vec<Write>, Answer<Vec<u64>>),
    Prune {
        before: Seq,
        at_most: usize,
        answer: Answer<usize>,
    },
    /// To try whether a message can be written.
    Probe(Answer<()>),
}

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// Where the answer goes to an order of several: one for each, in order, or that none was done.
pub(super) type Answers<T> = Answer<Vec<T>>;

impl Taken {
    /// Whether there is anything to settle, or a cursor to move.
    pub(super) fn has_batch(&self) -> bool {
        !(self.submitters.is_empty() && self.seeders.is_empty() && self.advancers.is_empty())
    }

    /// Tells those who wait for something settled that it is not written.
    pub(super) fn refuse(&mut self, error: &StoreError) {
        self.submissions.clear();
        self.seedings.clear();
        self.cursors.clear();
        for seeder in self.seeders.drain(..) {
            let _ = seeder.send(Err(error.clone()));
        }
        for advancer in self.advancers.drain(..) {
            let _ = advancer.send(Err(error.clone()));
        }
        answer_all(std::mem::take(&mut self.submitters), Err(error.clone()));
    }
}

/// The orders that one thread has taken at once.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) submissions: Vec<Submission>,
    pub(super) submitters: Vec<(usize, Answers<Vec<Outcome>>)>,
    pub(super) seedings: Vec<Seeding>,
    pub(super) seeders: Vec<Answer<Seeded>>,
    pub(super) messages: Vec<NewQuarantined>,
    pub(super) senders: Vec<(usize, Answers<QuarantineId>)>,
    pub(super) releases: Vec<(QuarantineId, Answer<bool>)>,
    pub(super) cursors: Vec<(SubscriptionName, Seq)>,
    pub(super) advancers: Vec<Answer<()>>,
    pub(super) writes: Vec<(Vec<Write>, Answer<Vec<u64>>)>,
    pub(super) probes: Vec<Answer<()>>,
    pub(super) prunes: Vec<(Seq, usize, Answer<usize>)>,
}

/// Orders by what they ask for.
pub(super) fn sorted(orders: impl Iterator<Item = Order>) -> Taken {
    let mut taken = Taken::default();
    for order in orders {
        match order {
            Order::Append(more, answer) => {
                taken.submitters.push((more.len(), answer));
                taken.submissions.extend(more);
            }
            Order::Seed(seeding, answer) => {
                taken.seedings.push(*seeding);
                taken.seeders.push(answer);
            }
            Order::Quarantine(more, answer) => {
                taken.senders.push((more.len(), answer));
                taken.messages.extend(more);
            }
            Order::Release(id, answer) => taken.releases.push((id, answer)),
            Order::Advance(places, answer) => {
                taken.cursors.extend(places);
                taken.advancers.push(answer);
            }
            Order::Subscriptions(what, answer) => taken.writes.push((what, answer)),
            Order::Prune { before, at_most, answer } => taken.prunes.push((before, at_most, answer)),
            Order::Probe(answer) => taken.probes.push(answer),
        }
    }
    taken
}

/// Gives each as many answers as it has asked for, or all the same error.
pub(super) fn answer_all<T>(waiting: Vec<(usize, Answers<T>)>, answers: Result<Vec<T>, StoreError>) {
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
