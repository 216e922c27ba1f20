//! Enrichment stage between parsing and writing: batches are enriched concurrently from the source's
//! repository, and continue in their order.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Broker, SourceConsumer, session::ReadBatch};
use crate::broker::ConnectionState;

impl<B: Broker> SourceConsumer<B> {
    /// Enriches batches as they arrive, and forwards them in order. When the gateway stops, batches that are
    /// not enriched yet stay with the broker, and so do all later ones.
    pub(super) async fn enrich<T: Send>(
        &self,
        mut incoming: mpsc::Receiver<ReadBatch<T>>,
        forward: mpsc::Sender<ReadBatch<T>>,
        stop: &CancellationToken,
    ) {
        let Some(mut waiting_events) = self.source.waiting_events() else { return };
        let mut in_progress = FuturesOrdered::new();
        let (mut is_open, mut messages, mut enriched_batches) = (true, 0, VecDeque::new());
        let prefetch = usize::from(self.broker.prefetch());
        loop {
            if !is_open && in_progress.is_empty() && enriched_batches.is_empty() {
                return;
            }
            tokio::select! {
                // The broker sends no more unacknowledged messages than the prefetch. One that does has to
                // wait.
                batch = incoming.recv(), if is_open && messages < prefetch => match batch {
                    Some(batch) => {
                        messages += batch.ack_tokens.len();
                        in_progress.push_back(self.enriched(batch, stop));
                    }
                    None => is_open = false,
                },
                // Also while enriched batches wait to be written.
                Some(next) = in_progress.next() => match next {
                    Some(next) => enriched_batches.push_back(next),
                    None => return,
                },
                permit = forward.reserve(), if !enriched_batches.is_empty() => {
                    // The writer has failed and returns the reason.
                    let Ok(permit) = permit else { return };
                    if let Some(batch) = enriched_batches.pop_front() {
                        messages -= batch.ack_tokens.len();
                        permit.send(batch);
                    }
                }
                Ok(()) = waiting_events.changed() => {
                    let is_waiting = *waiting_events.borrow_and_update() > 0;
                    self.wait(is_waiting);
                }
            }
        }
    }

    async fn enriched<T>(&self, mut batch: ReadBatch<T>, stop: &CancellationToken) -> Option<ReadBatch<T>> {
        stop.run_until_cancelled(batch.batch.enrich(&self.source)).await?;
        Some(batch)
    }

    /// Sets the state of the connection: paused while an event waits for the repository, else connected.
    fn wait(&self, is_waiting: bool) {
        let state = if is_waiting { ConnectionState::Stalled } else { ConnectionState::Connected };
        if self.status.set_state(state) {
            let source = self.source.name();
            if is_waiting {
                tracing::warn!(%source, "the source is paused because a required lookup fails; see GET /sources");
            } else {
                tracing::info!(%source, "the repository responds again; the source resumes");
            }
        }
    }
}
