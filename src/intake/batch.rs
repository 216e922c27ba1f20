//! Batches of messages from one source, for transports that acknowledge in batches and in order.
//!
//! Parsing uses the CPU and appending waits for the disk, so they are separate steps: the next batch is parsed
//! while the previous one is written. A batch is appended atomically. After a failed append the caller submits
//! the same batch again, so no message overtakes another.

mod items;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Incoming, Intake, Outcome, Source,
    enrichment::WaitPolicy,
    log_quarantined,
    outcomes::{CheckedMessages, ReadMessage, RefusedMessages},
    quarantine_entry,
};
use crate::{
    format::{Location, Redaction, Rejection},
    journal::{
        DraftOutcome, JournalError, Submission,
        harvest::{HarvestProgress, JobProgress, RunCounts, SourcePosition},
        quarantine::QuarantineId,
    },
};

/// A message that a transport has received and decoded.
#[derive(Clone, Debug)]
pub enum ReceivedMessage {
    /// The transport decoded the message; the dialect parses it.
    Readable(Incoming),
    /// The transport could not decode the message; it goes to the quarantine without being parsed.
    Unreadable {
        /// The message.
        incoming: Incoming,
        /// Reason why the transport could not decode it.
        rejection: Rejection,
        /// True if the body is still content-encoded, so that credentials in it cannot be found.
        encoded: bool,
    },
}

/// Messages of one source in the order of their arrival.
pub struct Batch {
    messages: Vec<ReceivedMessage>,
    /// Parsed messages that have not been submitted to the journal yet. `None` after a failed append.
    read: Option<Vec<EnrichableMessage>>,
    /// Time at which the newest message of the batch had arrived.
    since: Instant,
    rejected: Vec<(Incoming, Rejection)>,
    /// Positions of the messages that could not be read.
    unreadable: Vec<usize>,
    /// Number of messages that are in the quarantine already.
    quarantined: u64,
    /// Number of changes that are in the journal already, while the progress after them is not.
    changes: u64,
}

/// Progress of the source that is written with a batch.
#[derive(Clone)]
enum Progress {
    /// The broker records what was read.
    None,
    /// Progress of a harvest.
    Harvest(Box<HarvestProgress>),
    /// Position of a source whose broker does not record what was read.
    Position(SourcePosition),
    /// Progress of a source of datasets.
    Jobs(JobProgress),
}

/// Numbers of a batch that is on disk.
struct WrittenBatch {
    changes: u64,
    quarantined: u64,
}

/// A parsed message, and whether missing facts were looked up.
struct EnrichableMessage {
    message: ReadMessage,
    is_enriched: bool,
}

impl EnrichableMessage {
    async fn enrich(&mut self, source: &Source, since: Instant) {
        if !std::mem::replace(&mut self.is_enriched, true) {
            let drafts = &mut self.message.submission.drafts;
            // The error is dropped because, with an unbounded wait, a required lookup never fails.
            let _ = source.enrich(drafts, since, WaitPolicy::Unbounded).await;
        }
    }
}

impl Batch {
    /// Parses messages of `source`. The function does not wait, but it may use the CPU for a while.
    #[must_use]
    pub fn read(source: &Source, mut messages: Vec<ReceivedMessage>) -> Self {
        let (read, rejected, unreadable) = read_all(source, &mut messages);
        Self { messages, read: Some(read), since: Instant::now(), rejected, unreadable, quarantined: 0, changes: 0 }
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the positions of the messages that could not be read, in order.
    #[must_use]
    pub fn unreadable(&self) -> &[usize] {
        &self.unreadable
    }

    /// Drops the messages at these positions among those that could not be read, because the quarantine has them already.
    pub fn forget_unreadable(&mut self, known: &[usize]) {
        let mut positions = self.unreadable.iter();
        self.rejected.retain(|_| positions.next().is_none_or(|position| !known.contains(position)));
        self.unreadable.retain(|position| !known.contains(position));
    }

    /// Bodies that the quarantine will store for messages that could not be parsed.
    #[cfg(test)]
    pub(crate) fn rejected_bodies(&self) -> Vec<Bytes> {
        self.rejected.iter().map(|(incoming, _)| incoming.body.clone()).collect()
    }

    /// Looks up missing facts of each message in the repository of `source`, if lookups are on. Requests run
    /// concurrently up to the repository's limit. If the lookup is required, this waits until the repository
    /// responds. Messages whose append failed are parsed again first.
    pub async fn enrich(&mut self, source: &Source) {
        let read = self.read.get_or_insert_with(|| read_all(source, &mut self.messages).0);
        let each = read.iter_mut().map(|one| one.enrich(source, self.since));
        join_all(each).await;
    }

    /// Appends the messages of `next`, which arrived after these.
    pub fn extend(&mut self, next: Self) {
        self.messages.extend(next.messages);
        // If the append of either batch failed, all messages are parsed again.
        self.read = self.read.take().zip(next.read).map(|(mut read, next)| {
            read.extend(next);
            read
        });
        self.unreadable.clear();
        self.rejected.extend(next.rejected);
        self.quarantined += next.quarantined;
        self.changes += next.changes;
        self.since = self.since.max(next.since);
    }
}

/// Parses messages; returns those that could be read, the others, and the positions of the others.
fn read_all(
    source: &Source,
    messages: &mut [ReceivedMessage],
) -> (Vec<EnrichableMessage>, Vec<(Incoming, Rejection)>, Vec<usize>) {
    let (mut read, mut rejected, mut unreadable) = (Vec::with_capacity(messages.len()), Vec::new(), Vec::new());
    for (position, message) in messages.iter_mut().enumerate() {
        let rejection = match message {
            ReceivedMessage::Readable(incoming) => match read_one(source, incoming) {
                Ok(one) => {
                    read.push(one);
                    continue;
                }
                Err(rejection) => (incoming.clone(), rejection),
            },
            ReceivedMessage::Unreadable { incoming, rejection, encoded } => {
                redact(source, incoming, *encoded);
                (incoming.clone(), rejection.clone())
            }
        };
        rejected.push(rejection);
        unreadable.push(position);
    }
    (read, rejected, unreadable)
}

/// Removes and returns the messages that were refused after parsing. `refused` is keyed by position among the readable
/// messages. Refusals are rare, so messages are parsed again here instead of being cloned every time.
fn take_refused(
    source: &Source,
    messages: &mut Vec<ReceivedMessage>,
    mut refused: RefusedMessages,
) -> Vec<(Incoming, Rejection)> {
    let mut refused_messages = Vec::with_capacity(refused.len());
    let mut position = 0;
    messages.retain_mut(|message| {
        let ReceivedMessage::Readable(incoming) = message else { return true };
        if read_one(source, incoming).is_err() {
            return true;
        }
        let rejection = refused.remove(&position);
        position += 1;
        let is_refused = rejection.is_some();
        refused_messages.extend(rejection.map(|rejection| (incoming.clone(), rejection)));
        !is_refused
    });
    refused_messages
}

/// Parses one message and catches a panic of the dialect. Without that, the broker would deliver the message
/// again and again, and no later message would ever be processed.
fn read_one(source: &Source, incoming: &mut Incoming) -> Result<EnrichableMessage, Rejection> {
    let reading = catch_unwind(AssertUnwindSafe(|| source.read(incoming))).unwrap_or_else(|_| {
        redact(source, incoming, false);
        let reason =
            "the dialect crashed on this message, which is a bug of Tidings; please report it with the message";
        Err(Rejection::unprocessable(Location::Message, reason))
    })?;
    Ok(EnrichableMessage { message: ReadMessage::new(source, incoming, reading), is_enriched: false })
}

/// Removes credentials from a body that no dialect parses. If they cannot be located, for example in a body
/// that is still content-encoded, the whole body is dropped.
fn redact(source: &Source, incoming: &mut Incoming, encoded: bool) {
    let Some(redact) = source.kind.redact else { return };
    if encoded {
        incoming.body = Bytes::new();
        return;
    }
    match catch_unwind(AssertUnwindSafe(|| redact(&incoming.body))) {
        Ok(Redaction::Unchanged) => {}
        Ok(Redaction::Removed(body) | Redaction::Blanked(body, _)) => incoming.body = body.into(),
        Ok(Redaction::Opaque) | Err(_) => incoming.body = Bytes::new(),
    }
}

impl Intake {
    /// Accepts a batch. On return all of its messages are on disk, in the journal or in the quarantine. If the broker does
    /// not record what was read, `position` is the source's position after the batch. The journal writes it in the
    /// transaction of the changes. Messages that cannot be read are in the quarantine before the position is written, so
    /// a crash in between loses none.
    ///
    /// # Errors
    /// Fails if the batch could not be written. The caller must submit the same batch again, before any other
    /// batch of the source. Messages of the batch that were already written are not written twice.
    pub async fn accept_batch(
        &self,
        source: &Source,
        batch: &mut Batch,
        position: Option<Arc<str>>,
    ) -> Result<(), JournalError> {
        let at = |position| Progress::Position(SourcePosition { source: source.name().clone(), position });
        self.write_batch(source, batch, position.map_or(Progress::None, at)).await.map(drop)
    }

    /// Returns the position that was last written for the source.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn position(&self, source: &Source) -> Result<Option<Arc<str>>, JournalError> {
        self.journal.source_position(source.name().clone()).await
    }

    /// Writes the position of the source, without a message.
    ///
    /// # Errors
    /// Fails if the position could not be written.
    pub async fn write_position(&self, source: &Source, position: Arc<str>) -> Result<(), JournalError> {
        let position = SourcePosition { source: source.name().clone(), position };
        self.journal.append_positioned(Vec::new(), position).await.map(drop)
    }

    /// Accepts the records of one page of a harvest, and writes the progress of the harvest in the same transaction.
    /// `progress` counts the page and its records already. Records that cannot be read are in the quarantine before the
    /// progress is written, so a crash in between loses none. Returns the counts of the run including this page.
    ///
    /// # Errors
    /// Fails if the page could not be written. The caller must submit the same page again.
    pub async fn accept_page(
        &self,
        source: &Source,
        batch: &mut Batch,
        progress: HarvestProgress,
    ) -> Result<RunCounts, JournalError> {
        let mut counts = progress.run.counts;
        let WrittenBatch { changes, quarantined } =
            self.write_batch(source, batch, Progress::Harvest(Box::new(progress))).await?;
        counts.changes += changes;
        counts.quarantined += quarantined;
        Ok(counts)
    }

    /// Accepts the results of jobs, and writes the progress of their source in the same transaction, as
    /// [`accept_page`](Self::accept_page) does for a page.
    ///
    /// # Errors
    /// Fails if the results could not be written. The caller must submit the same ones again.
    pub async fn accept_jobs(
        &self,
        source: &Source,
        batch: &mut Batch,
        progress: JobProgress,
    ) -> Result<(), JournalError> {
        self.write_batch(source, batch, Progress::Jobs(progress)).await.map(drop)
    }

    async fn write_batch(
        &self,
        source: &Source,
        batch: &mut Batch,
        progress: Progress,
    ) -> Result<WrittenBatch, JournalError> {
        // After a failed append the messages are parsed again, because failures are rare and cloning every
        // message is not free.
        let read = batch.read.take().unwrap_or_else(|| read_all(source, &mut batch.messages).0);
        let (mut checked, refused) = CheckedMessages::check(source, read.into_iter().map(|one| one.message));
        if !refused.is_empty() {
            batch.rejected.extend(take_refused(source, &mut batch.messages, refused));
        }
        // Before the append, because no record is read again once the position is past it.
        self.quarantine(source, batch).await?;
        let withheld = progress.clone();
        let submissions = std::mem::take(&mut checked.submissions);
        let outcomes = self.append_messages(submissions, progress, batch).await?;
        let (receipts, refused) = self.receipts(source, checked, outcomes);
        let changes: u64 = receipts.iter().map(|receipt| receipt.accepted().count() as u64).sum();
        let is_withheld = !refused.is_empty();
        if is_withheld {
            batch.rejected.extend(take_refused(source, &mut batch.messages, refused));
        }
        // The journal has these messages now. If the quarantine fails below, only the rejected ones are
        // retried.
        batch.messages.clear();
        batch.read = Some(Vec::new());
        batch.changes += changes;
        if is_withheld {
            self.quarantine(source, batch).await?;
            self.append_messages(Vec::new(), withheld, batch).await?;
        }
        let (changes, quarantined) = (std::mem::take(&mut batch.changes), std::mem::take(&mut batch.quarantined));
        Ok(WrittenBatch { changes, quarantined })
    }

    /// Appends messages with the progress after them, which counts the changes and messages of the batch that are written
    /// already. The journal withholds the progress if it refuses a message.
    async fn append_messages(
        &self,
        submissions: Vec<Submission>,
        progress: Progress,
        batch: &Batch,
    ) -> Result<Vec<Vec<DraftOutcome>>, JournalError> {
        match progress {
            Progress::Harvest(mut progress) => {
                progress.run.counts.changes += batch.changes;
                progress.run.counts.quarantined += batch.quarantined;
                self.journal.append_page(submissions, *progress).await
            }
            Progress::Position(position) => self.journal.append_positioned(submissions, position).await,
            Progress::Jobs(progress) => self.journal.append_results(submissions, progress).await,
            Progress::None if submissions.is_empty() => Ok(Vec::new()),
            Progress::None => self.journal.append_batch(submissions).await,
        }
    }

    /// Puts the rejected messages of a batch into the quarantine.
    async fn quarantine(&self, source: &Source, batch: &mut Batch) -> Result<(), JournalError> {
        if batch.rejected.is_empty() {
            return Ok(());
        }
        let mut sets = source.lock_rejected_sets().clone();
        let kept = sets.bounded(&batch.rejected).into_iter();
        let entries: Vec<_> =
            kept.map(|(incoming, rejection)| quarantine_entry(source, incoming, &rejection)).collect();
        let mut ids: Vec<QuarantineId> = Vec::new();
        if !entries.is_empty() {
            ids = self.journal.quarantine_all(entries).await?;
        }
        // After a failure the same messages come again.
        *source.lock_rejected_sets() = sets;
        let rejected = std::mem::take(&mut batch.rejected);
        batch.quarantined += rejected.len() as u64;
        source.count(Outcome::Quarantined, rejected.len() as u64);
        if let Some((_, rejection)) = rejected.first() {
            log_quarantined(source, &ids, rejection);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
