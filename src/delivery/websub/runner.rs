//! What the hub does in its own time: asks callbacks, and ends what is over.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Inner, Wanted,
    callback::{deny, verify},
    kept::Kept,
    pending::Next,
    request::{Mode, Request},
};
use crate::{
    delivery::{OperationError, State, metrics},
    model::{SubscriptionName, Timestamp},
};

/// How many callbacks are asked at once.
const AT_ONCE: usize = 16;

/// How often it is looked for what is over.
const SWEEP: Duration = Duration::from_millis(500);

/// Runs the hub. The application spawns [`HubRunner::run`].
pub struct HubRunner(pub(super) Arc<Inner>);

impl HubRunner {
    /// Works until `stop`. What waits to be verified then is forgotten: whoever asked asks again.
    pub async fn run(self, stop: CancellationToken) {
        let mut asking = JoinSet::new();
        let mut sweeps = tokio::time::interval(SWEEP);
        sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wait = self.begin(&mut asking);
            let next = async {
                match wait {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = next => {}
                Some(_) = asking.join_next() => {}
                _ = sweeps.tick() => self.0.sweep(&mut asking).await,
            }
        }
    }

    /// Begins what may begin; says when more may.
    fn begin(&self, asking: &mut JoinSet<()>) -> Option<Instant> {
        while asking.len() < AT_ONCE {
            let next = self.0.waiting().next(std::time::Instant::now());
            match next {
                Next::Now(name, wanted) => {
                    let inner = Arc::clone(&self.0);
                    asking.spawn(async move {
                        // Also if it is cut off: the next is not to wait for it.
                        let _done = Done(&inner, &name);
                        inner.carry_out(&name, wanted).await;
                    });
                }
                Next::At(at) => return Some(Instant::from_std(at)),
                Next::Nothing => return None,
            }
        }
        None
    }
}

/// Says that a verification is done.
struct Done<'a>(&'a Inner, &'a SubscriptionName);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.waiting().done(self.1);
    }
}

impl Inner {
    /// Verifies a request, and does what it asks for.
    async fn carry_out(&self, name: &SubscriptionName, wanted: Wanted) {
        let Wanted { request, .. } = &wanted;
        let mode = request.mode;
        let (client, to) = (&self.shared.client, request.callback.origin());
        let no_room = || self.no_room(name, &request.callback);
        if let Some(reason) = (mode == Mode::Subscribe).then(no_room).flatten() {
            match self.is_news(&request.callback) {
                true => tracing::info!(subscription = %name, to, reason, "a WebSub subscriber is denied"),
                false => tracing::debug!(subscription = %name, to, reason, "a WebSub subscriber is denied"),
            }
            metrics::verified("denied");
            return deny(client, &request.callback, &request.topic, &reason).await;
        }
        let lease = request.lease.unwrap_or(self.settings.lease.as_secs());
        let lease = lease.min(self.settings.longest_lease.as_secs());
        // A lease is measured from here (section 5.3).
        let began = Timestamp::now();
        if let Err(error) = verify(client, &request.callback, mode, &request.topic, lease).await {
            metrics::verified("failed");
            let mode = mode.as_str();
            return match self.is_news(&request.callback) {
                true => tracing::info!(subscription = %name, to, mode, %error, "not verified"),
                false => tracing::debug!(subscription = %name, to, mode, %error, "not verified"),
            };
        }
        metrics::verified("verified");
        let done = match mode {
            Mode::Subscribe => self.subscribe(name, &wanted, until(began, lease)).await,
            Mode::Unsubscribe => self.unsubscribe(name).await,
        };
        match done {
            Ok(()) => tracing::info!(subscription = %name, to, mode = mode.as_str(), lease, "verified"),
            Err(error) => tracing::warn!(subscription = %name, %error, "a verified request could not be written"),
        }
    }

    async fn subscribe(
        &self,
        name: &SubscriptionName,
        wanted: &Wanted,
        lease: Timestamp,
    ) -> Result<(), OperationError> {
        let Wanted { request: Request { callback, secret, .. }, topic, since } = wanted;
        let (callback, secret) = (callback.clone(), secret.clone());
        let kept = Arc::new(Kept { callback, topic: topic.address.clone(), lease, secret });
        let definition = Arc::new(self.definition(topic.filter.clone(), Arc::clone(&kept)));
        self.subscriptions.keep(name, kept.to_json(), definition, *since).await?;
        self.known().insert(name.clone(), kept);
        Ok(())
    }

    async fn unsubscribe(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        // First, or a sweep in between would take it for one that somebody else has ended.
        let Some(kept) = self.known().remove(name) else { return Ok(()) };
        match self.subscriptions.delete(name).await {
            Ok(()) | Err(OperationError::Unknown(_)) => Ok(()),
            Err(error) => {
                self.known().insert(name.clone(), kept);
                Err(error)
            }
        }
    }

    /// Ends what is over: leases that have run out, callbacks that want no more; and tells those that somebody
    /// else has ended.
    async fn sweep(self: &Arc<Self>, telling: &mut JoinSet<()>) {
        let now = Timestamp::now();
        let known: Vec<_> = self.known().iter().map(|(name, kept)| (name.clone(), Arc::clone(kept))).collect();
        for (name, kept) in known {
            let over = match self.subscriptions.state_of(&name) {
                // When many are told, it is told the next time.
                None if telling.len() >= AT_ONCE => continue,
                None => {
                    self.known().remove(&name);
                    let inner = Arc::clone(self);
                    telling.spawn(async move {
                        let reason = "the operator of this hub has ended the subscription";
                        deny(&inner.shared.client, &kept.callback, &kept.topic, reason).await;
                    });
                    continue;
                }
                Some(State::Ended) => "its callback wants no more",
                Some(_) if kept.is_over(now) => "its lease has run out",
                Some(_) => continue,
            };
            tracing::info!(subscription = %name, over, "a WebSub subscription ends");
            if let Err(error) = self.unsubscribe(&name).await {
                tracing::warn!(subscription = %name, %error, "a WebSub subscription could not be ended; trying again");
            }
        }
    }
}

fn until(began: Timestamp, seconds: u64) -> Timestamp {
    let millis = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    // A lease is never for ever (section 5.3.1).
    Timestamp::from_millis(began.millis().saturating_add(millis)).unwrap_or(began)
}
