//! Session over one connection: one side collects and parses messages, while the other side writes and
//! acknowledges them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BASE_WAIT, Broker, OpenConnection, SourceConsumer};
use crate::{
    broker::ConnectionState,
    intake::{Batch, ReceivedMessage},
    retry::Backoff,
};

/// Maximum wait before a failed write to the journal is repeated.
const LONGEST_WRITE_WAIT: Duration = Duration::from_secs(5);

/// Number of parsed batches that may wait for the journal; they are written together. A batch has at most this
/// fraction of the prefetch, so together they fit into it.
const WAITING_BATCHES: u16 = 8;

/// Size limit of a batch with more than one message, in bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// Time for reading the error that ended a connection, after an acknowledgement has failed.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(1);

/// State of one connection's work for the source.
pub(super) struct Session {
    /// Maximum number of unacknowledged messages.
    pub(super) prefetch: u16,
    /// Number of acknowledged messages after which the session ends, so that the next one can have another
    /// prefetch.
    last: Option<u64>,
    acknowledged: AtomicU64,
    /// True if the start of the session is not logged, because earlier sessions failed in the same way.
    is_quiet: AtomicBool,
}

impl Session {
    pub(super) fn new(prefetch: u16, last: Option<u64>, is_quiet: bool) -> Self {
        Self { prefetch, last, acknowledged: AtomicU64::new(0), is_quiet: AtomicBool::new(is_quiet) }
    }

    /// Returns the number of acknowledged messages.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Counts acknowledged messages, and returns true if they are the first ones after a logged failure.
    fn note(&self, messages: usize) -> bool {
        self.acknowledged.fetch_add(messages as u64, Ordering::Relaxed);
        messages > 0 && self.is_quiet.swap(false, Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.last.is_some_and(|last| self.acknowledged() >= last)
    }
}

/// A batch of parsed messages and the tokens that acknowledge them.
pub(super) struct ReadBatch<T> {
    pub(super) batch: Batch,
    pub(super) ack_tokens: Vec<T>,
}

impl<B: Broker> SourceConsumer<B> {
    /// Reads until the connection fails, the session is over, or `stop` is cancelled and all messages that
    /// were read are written.
    pub(super) async fn read(
        &self,
        OpenConnection { mut reader, acker, .. }: OpenConnection<B::Reader, B::Acker>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let (forward, incoming) = mpsc::channel(usize::from(WAITING_BATCHES));
        let warn = |warning| self.warn(warning);
        let mut is_reading = true;
        let mut result = {
            let mut collecting = std::pin::pin!(self.collect(&mut reader, forward, session, stop));
            let mut writing = std::pin::pin!(self.enrich_and_write(&acker, incoming, session, stop));
            let working = async {
                tokio::select! {
                    collected = &mut collecting => {
                        is_reading = false;
                        if let Err(error) = &collected {
                            self.status.connection_lost(&error.to_string());
                        }
                        // Write the messages from before the failure: if the queue was deleted, no one else
                        // has them.
                        let written = writing.await;
                        collected.and(written)
                    }
                    written = &mut writing => written,
                }
            };
            // Keep the connection alive also while the journal cannot be written and nothing is read.
            tokio::select! {
                worked = working => worked,
                never = B::keep_alive(&acker, &warn) => match never {},
            }
        };
        if let (Err(error), true) = (&mut result, is_reading)
            && let Some(read_cause) = read_cause::<B>(&mut reader).await
        {
            *error = read_cause;
        }
        B::close(reader, acker).await;
        result
    }

    /// Collects messages that are available without waiting into batches, and forwards them.
    async fn collect(
        &self,
        reader: &mut B::Reader,
        forward: mpsc::Sender<ReadBatch<B::AckToken>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let max_messages = usize::from(session.prefetch.div_ceil(WAITING_BATCHES));
        while let Some(first) = stop.run_until_cancelled(B::next(reader)).await {
            let mut bytes = 0;
            let (mut messages, mut ack_tokens) = (Vec::new(), Vec::new());
            let mut next = Some(first);
            let mut result = Ok(());
            while let Some(received) = next.take() {
                match received {
                    Ok((ack_token, message)) => {
                        bytes += B::size(&message);
                        ack_tokens.push(ack_token);
                        messages.push(message);
                    }
                    Err(error) => result = Err(error),
                }
                if result.is_ok() && messages.len() < max_messages && bytes < BATCH_BYTES {
                    next = B::next(reader).now_or_never();
                }
            }
            if !messages.is_empty()
                && forward.send(ReadBatch { batch: self.read_all(messages).await, ack_tokens }).await.is_err()
            {
                // The writer has failed and returns the reason, unless this side has it.
                return result;
            }
            result?;
        }
        // Messages that arrive after this stay with the broker.
        B::end(reader).await
    }

    async fn read_all(&self, messages: Vec<B::Message>) -> Batch {
        let (source, max_body_bytes) = (Arc::clone(&self.source), self.max_body_bytes);
        let read = move || {
            let received = messages.into_iter().map(|message| B::receive(message, max_body_bytes, source.name()));
            let received: Vec<ReceivedMessage> = received.collect();
            Batch::read(&source, received)
        };
        #[expect(clippy::expect_used, reason = "the batch catches panics of the dialect, and nothing aborts the task")]
        tokio::task::spawn_blocking(read).await.expect("parsing a batch does not panic")
    }

    /// Enriches batches if the source has lookups, and writes them.
    async fn enrich_and_write(
        &self,
        acker: &B::Acker,
        incoming: mpsc::Receiver<ReadBatch<B::AckToken>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        if self.source.waiting_events().is_none() {
            return self.write(acker, incoming, session, stop).await;
        }
        let (forward, enriched) = mpsc::channel(usize::from(WAITING_BATCHES));
        let mut writing = std::pin::pin!(self.write(acker, enriched, session, stop));
        tokio::select! {
            written = &mut writing => written,
            () = self.enrich(incoming, forward, stop) => writing.await,
        }
    }

    /// Writes batches and acknowledges them. Batches that were parsed during a write are written together, so
    /// a slow disk leads to larger batches. The next write does not wait for the acknowledgement of the
    /// previous one.
    async fn write(
        &self,
        acker: &B::Acker,
        mut incoming: mpsc::Receiver<ReadBatch<B::AckToken>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let mut written = Vec::new();
        loop {
            let acknowledged = self.acknowledge(acker, &written, session);
            let writing = async {
                let ReadBatch { mut batch, mut ack_tokens } = incoming.recv().await?;
                while let Ok(next) = incoming.try_recv() {
                    batch.extend(next.batch);
                    ack_tokens.extend(next.ack_tokens);
                }
                self.write_one(&mut batch, B::position(acker, &ack_tokens), stop).await.then_some(ack_tokens)
            };
            let (acknowledged, next) = tokio::join!(acknowledged, writing);
            acknowledged?;
            match next {
                Some(ack_tokens) => written = ack_tokens,
                None => return Ok(()),
            }
            if session.is_over() {
                return self.acknowledge(acker, &written, session).await;
            }
        }
    }

    async fn acknowledge(&self, acker: &B::Acker, written: &[B::AckToken], session: &Session) -> Result<(), B::Error> {
        if written.is_empty() {
            return Ok(());
        }
        B::acknowledge(acker, written).await?;
        if session.note(written.len()) {
            tracing::info!(source = %self.source.name(), "reading the source again");
        }
        Ok(())
    }

    /// Repeats the write until the batch is on disk. Returns false if the gateway stops before.
    async fn write_one(&self, batch: &mut Batch, position: Option<Arc<str>>, stop: &CancellationToken) -> bool {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WRITE_WAIT);
        let mut paused = false;
        while let Err(error) = self.intake.accept_batch(&self.source, batch, position.clone()).await {
            let wait = backoff.next_wait();
            self.status.record_failure(ConnectionState::Stalled, &error.to_string(), wait);
            // The duty that is lost ends the session in a moment.
            if error.is_lost_duty() {
                tracing::info!(source = %self.source.name(), %error, "a batch was not written");
            } else if !paused {
                tracing::error!(source = %self.source.name(), %error, "cannot write the journal; the source is paused");
            }
            paused = true;
            let read_again = async {
                tokio::time::sleep(wait).await;
                batch.enrich(&self.source).await;
            };
            if stop.run_until_cancelled(read_again).await.is_none() {
                return false;
            }
        }
        if paused {
            self.status.set_state(ConnectionState::Connected);
            tracing::info!(source = %self.source.name(), "the journal can be written again; the source resumes");
        }
        true
    }
}

/// Reads the error that ended the connection, after the acknowledging side has failed because of it. Messages
/// that arrive before the error are not acknowledged, so the broker delivers them again.
async fn read_cause<B: Broker>(reader: &mut B::Reader) -> Option<B::Error> {
    let reading = async {
        loop {
            if let Err(error) = B::next(reader).await {
                return error;
            }
        }
    };
    tokio::time::timeout(CAUSE_TIMEOUT, reading).await.ok()
}

#[cfg(test)]
mod tests;
