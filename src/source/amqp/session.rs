//! What goes through one connection: messages are gathered and read on one side, and written and
//! acknowledged on the other, at the same time.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{QueueSource, arrival::arrived};
use crate::{
    amqp::{AmqpError, Backoff, Channel, ConnectionState, Consumer, Delivery, OpenQueue},
    intake::{Arrived, Batch},
};

/// The longest wait for a journal that cannot be written.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many batches may have been read and wait to be written: they are written together. The broker sends
/// no more than the prefetch, of which one batch is so large a part at the most.
const BATCHES: u16 = 8;

/// How many bytes go into one batch, if it has more messages than one.
const BATCH_BYTES: usize = 1024 * 1024;

/// Messages that were read, and the delivery tag of the last of them.
struct Taken {
    batch: Batch,
    last: u64,
}

impl QueueSource {
    /// Reads the queue until the connection fails, or `stop` is cancelled and what was taken is done.
    pub(super) async fn read(&self, opened: OpenQueue, stop: &CancellationToken) -> Result<(), AmqpError> {
        let OpenQueue { connection, channel, mut consumer } = opened;
        let (hand_over, handed) = mpsc::channel(usize::from(BATCHES));
        let ended = {
            let mut gathering = std::pin::pin!(self.gather(&channel, &mut consumer, hand_over, stop));
            let mut writing = std::pin::pin!(self.write(&channel, handed, stop));
            tokio::select! {
                // What was taken before the end is written first: if the queue was deleted, nobody else has it.
                gathered = &mut gathering => writing.await.and(gathered),
                written = &mut writing => written,
            }
        };
        OpenQueue { connection, channel, consumer }.close().await;
        ended
    }

    /// Takes what comes, and hands it over in batches as large as what is there.
    async fn gather(
        &self,
        channel: &Channel,
        consumer: &mut Consumer,
        hand_over: mpsc::Sender<Taken>,
        stop: &CancellationToken,
    ) -> Result<(), AmqpError> {
        let most = usize::from(self.queue.prefetch.div_ceil(BATCHES));
        while let Some(first) = stop.run_until_cancelled(consumer.next()).await {
            let mut bytes = 0;
            let mut messages = Vec::new();
            let mut next = Some(first);
            let (mut last, mut ended) = (0, Ok(()));
            while let Some(delivered) = next.take() {
                match delivered {
                    Ok(delivery) => {
                        (last, bytes) = (delivery.delivery_tag, bytes + delivery.data.len());
                        messages.push(delivery);
                    }
                    Err(error) => ended = Err(error),
                }
                if ended.is_ok() && messages.len() < most && bytes < BATCH_BYTES {
                    next = consumer.next().now_or_never();
                }
            }
            if !messages.is_empty()
                && hand_over.send(Taken { batch: self.read_all(messages).await, last }).await.is_err()
            {
                // The other side has failed, and tells why.
                return Ok(());
            }
            ended?;
        }
        // What comes after this is not taken, and stays in the queue.
        channel.cancel(consumer).await
    }

    async fn read_all(&self, messages: Vec<Delivery>) -> Batch {
        let (source, largest) = (Arc::clone(&self.source), self.largest);
        let read = move || {
            let arrived = messages.into_iter().map(|delivery| arrived(delivery, largest, source.name()));
            let arrived: Vec<Arrived> = arrived.collect();
            Batch::read(&source, arrived)
        };
        #[expect(clippy::expect_used, reason = "a panic of the dialect is caught within, and nothing aborts the task")]
        tokio::task::spawn_blocking(read).await.expect("reading ends by itself")
    }

    /// Writes what was taken, and acknowledges it. What has been read while the disk was waited for is written
    /// together, so that a slow disk makes for larger batches. They go to the journal without waiting until
    /// the acknowledgement of those before is on its way.
    async fn write(
        &self,
        channel: &Channel,
        mut handed: mpsc::Receiver<Taken>,
        stop: &CancellationToken,
    ) -> Result<(), AmqpError> {
        let mut written = None;
        loop {
            let acknowledging = async {
                match written {
                    Some(last) => channel.acknowledge_up_to(last).await,
                    None => Ok(()),
                }
            };
            let writing = async {
                let Taken { mut batch, mut last } = handed.recv().await?;
                while let Ok(next) = handed.try_recv() {
                    batch.extend(next.batch);
                    last = next.last;
                }
                self.write_one(&mut batch, stop).await.then_some(last)
            };
            let (acknowledged, next) = tokio::join!(acknowledging, writing);
            acknowledged?;
            match next {
                Some(last) => written = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// Tries until the batch is on disk; says whether it is. It gives up when the gateway is stopping.
    async fn write_one(&self, batch: &mut Batch, stop: &CancellationToken) -> bool {
        let mut backoff = Backoff::up_to(LONGEST_PAUSE);
        let mut paused = false;
        while let Err(error) = self.intake.accept_batch(&self.source, batch).await {
            let again = backoff.after_failure(Duration::ZERO, true);
            self.status.failed(ConnectionState::Paused, &error.to_string(), again);
            if !paused {
                tracing::error!(source = %self.source.name(), %error, "the queue is not read on: the journal cannot be written");
            }
            paused = true;
            if stop.run_until_cancelled(tokio::time::sleep(again)).await.is_none() {
                return false;
            }
        }
        if paused {
            self.status.is(ConnectionState::Connected);
            tracing::info!(source = %self.source.name(), "the journal can be written again: the queue is read on");
        }
        true
    }
}
