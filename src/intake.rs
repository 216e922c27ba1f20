//! The only door to the journal: bytes from a source go through its dialect, and what comes out is
//! appended; what no dialect can read goes to the quarantine. When [`Intake::accept`] returns,
//! either is on disk. A [`Batch`] is for many messages at once, where their order counts.

mod batch;
mod bounds;
mod follow_up;
mod looking;
mod receipt;
mod seed;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use tracing::Instrument;

pub use crate::model::{EventId, SourceName};
pub use batch::{Arrived, Batch};
pub use follow_up::FollowUp;
pub use looking::{INCOMPLETE, LookedUp, WAITING};
pub use receipt::{Accepted, Receipt, Told};
pub use seed::SeedError;

use crate::{
    format::{Dialect, DialectKind, Headers, InvalidSettings, Limits, Message, Reading, Redacted, Rejection, Repeats},
    journal::{
        DuplicatePolicy, Journal, JournalError, Submission,
        quarantine::{NewQuarantinedMessage, QuarantineId},
        settle::SourcePolicy,
        store::{EventIdentity, EventKey, event_key},
    },
    lookup::{Lookup, LookupError},
    model::{Draft, Timestamp},
};
use looking::{Looking, Patience};

/// The metric of messages that were taken in.
pub const EVENTS: &str = "tidings_events_total";

/// A configured origin of events, as the intake sees it: a name and a dialect, whatever the transport.
pub struct Source {
    policy: Arc<SourcePolicy>,
    kind: &'static DialectKind,
    dialect: Box<dyn Dialect>,
    limits: Limits,
    counts: Counts,
    /// Its repository, if it is asked.
    looking: Option<Looking>,
    /// The series of [`EVENTS`], by outcome: to look for one costs more than to count.
    series: BTreeMap<&'static str, metrics::Counter>,
}

/// How many messages of a source have had which outcome since the gateway started.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Messages that told of at least one change.
    pub accepted: AtomicU64,
    /// Messages that were in the journal already.
    pub duplicate: AtomicU64,
    /// Messages that changed nothing.
    pub unchanged: AtomicU64,
    /// Messages that no dialect could read.
    pub quarantined: AtomicU64,
}

/// One message as a transport hands it over.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The media type that the sender gave.
    pub content_type: Option<String>,
    /// The transport's headers.
    pub headers: Headers,
    /// The bytes.
    pub body: Bytes,
    /// The transport's own identifier of the message, for dialects whose messages have none.
    pub transport_id: Option<EventId>,
    /// Whether the transport says that it may have delivered the message before (AMQP's
    /// `redelivered`).
    pub redelivered: bool,
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// Its dialect could not read it; it is in the quarantine.
    #[error("{rejection} (kept as {id} in the quarantine)")]
    Quarantined {
        /// Where it is kept.
        id: QuarantineId,
        /// Why it could not be read.
        rejection: Rejection,
    },
    /// Nothing could be written: the message must be sent again.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its repository must answer before it is taken, and does not: the message must be sent again.
    #[error(transparent)]
    Unanswered(#[from] LookupError),
}

/// Beginnings of the names of the headers that say how a message came. They are kept in the quarantine
/// whatever the dialect reads.
const ROUTE: [&str; 3] = ["routing-key", "exchange", "destination"];

impl Source {
    /// Sets up a source's dialect.
    ///
    /// # Errors
    /// When the settings do not fit the dialect.
    pub fn new(
        name: SourceName,
        kind: &'static DialectKind,
        settings: serde_json::Value,
        metadata_changes: bool,
        limits: Limits,
    ) -> Result<Self, InvalidSettings> {
        let dialect = (kind.build)(settings, limits)?;
        let policy = Arc::new(SourcePolicy { name, metadata_changes });
        let series = ["accepted", "duplicate", "unchanged", "quarantined"].map(|outcome| {
            let name = policy.name.to_string();
            let counter = metrics::counter!(EVENTS, "source" => name, "dialect" => kind.name, "outcome" => outcome);
            // A rate needs to see the zero from which it rises.
            counter.increment(0);
            (outcome, counter)
        });
        let (counts, series) = (Counts::default(), series.into());
        Ok(Self { policy, kind, dialect, limits, counts, looking: None, series })
    }

    /// The same source, whose repository is asked what its messages do not say.
    #[must_use]
    pub fn looking_up(mut self, lookup: Lookup) -> Self {
        self.looking = Some(Looking::new(self.name().as_str(), lookup));
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &SourceName {
        &self.policy.name
    }

    /// Its dialect.
    #[must_use]
    pub fn kind(&self) -> &'static DialectKind {
        self.kind
    }

    /// What has become of its messages since the gateway started.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reads one message, after it has taken out of it what must not be kept.
    fn read(&self, incoming: &mut Incoming) -> Result<Reading, Rejection> {
        match self.kind.redact.map(|redact| redact(&incoming.body)) {
            None | Some(Redacted::AsItCame) => self.read_redacted(incoming),
            Some(Redacted::Without(body)) => {
                incoming.body = body.into();
                self.read_redacted(incoming)
            }
            Some(Redacted::Blanked(body, rejection)) => {
                incoming.body = body.into();
                Err(rejection)
            }
            Some(Redacted::Opaque) => {
                let read = self.read_redacted(incoming);
                if read.is_err() {
                    incoming.body = Bytes::new();
                }
                read
            }
        }
    }

    /// Has the dialect read a message without secrets.
    fn read_redacted(&self, incoming: &Incoming) -> Result<Reading, Rejection> {
        self.dialect.read(&Message {
            content_type: incoming.content_type.as_deref(),
            headers: &incoming.headers,
            body: &incoming.body,
        })
    }

    /// Those headers that the dialect reads. Others say nothing about the event, and may be credentials.
    fn headers_read(&self, incoming: &Incoming) -> Vec<(String, String)> {
        let headers = incoming.headers.only(self.kind.headers);
        headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// What makes a repeat of this draft known: the source's own identifier, the transport's, or the
    /// message itself. `None` where the same bytes may be another event.
    fn key(
        &self,
        incoming: &Incoming,
        headers: &[(String, String)],
        draft: &Draft,
        ordinal: usize,
    ) -> Option<EventKey> {
        let told = draft.id.map(|id| id.to_string());
        let own = draft.event_id.as_ref().map(EventId::as_str);
        let given = told.as_deref().or(own).or(incoming.transport_id.as_ref().map(EventId::as_str));
        let identity = match (given, self.kind.repeats) {
            (Some(id), _) => EventIdentity::Id(id),
            (None, Repeats::SameBody | Repeats::SameBodyUnlessNews) => {
                EventIdentity::Message { headers, body: &incoming.body }
            }
            (None, Repeats::Unknowable) => return None,
        };
        Some(event_key(self.name(), identity, ordinal))
    }

    /// What a message tells, for the journal; and if it tells nothing, why.
    fn submission(&self, incoming: &Incoming, reading: Reading) -> (Submission, Option<&'static str>) {
        let (drafts, nothing) = match reading {
            Reading::Drafts(drafts) => (drafts.into_vec(), None),
            Reading::Nothing(reason) => (Vec::new(), Some(reason)),
        };
        let headers = self.headers_read(incoming);
        let keyed = |(ordinal, draft): (usize, Draft)| (self.key(incoming, &headers, &draft, ordinal), draft);
        let drafts = drafts.into_iter().enumerate().map(keyed).collect();
        let duplicate_policy = self.duplicate_policy(incoming);
        (Submission { policy: Arc::clone(&self.policy), drafts, duplicate_policy, completes: None }, nothing)
    }

    /// What it means that the key of a draft of this message is known.
    fn duplicate_policy(&self, incoming: &Incoming) -> DuplicatePolicy {
        let by_transport = incoming.redelivered || incoming.transport_id.is_some();
        match self.kind.repeats {
            Repeats::SameBodyUnlessNews if by_transport => DuplicatePolicy::RememberAll,
            Repeats::SameBodyUnlessNews => DuplicatePolicy::RememberAllUnlessNewState,
            Repeats::SameBody | Repeats::Unknowable => DuplicatePolicy::RememberChanges,
        }
    }

    fn count(&self, outcome: &'static str, messages: u64) {
        let count = match outcome {
            "accepted" => &self.counts.accepted,
            "duplicate" => &self.counts.duplicate,
            "quarantined" => &self.counts.quarantined,
            _ => &self.counts.unchanged,
        };
        count.fetch_add(messages, Ordering::Relaxed);
        if let Some(counter) = self.series.get(outcome) {
            counter.increment(messages);
        }
    }
}

/// The door.
#[derive(Clone)]
pub struct Intake {
    journal: Journal,
}

impl Intake {
    /// A door to that journal.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        Self { journal }
    }

    /// The number of the newest change in the journal.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.journal.head().0
    }

    /// Takes in one message; on return it is on disk, in the journal or in the quarantine.
    ///
    /// # Errors
    /// When the message could not be read and is in the quarantine, or when nothing could be
    /// written or its repository did not answer, and it must be sent again.
    pub async fn accept(&self, source: &Source, incoming: Incoming) -> Result<Receipt, IntakeError> {
        let span = tracing::info_span!("intake", source = %source.name());
        self.take(source, incoming).instrument(span).await
    }

    async fn take(&self, source: &Source, mut incoming: Incoming) -> Result<Receipt, IntakeError> {
        let taken = match source.read(&mut incoming) {
            Ok(reading) => self.append(source, &incoming, reading).await?,
            Err(rejection) => Err(rejection),
        };
        match taken {
            Ok(receipt) => Ok(receipt),
            Err(rejection) => {
                let message = to_quarantine(source, incoming, &rejection);
                let id = self.journal.quarantine_all(vec![message]).await?.pop().ok_or(JournalError::Closed)?;
                source.count("quarantined", 1);
                tell_quarantined(source, id, &rejection);
                Err(IntakeError::Quarantined { id, rejection })
            }
        }
    }

    /// Reads a message of the quarantine again, as after a change of settings or of the program, and
    /// takes it out of the quarantine if it can be read now. `None` when it is not there.
    ///
    /// # Errors
    /// When it still cannot be read (and stays as it is), or when nothing could be written, or its repository did not
    /// answer.
    pub async fn retry(&self, source: &Source, id: QuarantineId) -> Result<Option<Receipt>, IntakeError> {
        let Some(kept) = self.journal.quarantined(id).await? else { return Ok(None) };
        let mut incoming = Incoming {
            content_type: kept.message.content_type,
            headers: kept.message.headers.into_iter().collect(),
            body: kept.message.body,
            transport_id: None,
            redelivered: false,
        };
        let rejected = |rejection| IntakeError::Quarantined { id, rejection };
        let reading = source.read(&mut incoming).map_err(rejected)?;
        let receipt = self.append(source, &incoming, reading).await?.map_err(rejected)?;
        self.journal.release(id).await?;
        Ok(Some(receipt))
    }

    /// Appends what a message tells, unless it is past a bound.
    async fn append(
        &self,
        source: &Source,
        incoming: &Incoming,
        reading: Reading,
    ) -> Result<Result<Receipt, Rejection>, IntakeError> {
        let (mut submission, nothing) = source.submission(incoming, reading);
        source.look_up(&mut submission.drafts, Instant::now(), Patience::OfOneRequest).await?;
        if let Err(rejection) = source.check(&submission.drafts) {
            return Ok(Err(rejection));
        }
        let marked = looking::marked(&submission.drafts);
        let outcomes = if submission.drafts.is_empty() {
            Vec::new()
        } else {
            let span = tracing::debug_span!("append", drafts = submission.drafts.len());
            self.journal.append(submission).instrument(span).await?
        };
        if let Some(rejection) = self.refusal(&outcomes) {
            return Ok(Err(rejection));
        }
        source.note_incomplete(marked, &outcomes);
        let receipt = Receipt { outcomes, nothing };
        source.count(receipt.outcome(), 1);
        tell(source, &receipt);
        Ok(Ok(receipt))
    }
}

fn tell(source: &Source, receipt: &Receipt) {
    for Accepted { seq, id } in receipt.accepted() {
        tracing::debug!(source = %source.name(), change = %id, seq = seq.0, "a change is in the journal");
    }
}

fn tell_quarantined(source: &Source, id: QuarantineId, rejection: &Rejection) {
    tracing::warn!(source = %source.name(), quarantine = %id, %rejection, "a message went to the quarantine");
}

fn to_quarantine(source: &Source, incoming: Incoming, rejection: &Rejection) -> NewQuarantinedMessage {
    let kept = [source.kind.headers, &ROUTE].concat();
    let headers = incoming.headers.only(&kept);
    let headers = headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    NewQuarantinedMessage {
        source: source.name().clone(),
        received: Timestamp::now(),
        content_type: incoming.content_type,
        headers,
        body: incoming.body,
        location: rejection.place.to_string(),
        reason: rejection.reason.clone(),
    }
}
