//! The only write path to the journal. A source's dialect parses the bytes of a message, and the intake
//! appends the resulting drafts. A message that the dialect cannot parse goes to the quarantine. When
//! [`Intake::accept`] returns, the message is on disk in one of the two. [`Batch`] carries many messages at a
//! time and keeps their order.

mod batch;
mod bounds;
mod dropped_parts;
pub mod due;
mod enrichment;
mod follow_up;
mod identity;
mod message_sets;
mod outcomes;
mod receipt;
mod seed;
mod trial;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::available_parallelism,
};

use bytes::Bytes;
use serde::Serialize;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
    time::Instant,
};
use tracing::Instrument;

pub use crate::model::{EventId, SourceName};
pub use batch::{Batch, ReceivedMessage};
pub use dropped_parts::DROPPED_PARTS;
pub use enrichment::{EnrichmentStatus, INCOMPLETE, WAITING};
pub use follow_up::FollowUp;
pub use message_sets::MessageSet;
pub use receipt::{AcceptedChange, IngestResponse, Outcome, Receipt};
pub use seed::{Corrections, SeedError};
pub use trial::Trial;

use crate::{
    format::{Dialect, DialectKind, Headers, InvalidSettings, Limits, Message, ParsedMessage, Redaction, Rejection},
    journal::{
        Journal, JournalError, Submission,
        quarantine::{NewQuarantinedMessage, QuarantineId},
        settle::SourcePolicy,
    },
    lookup::{Lookup, LookupError},
    message_rate::MessageRate,
    model::{Draft, Text, Timestamp},
};
use enrichment::{Enricher, WaitPolicy};
use message_sets::RejectedSets;
use outcomes::{CheckedMessages, ReadMessage};

/// Metric name: number of messages that the intake has processed.
pub const EVENTS: &str = "tidings_events_total";

/// A configured origin of events, as the intake sees it: a name and a dialect, independent of the transport.
pub struct Source {
    policy: Arc<SourcePolicy>,
    kind: &'static DialectKind,
    dialect: Box<dyn Dialect>,
    limits: Limits,
    counts: Counts,
    rate: Mutex<MessageRate>,
    /// Enrichment from the source's repository; `None` if lookups are off.
    enricher: Option<Enricher>,
    /// Counters of [`EVENTS`] by outcome, cached because finding a series costs more than incrementing it.
    series: BTreeMap<Outcome, metrics::Counter>,
    rejected_sets: Mutex<RejectedSets>,
}

/// Number of messages of a source by outcome since the gateway started.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Messages that caused at least one change.
    pub accepted: AtomicU64,
    /// Messages whose changes were all in the journal already.
    pub duplicate: AtomicU64,
    /// Messages that changed nothing.
    pub unchanged: AtomicU64,
    /// Messages that the dialect could not parse.
    pub quarantined: AtomicU64,
}

/// One message as a transport received it.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Media type that the sender declared.
    pub content_type: Option<String>,
    /// Headers of the transport.
    pub headers: Headers,
    /// Body of the message.
    pub body: Bytes,
    /// Message identifier of the transport, for dialects whose messages contain no identifier.
    pub transport_id: Option<EventId>,
    /// True if the transport may have delivered the message before (AMQP's `redelivered`).
    pub redelivered: bool,
    /// Set of the message, if its broker keeps it.
    pub set: Option<MessageSet>,
}

impl From<NewQuarantinedMessage> for Incoming {
    fn from(message: NewQuarantinedMessage) -> Self {
        let NewQuarantinedMessage { content_type, headers, body, .. } = message;
        let (content_type, headers) = (content_type.map(String::from), headers.into_iter().collect());
        Self { content_type, headers, body, transport_id: None, redelivered: false, set: None }
    }
}

/// Reason why the intake did not accept a message.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The dialect could not parse the message. The message is in the quarantine.
    #[error("{rejection} (quarantined as {id})")]
    Quarantined {
        /// Number of the message in the quarantine.
        id: QuarantineId,
        /// Reason why the dialect could not parse it.
        rejection: Rejection,
    },
    /// The journal could not write the message. The sender must send it again.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The lookup is required and the repository did not respond. The sender must send the message again.
    #[error(transparent)]
    LookupFailed(#[from] LookupError),
}

/// Prefixes of the headers that describe the route of a message. The quarantine stores these headers even if
/// the dialect does not read them.
const ROUTE_HEADERS: [&str; 4] = ["routing-key", "exchange", "destination", "kafka."];

impl Source {
    /// Creates a source and its dialect.
    ///
    /// # Errors
    /// Fails if the settings do not fit the dialect.
    pub fn new(
        name: SourceName,
        kind: &'static DialectKind,
        settings: serde_json::Value,
        metadata_changes: bool,
        limits: Limits,
    ) -> Result<Self, InvalidSettings> {
        let dialect = (kind.build)(settings, limits)?;
        let policy = Arc::new(SourcePolicy { name, metadata_changes });
        let series = Outcome::ALL.map(|outcome| {
            let (name, outcome_name) = (policy.name.to_string(), outcome.name());
            let counter =
                metrics::counter!(EVENTS, "source" => name, "dialect" => kind.name, "outcome" => outcome_name);
            // A rate() query needs the initial zero.
            counter.increment(0);
            (outcome, counter)
        });
        dropped_parts::register(&policy.name);
        let (counts, series) = (Counts::default(), series.into());
        let (rate, rejected_sets) = (Mutex::new(MessageRate::new(Instant::now().into_std())), Mutex::default());
        Ok(Self { policy, kind, dialect, limits, counts, rate, enricher: None, series, rejected_sets })
    }

    /// Enables lookups in the source's repository.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Lookup) -> Self {
        self.enricher = Some(Enricher::new(self.name().as_str(), lookup));
        self
    }

    /// Returns the name of the source.
    #[must_use]
    pub fn name(&self) -> &SourceName {
        &self.policy.name
    }

    /// Returns the dialect of the source.
    #[must_use]
    pub fn kind(&self) -> &'static DialectKind {
        self.kind
    }

    /// Returns the number of messages by outcome since the gateway started.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the recent number of messages per second on this node.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.lock_rate().per_second(Instant::now().into_std())
    }

    fn lock_rate(&self) -> MutexGuard<'_, MessageRate> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_rejected_sets(&self) -> MutexGuard<'_, RejectedSets> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.rejected_sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parses one message after removing credentials from its body.
    fn read(&self, incoming: &mut Incoming) -> Result<ParsedMessage, Rejection> {
        match self.kind.redact.map(|redact| redact(&incoming.body)) {
            None | Some(Redaction::Unchanged) => self.read_redacted(incoming),
            Some(Redaction::Removed(body)) => {
                incoming.body = body.into();
                self.read_redacted(incoming)
            }
            Some(Redaction::Blanked(body, rejection)) => {
                incoming.body = body.into();
                Err(rejection)
            }
            Some(Redaction::Opaque) => {
                let read = self.read_redacted(incoming);
                if read.is_err() {
                    incoming.body = Bytes::new();
                }
                read
            }
        }
    }

    /// Parses a message whose credentials are already removed.
    fn read_redacted(&self, incoming: &Incoming) -> Result<ParsedMessage, Rejection> {
        self.dialect.read(&Message {
            content_type: incoming.content_type.as_deref(),
            headers: &incoming.headers,
            body: &incoming.body,
        })
    }

    /// Returns the headers that the dialect reads. All others are dropped because they may contain
    /// credentials.
    fn headers_read(&self, incoming: &Incoming) -> Vec<(String, String)> {
        let headers = incoming.headers.with_prefixes(self.kind.headers);
        headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Builds the journal submission of a message. If the message contains no drafts, the second value is the
    /// reason.
    fn submission(&self, incoming: &Incoming, reading: ParsedMessage) -> (Submission, Option<&'static str>) {
        let (drafts, empty_reason) = match reading {
            ParsedMessage::Drafts(drafts) => (drafts.into_vec(), None),
            ParsedMessage::NoChange(reason) => (Vec::new(), Some(reason)),
        };
        let headers = self.headers_read(incoming);
        let is_identified = drafts.iter().all(|draft| Self::identifies_event(incoming, draft));
        let keyed = |(ordinal, draft): (usize, Draft)| (self.key(incoming, &headers, &draft, ordinal), draft);
        let drafts = drafts.into_iter().enumerate().map(keyed).collect();
        let duplicate_policy = self.duplicate_policy(incoming, is_identified);
        (Submission { policy: Arc::clone(&self.policy), drafts, duplicate_policy, completes: None }, empty_reason)
    }

    fn count(&self, outcome: Outcome, messages: u64) {
        let count = match outcome {
            Outcome::Accepted => &self.counts.accepted,
            Outcome::Duplicate => &self.counts.duplicate,
            Outcome::Unchanged => &self.counts.unchanged,
            Outcome::Quarantined => &self.counts.quarantined,
        };
        count.fetch_add(messages, Ordering::Relaxed);
        self.lock_rate().count(Instant::now().into_std(), messages);
        if let Some(counter) = self.series.get(&outcome) {
            counter.increment(messages);
        }
    }
}

/// Maximum size of a message that is parsed between other tasks, in bytes. That takes about a millisecond.
const SMALL_BYTES: usize = 64 << 10;

/// Handle to the only write path of the journal.
#[derive(Clone)]
pub struct Intake {
    journal: Journal,
    /// Permits for parsing a large message, one for each core.
    parsers: Arc<Semaphore>,
}

impl Intake {
    /// Creates an intake that writes to `journal`.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { journal, parsers: Arc::new(Semaphore::new(cores)) }
    }

    /// Returns the number of the newest change in the journal.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.journal.head().0
    }

    /// Accepts one message. On return the message is on disk, in the journal or in the quarantine.
    ///
    /// # Errors
    /// Fails if the message could not be parsed (it is in the quarantine then), if the journal could not write
    /// it, or if a required lookup failed. In the last two cases the sender must send the message again.
    pub async fn accept(&self, source: &Source, incoming: Incoming) -> Result<Receipt, IntakeError> {
        let span = tracing::info_span!("intake", source = %source.name());
        self.ingest(source, incoming).instrument(span).await
    }

    async fn ingest(&self, source: &Source, mut incoming: Incoming) -> Result<Receipt, IntakeError> {
        let result = match self.read(source, &mut incoming).await {
            Ok(reading) => self.append(source, &incoming, reading).await?,
            Err(rejection) => Err(rejection),
        };
        match result {
            Ok(receipt) => Ok(receipt),
            Err(rejection) => {
                let message = quarantine_entry(source, incoming, &rejection);
                let id = self.journal.quarantine_all(vec![message]).await?.pop().ok_or(JournalError::Closed)?;
                source.count(Outcome::Quarantined, 1);
                log_quarantined(source, &[id], &rejection);
                Err(IntakeError::Quarantined { id, rejection })
            }
        }
    }

    /// Parses a quarantined message again, for example after a change of settings or an upgrade, and removes
    /// it from the quarantine on success. Returns `None` if the quarantine has no such message.
    ///
    /// # Errors
    /// Fails if the message still cannot be parsed (it stays in the quarantine), if the journal could not write
    /// it, or if a required lookup failed.
    pub async fn retry(&self, source: &Source, id: QuarantineId) -> Result<Option<Receipt>, IntakeError> {
        let Some(stored) = self.journal.quarantined(id).await? else { return Ok(None) };
        let mut incoming = Incoming::from(stored.message);
        let rejected = |rejection| IntakeError::Quarantined { id, rejection };
        let reading = self.read(source, &mut incoming).await.map_err(rejected)?;
        let receipt = self.append(source, &incoming, reading).await?.map_err(rejected)?;
        self.journal.release(id).await?;
        Ok(Some(receipt))
    }

    /// Parses a message.
    async fn read(&self, source: &Source, incoming: &mut Incoming) -> Result<ParsedMessage, Rejection> {
        self.parse(incoming.body.len(), || source.read(incoming)).await
    }

    /// Parses a body of so many bytes. For a large one, other tasks leave the thread before, so that none of them waits, and
    /// one is parsed for each core at a time.
    pub async fn parse<T>(&self, bytes: usize, parse: impl FnOnce() -> T) -> T {
        let has_threads = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if bytes <= SMALL_BYTES || !has_threads {
            return parse();
        }
        // The semaphore is never closed.
        let _parser = self.parsers.acquire().await;
        block_in_place(parse)
    }

    /// Appends the drafts of a message, unless they exceed a limit.
    async fn append(
        &self,
        source: &Source,
        incoming: &Incoming,
        reading: ParsedMessage,
    ) -> Result<Result<Receipt, Rejection>, IntakeError> {
        let mut message = ReadMessage::new(source, incoming, reading);
        source.enrich(&mut message.submission.drafts, Instant::now(), WaitPolicy::OneRequest).await?;
        let (mut checked, refused) = CheckedMessages::check(source, [message]);
        if let Some(rejection) = refused.into_values().next() {
            return Ok(Err(rejection));
        }
        let mut outcomes = vec![Vec::new()];
        if let Some(submission) = checked.submissions.pop().filter(|submission| !submission.drafts.is_empty()) {
            let span = tracing::debug_span!("append", drafts = submission.drafts.len());
            outcomes = vec![self.journal.append(submission).instrument(span).await?];
        }
        let (mut receipts, mut refused) = self.receipts(source, checked, outcomes);
        match (receipts.pop(), refused.pop_first()) {
            (Some(receipt), _) => Ok(Ok(receipt)),
            (None, Some((_, rejection))) => Ok(Err(rejection)),
            // The journal replies to every message.
            (None, None) => Err(JournalError::Closed.into()),
        }
    }
}

fn log_accepted(source: &Source, receipt: &Receipt) {
    for AcceptedChange { seq, id } in receipt.accepted() {
        tracing::debug!(source = %source.name(), change = %id, seq = seq.0, "change appended to the journal");
    }
}

/// Logs one line for messages that are in the quarantine, with the rejection of the first. A line for each message would let
/// one source fill the log.
fn log_quarantined(source: &Source, ids: &[QuarantineId], rejection: &Rejection) {
    let source = source.name();
    match ids {
        [] => {}
        [id] => tracing::warn!(%source, quarantine = %id, %rejection, "message quarantined"),
        [first, .., last] => tracing::warn!(
            %source, messages = ids.len(), quarantine = %first, last = %last, %rejection,
            "messages quarantined; the rejection is that of the first"
        ),
    }
}

fn quarantine_entry(source: &Source, incoming: Incoming, rejection: &Rejection) -> NewQuarantinedMessage {
    let kept_headers = [source.kind.headers, &ROUTE_HEADERS].concat();
    let headers = incoming.headers.with_prefixes(&kept_headers);
    let headers = headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    NewQuarantinedMessage {
        source: source.name().clone(),
        received: Timestamp::now(),
        content_type: incoming.content_type.map(Text::from),
        headers,
        body: incoming.body,
        location: rejection.location.to_string().into(),
        reason: rejection.reason.as_str().into(),
    }
}
