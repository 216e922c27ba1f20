//! Enrichment of drafts: missing facts are looked up in the source's repository before the drafts go to the
//! journal. If the repository does not respond, the draft is marked incomplete or waits, depending on the
//! mode.

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
    model::{Draft, DraftChange, DraftItem, LookupMark},
    retry::{Backoff, jittered},
};

/// Metric name: number of incomplete changes, for which the repository will be asked again.
pub const INCOMPLETE: &str = "tidings_incomplete_changes";

/// Metric name: number of events that wait because a required lookup has failed.
pub const WAITING: &str = "tidings_waiting_events";

/// Bounds of the wait between two attempts of a required lookup. Jitter may shorten each wait by half.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Maximum time that a sender waits for a lookup, even if the timeout of the repository is longer.
const LONGEST_FOR_A_SENDER: Duration = Duration::from_secs(20);

/// Extra time for all lookups of one message, beyond the timeout of a single request, while the sender waits.
const SLACK: Duration = Duration::from_millis(500);

/// Drafts with the keys that identify repeats.
type Drafts = [(Option<EventKey>, Draft)];

/// The lookup of a source together with its counters.
pub(super) struct Enricher {
    pub(super) lookup: Lookup,
    /// Number of events that wait because a required lookup has failed.
    waiting: watch::Sender<u64>,
    /// Approximate number of incomplete changes, as of the last count.
    incomplete: AtomicU64,
    /// Notified when the journal has one more incomplete change.
    pub(super) more_incomplete: Notify,
    series: [metrics::Gauge; 2],
}

/// State of a source's lookups, for administrators.
#[derive(Clone, Debug)]
pub struct EnrichmentStatus {
    /// Policy for lookups that fail.
    pub mode: Mode,
    /// URL of the repository.
    pub url: String,
    /// Number of events that wait because a required lookup has failed.
    pub waiting: u64,
    /// Approximate number of incomplete changes.
    pub incomplete: u64,
    /// Health of the repository.
    pub health: Health,
}

impl EnrichmentStatus {
    /// Returns the state for people: `asked`, or `circuit-open` while no requests are sent.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.health.circuit_open_for.is_some() { "circuit-open" } else { "asked" }
    }
}

/// Maximum time that a message may wait for its lookups.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitPolicy {
    /// The sender waits for the response: one request timeout.
    OneRequest,
    /// No limit: a required lookup is repeated until the repository responds.
    Unbounded,
}

impl Enricher {
    pub(super) fn new(source: &str, lookup: Lookup) -> Self {
        let series = [INCOMPLETE, WAITING].map(|name| {
            let gauge = metrics::gauge!(name, "source" => source.to_owned());
            gauge.set(0.0);
            gauge
        });
        let (waiting, incomplete) = (watch::Sender::new(0), AtomicU64::new(0));
        Self { lookup, waiting, incomplete, more_incomplete: Notify::new(), series }
    }

    pub(super) fn status(&self) -> EnrichmentStatus {
        EnrichmentStatus {
            mode: self.lookup.mode(),
            url: self.lookup.repository().settings().url.to_string(),
            waiting: *self.waiting.borrow(),
            incomplete: self.incomplete.load(Ordering::Relaxed),
            health: self.lookup.health(),
        }
    }

    /// Sets the number of incomplete changes after a count in the journal.
    pub(super) fn set_incomplete(&self, incomplete: u64) {
        self.incomplete.store(incomplete, Ordering::Relaxed);
        self.series[0].set(gauge_of(incomplete));
    }

    /// Returns a receiver of the number of waiting events.
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

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and counts stay far below 2^52")]
fn gauge_of(count: u64) -> f64 {
    count as f64
}

/// An event that waits for its repository. Dropping it ends the wait.
struct WaitingEvent<'l>(&'l Enricher);

impl<'l> WaitingEvent<'l> {
    fn begin(enricher: &'l Enricher) -> Self {
        enricher.set_waiting(|waiting| waiting + 1);
        Self(enricher)
    }
}

impl Drop for WaitingEvent<'_> {
    fn drop(&mut self) {
        self.0.set_waiting(|waiting| waiting.saturating_sub(1));
    }
}

impl Source {
    /// Returns the state of the source's lookups; `None` if lookups are off.
    #[must_use]
    pub fn enrichment_status(&self) -> Option<EnrichmentStatus> {
        self.enricher.as_ref().map(Enricher::status)
    }

    /// Returns a receiver of the number of events that wait for the repository; `None` if lookups are off.
    #[must_use]
    pub fn waiting_events(&self) -> Option<watch::Receiver<u64>> {
        self.enricher.as_ref().map(Enricher::watch)
    }

    /// Completes drafts from the repository, if lookups are on. `since` is the time at which the message
    /// arrived.
    ///
    /// # Errors
    /// Fails if the lookup is required and the repository did not respond.
    pub(super) async fn enrich(
        &self,
        drafts: &mut Drafts,
        since: Instant,
        wait_policy: WaitPolicy,
    ) -> Result<(), LookupError> {
        let Some(enricher) = &self.enricher else { return Ok(()) };
        let metadata = self.policy.metadata_changes;
        let to_enrich =
            drafts.iter_mut().map(|(_, draft)| draft).filter(|draft| metadata || !has_only_properties(draft));
        let each = to_enrich.map(|draft| self.enrich_one(enricher, draft, since, wait_policy));
        join_all(each).await.into_iter().collect()
    }

    async fn enrich_one(
        &self,
        enricher: &Enricher,
        draft: &mut Draft,
        since: Instant,
        wait_policy: WaitPolicy,
    ) -> Result<(), LookupError> {
        let lookup = &enricher.lookup;
        let within = lookup.repository().settings().timeout.min(LONGEST_FOR_A_SENDER);
        let dropped = draft.reading.dropped.len();
        let result = match (wait_policy, lookup.mode()) {
            (WaitPolicy::Unbounded, Mode::Required) => {
                self.wait_for_response(enricher, draft, since).await;
                Ok(())
            }
            (WaitPolicy::Unbounded, _) => complete_when_free(lookup, draft, since).await,
            // The request itself ends by its own timeout, so the circuit breaker sees the failure.
            (WaitPolicy::OneRequest, _) => match timeout(within + SLACK, lookup.complete(draft, since)).await {
                Ok(result) => result,
                Err(_) => Err(lookup.failed(LookupError::Timeout { within })),
            },
        };
        self.note_dropped_parts_from(draft, dropped);
        lookup.keep_unread_dates(draft);
        match result {
            Err(error) if lookup.mode() == Mode::BestEffort => {
                tracing::debug!(source = %self.name(), object = %draft.object, %error, "cannot complete an event from the repository; the lookup is repeated later");
                draft.lookup.mark = Some(LookupMark::Incomplete);
                Ok(())
            }
            result => result,
        }
    }

    /// Repeats the lookup until the repository responds.
    async fn wait_for_response(&self, enricher: &Enricher, draft: &mut Draft, since: Instant) {
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let mut waiting = None;
        loop {
            // Each attempt starts from the original draft, because facts of an earlier attempt may be
            // outdated.
            let mut attempt = draft.clone();
            match enricher.lookup.complete(&mut attempt, since).await {
                Ok(()) => {
                    *draft = attempt;
                    return;
                }
                Err(error) => {
                    if waiting.is_none() {
                        tracing::debug!(source = %self.name(), object = %draft.object, %error, "an event waits because a required lookup failed; retrying");
                    }
                    waiting.get_or_insert_with(|| WaitingEvent::begin(enricher));
                    let wait = backoff.next_wait();
                    sleep(error.retry_after().map_or(wait, jittered)).await;
                }
            }
        }
    }

    /// Counts the drafts of a message that the journal stored as incomplete.
    pub(super) fn note_incomplete(&self, incomplete: u64, outcomes: &[DraftOutcome]) {
        let Some(enricher) = self.enricher.as_ref().filter(|_| incomplete > 0) else { return };
        let accepted =
            outcomes.iter().filter(|outcome| matches!(outcome, DraftOutcome::Accepted { .. })).count() as u64;
        let more = incomplete.min(accepted);
        if more > 0 {
            let before = enricher.incomplete.fetch_add(more, Ordering::Relaxed);
            enricher.series[0].set(gauge_of(before + more));
            enricher.more_incomplete.notify_one();
        }
    }
}

/// Repeats the lookup while all in-flight requests are taken. The loop ends because either the repository
/// responds to other requests, or it fails and the circuit opens.
async fn complete_when_free(lookup: &Lookup, draft: &mut Draft, since: Instant) -> Result<(), LookupError> {
    loop {
        let mut attempt = draft.clone();
        match lookup.complete(&mut attempt, since).await {
            Err(LookupError::NoFreeRequest { .. }) => {}
            result => {
                *draft = attempt;
                return result;
            }
        }
    }
}

/// Returns the number of drafts that are marked incomplete.
pub(super) fn count_incomplete(drafts: &Drafts) -> u64 {
    drafts.iter().filter(|(_, draft)| draft.lookup.mark == Some(LookupMark::Incomplete)).count() as u64
}

/// True if a draft contains only changes of properties, which are no changes unless the source is configured
/// to report them.
fn has_only_properties(draft: &Draft) -> bool {
    let is_property = |item: &DraftItem| matches!(item.change, DraftChange::Properties { after: None });
    !draft.items.concerns_all() && draft.items.listed().iter().all(is_property)
}
