//! A receiver that follows a script.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::delivery::{BoxFuture, Delivery, DeliveryError, DeliveryFuture, DeliveryOutcome, Outgoing, Window};

/// Reaction of the receiver to a message.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Accept,
    Respond(DeliveryOutcome),
    /// The receiver never responds.
    Hang,
    /// The connection fails during the send.
    Break,
}

#[derive(Default)]
pub(super) struct Script {
    /// Reactions to the next messages; afterwards it accepts everything.
    pub(super) actions: VecDeque<Action>,
    /// Numbers of the changes that were sent, and of those accepted.
    pub(super) sent: Vec<u64>,
    pub(super) accepted: Vec<u64>,
    pub(super) connected: usize,
    pub(super) refuse_to_connect: usize,
    pub(super) max_at_once: usize,
    pub(super) at_once: usize,
    pub(super) hangs: bool,
    /// Number of changes and of bytes of each message.
    pub(super) sizes: Vec<(usize, usize)>,
    /// Outcome of messages above this number of bytes.
    pub(super) limit: Option<(usize, DeliveryOutcome)>,
    /// Maximum number of changes and of bytes in a batch.
    pub(super) batch: Option<(usize, usize)>,
    /// Bytes of bodies without an outcome, now and at most.
    pub(super) bytes: usize,
    pub(super) max_bytes: usize,
}

/// A receiver that follows its script. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Receiver(Arc<Mutex<Script>>);

impl Receiver {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Script) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(super) fn with_actions(self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.with(|script| script.actions.extend(actions));
        self
    }

    pub(super) fn accepted(&self) -> Vec<u64> {
        self.with(|script| script.accepted.clone())
    }
}

impl Delivery for Receiver {
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>> {
        let refused = self.with(|script| {
            script.connected += 1;
            script.at_once = 0;
            let refuses = script.refuse_to_connect > 0;
            script.refuse_to_connect = script.refuse_to_connect.saturating_sub(1);
            refuses
        });
        Box::pin(async move { if refused { Err(DeliveryError("nobody is there".to_owned())) } else { Ok(()) } })
    }

    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>> {
        if !message.is_batch {
            assert_eq!(message.body, message.change.json().as_ref(), "the format is JSON");
        }
        let seq = message.change.seq().0;
        let seqs: Vec<_> = [&message.change].into_iter().chain(&message.more).map(|change| change.seq().0).collect();
        let size = message.body.len();
        let action = self.with(|script| {
            script.sent.push(seq);
            script.sizes.push((seqs.len(), size));
            script.bytes += size;
            script.max_bytes = script.max_bytes.max(script.bytes);
            script.at_once += 1;
            script.max_at_once = script.max_at_once.max(script.at_once);
            let action = match &script.limit {
                _ if script.hangs => Action::Hang,
                Some((limit, outcome)) if size > *limit => Action::Respond(outcome.clone()),
                _ => script.actions.pop_front().unwrap_or(Action::Accept),
            };
            if matches!(action, Action::Accept) {
                script.accepted.extend(seqs);
            }
            action
        });
        let body = Body(self.clone(), size);
        let receiver = self.clone();
        Box::pin(async move {
            if matches!(action, Action::Break) {
                return Err(DeliveryError("the connection fails".to_owned()));
            }
            let pending: DeliveryFuture = Box::pin(async move {
                let _body = body;
                tokio::task::yield_now().await;
                let outcome = match action {
                    Action::Accept => DeliveryOutcome::Delivered,
                    Action::Respond(outcome) => outcome,
                    Action::Hang | Action::Break => std::future::pending().await,
                };
                receiver.with(|script| script.at_once = script.at_once.saturating_sub(1));
                outcome
            });
            Ok(pending)
        })
    }

    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError> {
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn window(&self) -> Window {
        // Batches are sent one at a time, as by an ordered webhook.
        let (messages, changes) = self.with(|script| script.batch.map_or((5, 1), |(changes, _)| (1, changes)));
        Window { messages, changes, bytes: 1 << 20, outcome_timeout: Duration::from_millis(300) }
    }

    fn batch_bytes(&self) -> usize {
        self.with(|script| script.batch.map_or(usize::MAX, |(_, bytes)| bytes))
    }
}

/// A body in memory, counted until it is dropped.
pub(super) struct Body(Receiver, usize);

impl Drop for Body {
    fn drop(&mut self) {
        self.0.with(|script| script.bytes -= self.1);
    }
}

pub(super) fn retry() -> Action {
    Action::Respond(DeliveryOutcome::Retry { reason: "busy".to_owned(), after: None })
}

pub(super) fn refuse() -> Action {
    Action::Respond(DeliveryOutcome::Refused { reason: "too large".to_owned() })
}
