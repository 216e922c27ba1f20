//! What a source's repository is asked about its drafts before they go to the journal, and what is done where it does not
//! answer: a draft is marked and goes on, or it waits.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::Source;
use crate::{
    journal::{DraftOutcome, store::EventKey},
    lookup::{Health, Lookup, LookupError, Mode},
    model::{Draft, DraftChange, DraftItems, LookupMark},
    retry::{Backoff, jittered},
};

/// The metric of changes about which a repository is to be asked again.
pub const INCOMPLETE: &str = "tidings_incomplete_changes";

/// The metric of events that wait for an answer of their repository.
pub const WAITING: &str = "tidings_waiting_events";

/// First and longest wait until a repository is asked again for an event that waits, at most.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);

/// How long a sender waits for its message's repository at the most. It has less patience than the gateway's operator may
/// have with the repository.
const LONGEST_OF_A_SENDER: Duration = Duration::from_secs(20);

/// How much longer than one request all that is asked for one message may take, while its sender waits.
const SLACK: Duration = Duration::from_millis(500);

/// Drafts, each with the key by which a repeat is known.
type Drafts = [(Option<EventKey>, Draft)];

/// A source's repository, and how things are with it.
pub(super) struct Looking {
    pub(super) lookup: Lookup,
    /// How many events wait for an answer that has failed to come.
    waiting: watch::Sender<u64>,
    /// About how many changes it is to be asked again, as of the last time that somebody looked.
    incomplete: AtomicU64,
    /// Tells that there is one more.
    pub(super) is_more: Notify,
    series: [metrics::Gauge; 2],
}

/// How things are with a source's repository, for those who administer it.
#[derive(Clone, Debug)]
pub struct LookedUp {
    /// What is done where it does not answer.
    pub mode: Mode,
    /// Where it is.
    pub url: String,
    /// How many events wait for an answer that has failed to come.
    pub waiting: u64,
    /// About how many changes it is to be asked again.
    pub incomplete: u64,
    /// How it is itself.
    pub health: Health,
}

/// For how long an event may wait for its repository.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Somebody waits for an answer: as long as one request may take.
    OfOneRequest,
    /// Until it answers, where that is required.
    Endless,
}

impl Looking {
    pub(super) fn new(source: &str, lookup: Lookup) -> Self {
        let series = [INCOMPLETE, WAITING].map(|name| {
            let gauge = metrics::gauge!(name, "source" => source.to_owned());
            gauge.set(0.0);
            gauge
        });
        let (waiting, incomplete) = (watch::Sender::new(0), AtomicU64::new(0));
        Self { lookup, waiting, incomplete, is_more: Notify::new(), series }
    }

    pub(super) fn shown(&self) -> LookedUp {
        LookedUp {
            mode: self.lookup.mode(),
            url: self.lookup.repository().settings().url.to_string(),
            waiting: *self.waiting.borrow(),
            incomplete: self.incomplete.load(Ordering::Relaxed),
            health: self.lookup.health(),
        }
    }

    /// Somebody has counted what is incomplete.
    pub(super) fn counted(&self, incomplete: u64) {
        self.incomplete.store(incomplete, Ordering::Relaxed);
        self.series[0].set(gauge_of(incomplete));
    }

    /// Tells how many events wait, whenever that changes.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.waiting.subscribe()
    }

    fn set_waiting(&self, change: impl FnOnce(u64) -> u64) {
        self.waiting.send_modify(|waiting| {
            *waiting = change(*waiting);
            self.series[1].set(gauge_of(*waiting));
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and so many changes there are never")]
fn gauge_of(count: u64) -> f64 {
    count as f64
}

/// An event that waits, for as long as this is there.
struct Waits<'l>(&'l Looking);

impl<'l> Waits<'l> {
    fn begin(looking: &'l Looking) -> Self {
        looking.set_waiting(|waiting| waiting + 1);
        Self(looking)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set_waiting(|waiting| waiting.saturating_sub(1));
    }
}

impl Source {
    /// How things are with its repository, if it is asked.
    #[must_use]
    pub fn looked_up(&self) -> Option<LookedUp> {
        self.looking.as_ref().map(Looking::shown)
    }

    /// How many of its events wait for their repository, told whenever that changes; `None` where none ever does.
    #[must_use]
    pub fn waits(&self) -> Option<watch::Receiver<u64>> {
        self.looking.as_ref().map(Looking::watch)
    }

    /// Asks the repository, if it is to be asked, about drafts whose message came at `since`.
    ///
    /// # Errors
    /// When an answer is required and has not come.
    pub(super) async fn look_up(
        &self,
        drafts: &mut Drafts,
        since: Instant,
        patience: Patience,
    ) -> Result<(), LookupError> {
        let Some(looking) = &self.looking else { return Ok(()) };
        let metadata = self.policy.metadata_changes;
        let asked = drafts.iter_mut().map(|(_, draft)| draft).filter(|draft| metadata || !is_of_properties(draft));
        let each = asked.map(|draft| self.look_up_one(looking, draft, since, patience));
        join_all(each).await.into_iter().collect()
    }

    async fn look_up_one(
        &self,
        looking: &Looking,
        draft: &mut Draft,
        since: Instant,
        patience: Patience,
    ) -> Result<(), LookupError> {
        let lookup = &looking.lookup;
        let within = lookup.repository().settings().timeout.min(LONGEST_OF_A_SENDER);
        let answered = match (patience, lookup.mode()) {
            (Patience::Endless, Mode::Required) => {
                self.wait_for(looking, draft, since).await;
                Ok(())
            }
            (Patience::Endless, _) => complete_in_turn(lookup, draft, since).await,
            // A request that takes too long ends by itself, so that it is known to have failed.
            (Patience::OfOneRequest, _) => match timeout(within + SLACK, lookup.complete(draft, since)).await {
                Ok(answered) => answered,
                Err(_) => Err(lookup.failed(LookupError::Late { within })),
            },
        };
        match answered {
            Err(error) if lookup.mode() == Mode::BestEffort => {
                tracing::debug!(source = %self.name(), object = %draft.object, %error, "the repository is asked again later");
                draft.lookup.mark = Some(LookupMark::Incomplete);
                Ok(())
            }
            answered => answered,
        }
    }

    /// Asks until there is an answer.
    async fn wait_for(&self, looking: &Looking, draft: &mut Draft, since: Instant) {
        let mut backoff = Backoff::new(SHORTEST, LONGEST);
        let mut waits = None;
        loop {
            // What was answered of an earlier attempt may be outdated by the next.
            let mut asked = draft.clone();
            match looking.lookup.complete(&mut asked, since).await {
                Ok(()) => {
                    *draft = asked;
                    return;
                }
                Err(error) => {
                    if waits.is_none() {
                        tracing::debug!(source = %self.name(), object = %draft.object, %error, "an event waits for its repository");
                    }
                    waits.get_or_insert_with(|| Waits::begin(looking));
                    let wait = backoff.next_wait();
                    sleep(error.again().map_or(wait, jittered)).await;
                }
            }
        }
    }

    /// Takes note of what of a message's drafts is incomplete in the journal.
    pub(super) fn note_incomplete(&self, marked: u64, outcomes: &[DraftOutcome]) {
        let Some(looking) = self.looking.as_ref().filter(|_| marked > 0) else { return };
        let accepted =
            outcomes.iter().filter(|outcome| matches!(outcome, DraftOutcome::Accepted { .. })).count() as u64;
        let more = marked.min(accepted);
        if more > 0 {
            let before = looking.incomplete.fetch_add(more, Ordering::Relaxed);
            looking.series[0].set(gauge_of(before + more));
            looking.is_more.notify_one();
        }
    }
}

/// Asks as often as there is no request free for it. The repository answers others meanwhile, or it is left alone soon,
/// which ends this.
async fn complete_in_turn(lookup: &Lookup, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
    loop {
        let mut asked = draft.clone();
        match lookup.complete(&mut asked, since).await {
            Err(LookupError::Crowded { .. }) => {}
            answered => {
                *draft = asked;
                return answered;
            }
        }
    }
}

/// How many drafts are marked to be asked about again.
pub(super) fn marked(drafts: &Drafts) -> u64 {
    drafts.iter().filter(|(_, draft)| draft.lookup.mark == Some(LookupMark::Incomplete)).count() as u64
}

/// Whether a draft is of properties alone, which is no change unless the source says so.
fn is_of_properties(draft: &Draft) -> bool {
    match &draft.items {
        DraftItems::Listed(items) => {
            items.iter().all(|item| matches!(item.change, DraftChange::Properties { after: None }))
        }
        DraftItems::Purge => false,
    }
}
