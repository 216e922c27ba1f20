//! A queue of a broker: messages are taken in the order in which they come, written in batches, and
//! acknowledged when they are on disk, in the journal or in the quarantine.
//!
//! What the connection does is supervised here: after any failure it is let go of, and a new one is made
//! after a while, for as long as the gateway runs. What was not acknowledged comes again, and makes no
//! second change. As long as the journal cannot be written nothing is acknowledged, and the broker sends
//! no more than the prefetch.

mod arrival;
mod session;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    amqp::{AmqpError, Backoff, ConnectionState, ConnectionStatus, QueueSettings},
    intake::{Intake, Source},
};

/// A source that is a queue.
pub struct QueueSource {
    /// The door.
    pub intake: Intake,
    /// The source.
    pub source: Arc<Source>,
    /// The queue.
    pub queue: QueueSettings,
    /// The largest message that a dialect is given, in bytes, inflated; a larger one goes to the quarantine.
    pub largest: usize,
    /// Where its state is told.
    pub status: Arc<ConnectionStatus>,
}

impl QueueSource {
    /// Reads the queue until `stop` is cancelled. Then what was taken is finished and acknowledged; what
    /// was not stays in the queue.
    pub async fn run(self, stop: CancellationToken) {
        let mut backoff = Backoff::default();
        let mut last = String::new();
        while !stop.is_cancelled() {
            let (worked, error) = match self.connect_and_read(&stop).await {
                Ok(()) => break,
                Err(failed) => failed,
            };
            let again = backoff.after_failure(worked, error.is_transient());
            let reason = error.to_string();
            self.status.failed(ConnectionState::Waiting, &reason, again);
            // One line for the same trouble, however long it lasts.
            if worked.is_zero() && reason == last {
                tracing::debug!(source = %self.source.name(), %error, again_ms = again.as_millis(), "the queue is still not read");
            } else {
                tracing::warn!(source = %self.source.name(), broker = %self.queue.address, %error, again_ms = again.as_millis(), "the queue is not read");
            }
            last = reason;
            let _ = stop.run_until_cancelled(tokio::time::sleep(again)).await;
        }
        self.status.is(ConnectionState::Stopped);
    }

    /// One connection, from its beginning to its end. With a failure comes for how long it worked.
    async fn connect_and_read(&self, stop: &CancellationToken) -> Result<(), (Duration, AmqpError)> {
        self.status.is(ConnectionState::Connecting);
        let name = format!("tidings sources.{}", self.source.name());
        let Some(opened) = stop.run_until_cancelled(self.queue.open(&name)).await else { return Ok(()) };
        let opened = opened.map_err(|error| (Duration::ZERO, error))?;
        self.status.is(ConnectionState::Connected);
        tracing::info!(source = %self.source.name(), queue = %self.queue.queue, broker = %self.queue.address, "the queue is read");
        let began = Instant::now();
        self.read(opened, stop).await.map_err(|error| (began.elapsed(), error))
    }
}
