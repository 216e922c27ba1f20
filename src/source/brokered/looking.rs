//! Between reading and writing, where a source's repository is asked what its messages do not say: the batches are asked
//! about at the same time, and go on in their order.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Broker, BrokeredSource, session::Taken};
use crate::broker::ConnectionState;

impl<B: Broker> BrokeredSource<B> {
    /// Asks about batches as they come, and hands them over when all is answered that is to be. When the gateway stops, what
    /// is not answered stays with the broker, and so does what came after it.
    pub(super) async fn look_up<M: Send>(
        &self,
        mut handed: mpsc::Receiver<Taken<M>>,
        hand_over: mpsc::Sender<Taken<M>>,
        stop: &CancellationToken,
    ) {
        let Some(mut waits) = self.source.waits() else { return };
        let mut asked = FuturesOrdered::new();
        let (mut is_open, mut messages, mut answered) = (true, 0, VecDeque::new());
        let most = usize::from(self.broker.prefetch());
        loop {
            if !is_open && asked.is_empty() && answered.is_empty() {
                return;
            }
            tokio::select! {
                // The broker sends no more than the prefetch before something is acknowledged; one that does waits.
                taken = handed.recv(), if is_open && messages < most => match taken {
                    Some(taken) => {
                        messages += taken.marks.len();
                        asked.push_back(self.looked_up(taken, stop));
                    }
                    None => is_open = false,
                },
                // Also while what is answered waits to be written.
                Some(next) = asked.next() => match next {
                    Some(next) => answered.push_back(next),
                    None => return,
                },
                permit = hand_over.reserve(), if !answered.is_empty() => {
                    // The other side has failed, and tells why.
                    let Ok(permit) = permit else { return };
                    if let Some(taken) = answered.pop_front() {
                        messages -= taken.marks.len();
                        permit.send(taken);
                    }
                }
                Ok(()) = waits.changed() => {
                    let is_waiting = *waits.borrow_and_update() > 0;
                    self.wait(is_waiting);
                }
            }
        }
    }

    async fn looked_up<M>(&self, mut taken: Taken<M>, stop: &CancellationToken) -> Option<Taken<M>> {
        stop.run_until_cancelled(taken.batch.look_up(&self.source)).await?;
        Some(taken)
    }

    /// It is there, and waits for the repository, or does not any more.
    fn wait(&self, is_waiting: bool) {
        let state = if is_waiting { ConnectionState::Paused } else { ConnectionState::Connected };
        if self.status.is(state) {
            let source = self.source.name();
            if is_waiting {
                tracing::warn!(%source, "the source is not read on: its repository must answer, and does not; GET /sources says why");
            } else {
                tracing::info!(%source, "the repository has answered: the source is read on");
            }
        }
    }
}
