//! What goes through one connection: messages are gathered and read on one side, and written and
//! acknowledged on the other, at the same time.

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

use super::{Acknowledging, Arrivals, BASE_WAIT, Broker, BrokeredSource, Message, Opened};
use crate::{
    broker::ConnectionState,
    intake::{Arrived, Batch},
    retry::Backoff,
};

/// Longest wait for a journal that cannot be written.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many batches may have been read and wait to be written: they are written together. The broker sends
/// no more than the prefetch, of which one batch is so large a part at the most.
const BATCHES: u16 = 8;

/// How many bytes go into one batch, if it has more messages than one.
const BATCH_BYTES: usize = 1024 * 1024;

/// How long a connection that failed while something was acknowledged is read on, for the cause of it.
const CAUSE: Duration = Duration::from_secs(1);

/// What one connection does for the source.
pub(super) struct Session {
    /// Number of messages that the broker sends before one is acknowledged.
    pub(super) prefetch: u16,
    /// Number of messages after which the session ends, so that the next one has another prefetch.
    last: Option<u64>,
    acknowledged: AtomicU64,
    /// Whether the beginning of the session is not logged, since many before it failed in the same way.
    is_quiet: AtomicBool,
}

impl Session {
    pub(super) fn new(prefetch: u16, last: Option<u64>, is_quiet: bool) -> Self {
        Self { prefetch, last, acknowledged: AtomicU64::new(0), is_quiet: AtomicBool::new(is_quiet) }
    }

    /// Number of messages that were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Notes acknowledged messages, and returns whether they are the first after a trouble that was logged once.
    fn note(&self, messages: usize) -> bool {
        self.acknowledged.fetch_add(messages as u64, Ordering::Relaxed);
        messages > 0 && self.is_quiet.swap(false, Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.last.is_some_and(|last| self.acknowledged() >= last)
    }
}

/// A message of a broker.
type MessageOf<B> = <<B as Broker>::Arrivals as Arrivals>::Message;

/// What it is acknowledged by.
type MarkOf<B> = <MessageOf<B> as Message>::Mark;

/// Messages that were read, and what they are acknowledged by.
pub(super) struct Taken<M> {
    pub(super) batch: Batch,
    pub(super) marks: Vec<M>,
}

impl<B: Broker> BrokeredSource<B> {
    /// Reads until the connection fails, the session is over, or `stop` is cancelled and what was taken is done.
    pub(super) async fn read(
        &self,
        Opened { mut arrivals, acknowledging, .. }: Opened<B::Arrivals, B::Acknowledging>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let (hand_over, handed) = mpsc::channel(usize::from(BATCHES));
        let warn = |warning| self.warn(warning);
        let mut is_read = true;
        let mut ended = {
            let mut gathering = std::pin::pin!(self.gather(&mut arrivals, hand_over, session, stop));
            let mut writing = std::pin::pin!(self.look_up_and_write(&acknowledging, handed, session, stop));
            let working = async {
                tokio::select! {
                    gathered = &mut gathering => {
                        is_read = false;
                        if let Err(error) = &gathered {
                            self.status.broke(&error.to_string());
                        }
                        // What was taken before the end is written first: if the queue was deleted, nobody else has it.
                        let written = writing.await;
                        gathered.and(written)
                    }
                    written = &mut writing => written,
                }
            };
            // Also while nothing is read, since the journal cannot be written.
            tokio::select! {
                worked = working => worked,
                never = acknowledging.keep_alive(&warn) => match never {},
            }
        };
        if let (Err(error), true) = (&mut ended, is_read)
            && let Some(cause) = cause::<B>(&mut arrivals).await
        {
            *error = cause;
        }
        B::close(arrivals, acknowledging).await;
        ended
    }

    /// Takes what comes, and hands it over in batches as large as what is there.
    async fn gather(
        &self,
        arrivals: &mut B::Arrivals,
        hand_over: mpsc::Sender<Taken<MarkOf<B>>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let most = usize::from(session.prefetch.div_ceil(BATCHES));
        while let Some(first) = stop.run_until_cancelled(arrivals.next()).await {
            let mut bytes = 0;
            let (mut messages, mut marks) = (Vec::new(), Vec::new());
            let mut next = Some(first);
            let mut ended = Ok(());
            while let Some(arrived) = next.take() {
                match arrived {
                    Ok(message) => {
                        bytes += message.size();
                        marks.push(message.mark());
                        messages.push(message);
                    }
                    Err(error) => ended = Err(error),
                }
                if ended.is_ok() && messages.len() < most && bytes < BATCH_BYTES {
                    next = arrivals.next().now_or_never();
                }
            }
            if !messages.is_empty()
                && hand_over.send(Taken { batch: self.read_all(messages).await, marks }).await.is_err()
            {
                // The other side has failed, and tells why, unless the reason came here.
                return ended;
            }
            ended?;
        }
        // What comes after this is not taken, and stays with the broker.
        arrivals.end().await
    }

    async fn read_all(&self, messages: Vec<MessageOf<B>>) -> Batch {
        let (source, largest) = (Arc::clone(&self.source), self.largest);
        let read = move || {
            let arrived = messages.into_iter().map(|message| message.arrived(largest, source.name()));
            let arrived: Vec<Arrived> = arrived.collect();
            Batch::read(&source, arrived)
        };
        #[expect(clippy::expect_used, reason = "a panic of the dialect is caught within, and nothing aborts the task")]
        tokio::task::spawn_blocking(read).await.expect("reading ends by itself")
    }

    /// Has the repository asked about what was taken, where it is, and writes it.
    async fn look_up_and_write(
        &self,
        acknowledging: &B::Acknowledging,
        handed: mpsc::Receiver<Taken<MarkOf<B>>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        if self.source.waits().is_none() {
            return self.write(acknowledging, handed, session, stop).await;
        }
        let (hand_over, looked_up) = mpsc::channel(usize::from(BATCHES));
        let mut writing = std::pin::pin!(self.write(acknowledging, looked_up, session, stop));
        tokio::select! {
            written = &mut writing => written,
            () = self.look_up(handed, hand_over, stop) => writing.await,
        }
    }

    /// Writes what was taken, and acknowledges it. What has been read while the disk was waited for is written
    /// together, so that a slow disk makes for larger batches. They go to the journal without waiting until
    /// the acknowledgement of those before is on its way.
    async fn write(
        &self,
        acknowledging: &B::Acknowledging,
        mut handed: mpsc::Receiver<Taken<MarkOf<B>>>,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), B::Error> {
        let mut written = Vec::new();
        loop {
            let acknowledged = self.acknowledge(acknowledging, &written, session);
            let writing = async {
                let Taken { mut batch, mut marks } = handed.recv().await?;
                while let Ok(next) = handed.try_recv() {
                    batch.extend(next.batch);
                    marks.extend(next.marks);
                }
                self.write_one(&mut batch, stop).await.then_some(marks)
            };
            let (acknowledged, next) = tokio::join!(acknowledged, writing);
            acknowledged?;
            match next {
                Some(marks) => written = marks,
                None => return Ok(()),
            }
            if session.is_over() {
                return self.acknowledge(acknowledging, &written, session).await;
            }
        }
    }

    async fn acknowledge(
        &self,
        acknowledging: &B::Acknowledging,
        written: &[MarkOf<B>],
        session: &Session,
    ) -> Result<(), B::Error> {
        if written.is_empty() {
            return Ok(());
        }
        acknowledging.acknowledge(written).await?;
        if session.note(written.len()) {
            tracing::info!(source = %self.source.name(), "the source is read again");
        }
        Ok(())
    }

    /// Tries until the batch is on disk; says whether it is. It gives up when the gateway is stopping.
    async fn write_one(&self, batch: &mut Batch, stop: &CancellationToken) -> bool {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_PAUSE);
        let mut paused = false;
        while let Err(error) = self.intake.accept_batch(&self.source, batch).await {
            let again = backoff.next_wait();
            self.status.failed(ConnectionState::Paused, &error.to_string(), again);
            if !paused {
                tracing::error!(source = %self.source.name(), %error, "the source is not read on: the journal cannot be written");
            }
            paused = true;
            let read_again = async {
                tokio::time::sleep(again).await;
                batch.look_up(&self.source).await;
            };
            if stop.run_until_cancelled(read_again).await.is_none() {
                return false;
            }
        }
        if paused {
            self.status.is(ConnectionState::Connected);
            tracing::info!(source = %self.source.name(), "the journal can be written again: the source is read on");
        }
        true
    }
}

/// Reads on for the error that ended the connection, where something else failed because of it. Messages that come
/// before it are not acknowledged, and come again.
async fn cause<B: Broker>(arrivals: &mut B::Arrivals) -> Option<B::Error> {
    let reading = async {
        loop {
            if let Err(error) = arrivals.next().await {
                return error;
            }
        }
    };
    tokio::time::timeout(CAUSE, reading).await.ok()
}

#[cfg(test)]
mod tests;
