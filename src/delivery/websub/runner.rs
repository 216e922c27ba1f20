//! Background task of the hub: verifies requests and ends expired subscriptions.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Inner, QueuedRequest,
    callback::{deny, verify},
    request::{HubRequest, Mode},
    subscriber_record::SubscriberRecord,
    verification_queue::Next,
};
use crate::{
    cluster::Cluster,
    delivery::{OperationError, SubscriptionState, metrics},
    journal::nodes::DutyName,
    model::{SubscriptionName, Timestamp},
};

/// Maximum number of concurrent requests to callbacks.
const MAX_CONCURRENT_CALLS: usize = 16;

/// Interval between searches for expired subscriptions.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the hub. The application spawns [`HubRunner::run`].
pub struct HubRunner(pub(super) Arc<Inner>);

impl HubRunner {
    /// Runs until `stop` is cancelled. Requests that still wait for verification are dropped; their subscribers
    /// ask again. Every node verifies the requests that it got; one node of the `cluster` ends expired subscriptions.
    pub async fn run(self, stop: CancellationToken, cluster: Cluster) {
        metrics::register_hub();
        let ends_expired = AtomicBool::new(false);
        let duty = cluster.run_duty(DutyName::hub(), &stop, |tenure| {
            let flag = FlagGuard::set(&ends_expired);
            async move {
                tenure.stop().cancelled().await;
                drop(flag);
            }
        });
        let mut duty = pin!(duty.fuse());
        let mut calls = JoinSet::new();
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wait = self.begin(&mut calls);
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
                Some(_) = calls.join_next() => {}
                _ = sweeps.tick() => self.0.sweep(&mut calls, ends_expired.load(Ordering::Relaxed)).await,
                () = &mut duty => {}
            }
        }
    }

    /// Starts the verifications that are due. Returns the time of the next one.
    fn begin(&self, calls: &mut JoinSet<()>) -> Option<Instant> {
        while calls.len() < MAX_CONCURRENT_CALLS {
            let next = self.0.queue().next(std::time::Instant::now());
            match next {
                Next::Now(name, queued) => {
                    let inner = Arc::clone(&self.0);
                    calls.spawn(async move {
                        // Also runs if the task is cancelled, so that the server does not stay busy.
                        let _done = FinishOnDrop(&inner, &name);
                        inner.process(&name, queued).await;
                    });
                }
                Next::At(at) => return Some(Instant::from_std(at)),
                Next::Nothing => return None,
            }
        }
        None
    }
}

/// Sets a flag until it is dropped.
struct FlagGuard<'a>(&'a AtomicBool);

impl<'a> FlagGuard<'a> {
    fn set(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for FlagGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Marks a verification as finished when dropped.
struct FinishOnDrop<'a>(&'a Inner, &'a SubscriptionName);

impl Drop for FinishOnDrop<'_> {
    fn drop(&mut self) {
        self.0.queue().finish(self.1);
    }
}

impl Inner {
    /// Verifies a request and carries it out.
    async fn process(&self, name: &SubscriptionName, queued: QueuedRequest) {
        let QueuedRequest { request, .. } = &queued;
        let mode = request.mode;
        let (client, to) = (&self.shared.client, request.callback.origin());
        let denial_reason = || self.denial_reason(name, &request.callback);
        if let Some(reason) = (mode == Mode::Subscribe).then(denial_reason).flatten() {
            match self.is_news(&request.callback) {
                true => tracing::info!(subscription = %name, to, reason, "a WebSub subscriber is denied"),
                false => tracing::debug!(subscription = %name, to, reason, "a WebSub subscriber is denied"),
            }
            metrics::count_verification("denied");
            return deny(client, &request.callback, &request.topic, &reason).await;
        }
        let lease = request.lease.unwrap_or(self.settings.lease.as_secs());
        let lease = lease.min(self.settings.max_lease.as_secs());
        // The lease begins here (section 5.3).
        let began = Timestamp::now();
        if let Err(error) = verify(client, &request.callback, mode, &request.topic, lease).await {
            metrics::count_verification("failed");
            let mode = mode.as_str();
            return match self.is_news(&request.callback) {
                true => tracing::info!(subscription = %name, to, mode, %error, "WebSub request not verified"),
                false => tracing::debug!(subscription = %name, to, mode, %error, "WebSub request not verified"),
            };
        }
        metrics::count_verification("verified");
        let done = match mode {
            Mode::Subscribe => self.subscribe(name, &queued, until(began, lease)).await,
            Mode::Unsubscribe => self.unsubscribe(name).await,
        };
        match done {
            Ok(()) => tracing::info!(subscription = %name, to, mode = mode.as_str(), lease, "WebSub request verified"),
            Err(error) => tracing::warn!(subscription = %name, %error, "cannot store a verified WebSub request"),
        }
    }

    async fn subscribe(
        &self,
        name: &SubscriptionName,
        queued: &QueuedRequest,
        lease: Timestamp,
    ) -> Result<(), OperationError> {
        let QueuedRequest { request: HubRequest { callback, secret, .. }, topic, since } = queued;
        let (callback, secret) = (callback.clone(), secret.clone());
        let record = Arc::new(SubscriberRecord {
            callback,
            topic: topic.url.clone(),
            lease,
            secret,
            view: topic.filter.view.clone(),
        });
        let definition = Arc::new(self.definition(topic.filter.clone(), Arc::clone(&record)));
        self.subscriptions.put_hub_subscription(name, record.to_json(), definition, *since).await?;
        self.subscribers().insert(name.clone(), record);
        Ok(())
    }

    async fn unsubscribe(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        // Removed first; otherwise a concurrent sweep would conclude that the operator ended it.
        let Some(record) = self.subscribers().remove(name) else { return Ok(()) };
        match self.subscriptions.delete(name).await {
            Ok(()) | Err(OperationError::Unknown(_)) => Ok(()),
            Err(error) => {
                self.subscribers().insert(name.clone(), record);
                Err(error)
            }
        }
    }

    /// Ends subscriptions whose lease has expired or whose callback wants no more, if `ends_expired`. Notifies callbacks
    /// whose subscription the operator has deleted on this node.
    async fn sweep(self: &Arc<Self>, calls: &mut JoinSet<()>, ends_expired: bool) {
        let now = Timestamp::now();
        let subscribers: Vec<_> =
            self.subscribers().iter().map(|(name, record)| (name.clone(), Arc::clone(record))).collect();
        for (name, record) in subscribers {
            let over = match self.subscriptions.state_of(&name) {
                // If too many calls are running, the next sweep notifies the callback.
                None if calls.len() >= MAX_CONCURRENT_CALLS => continue,
                None => {
                    self.subscribers().remove(&name);
                    let inner = Arc::clone(self);
                    calls.spawn(async move {
                        let reason = "the operator of this hub has ended the subscription";
                        deny(&inner.shared.client, &record.callback, &record.topic, reason).await;
                    });
                    continue;
                }
                Some(_) if !ends_expired => continue,
                Some(SubscriptionState::Ended) => "its callback wants no more messages",
                Some(_) if record.is_expired(now) => "its lease has expired",
                Some(_) => continue,
            };
            tracing::info!(subscription = %name, over, "a WebSub subscription ends");
            if let Err(error) = self.unsubscribe(&name).await {
                tracing::warn!(subscription = %name, %error, "cannot end a WebSub subscription; retrying");
            }
        }
    }
}

fn until(began: Timestamp, seconds: u64) -> Timestamp {
    let millis = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    // A lease is always finite (section 5.3.1).
    Timestamp::from_millis(began.millis().saturating_add(millis)).unwrap_or(began)
}
