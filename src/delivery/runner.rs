//! Background task of push subscriptions: runs the engines, flushes cursors and updates gauges.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    change_notices::ChangeNotices,
    cursors::Cursors,
    engine::{Engine, Exit},
    metrics,
    status::SubscriptionState,
    subscriptions::{BY_GATEWAY, Inner},
    websub,
};
use crate::{
    cluster::{Tenure, workers::WorkerLaunch},
    journal::{Journal, nodes::DutyName, subscriptions::SubscriptionWrite},
    model::SubscriptionName,
    supervision::{Supervisor, Worker},
};

/// Interval between updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// An engine to start, by the name of its subscription.
pub(super) type EngineLaunch = WorkerLaunch<SubscriptionName>;

/// Runs the engines. The application spawns [`Runner::run`].
pub struct Runner {
    pub(super) launches: mpsc::Receiver<EngineLaunch>,
    pub(super) subscriptions: Arc<Inner>,
}

impl Runner {
    /// Runs the engines until `stop` is cancelled. Then the engines have `draining` to complete in-flight
    /// messages, and all cursors are written.
    pub async fn run(mut self, stop: CancellationToken, draining: Duration, supervisor: Supervisor) {
        let mut engines = JoinSet::new();
        let subscriptions = Arc::clone(&self.subscriptions);
        let notices = Arc::new(ChangeNotices::new(&subscriptions.journal));
        // Beside the loop and no branch of it: a branch is not polled while another one writes cursors, and it may
        // then have a lock or a connection that the write needs.
        tokio::select! {
            () = self.run_engines(&mut engines, &notices, &stop, &supervisor) => {}
            () = async { notices.run(&subscriptions.journal).await; std::future::pending().await } => {}
            never = subscriptions.keep_synchronized() => match never {},
        }
        self.subscriptions.stop_all();
        self.launches.close();
        let ended = async { while engines.join_next().await.is_some() {} };
        if tokio::time::timeout(draining, ended).await.is_err() {
            tracing::warn!("some messages were not confirmed in time; they will be sent again after the next start");
            engines.shutdown().await;
        }
        flush(&self.subscriptions.cursors).await;
    }

    /// Starts engines, writes cursors and updates gauges until `stop` is cancelled.
    async fn run_engines(
        &mut self,
        engines: &mut JoinSet<()>,
        notices: &Arc<ChangeNotices>,
        stop: &CancellationToken,
        supervisor: &Supervisor,
    ) {
        let cursors = self.subscriptions.cursors.clone();
        let mut ticks = tokio::time::interval(GAUGE_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(launch) = self.launches.recv() => {
                    let name = launch.subject.to_string();
                    let run = run(launch, Arc::clone(&self.subscriptions), Arc::clone(notices));
                    let supervisor = supervisor.clone();
                    engines.spawn(async move {
                        let _guard = supervisor.guard(Worker::Engine, Some(name));
                        run.await;
                    });
                }
                Some(_) = engines.join_next() => {}
                () = cursors.due() => {
                    if let Err(error) = cursors.flush().await {
                        // The journal logs an outage once, and this is repeated ten times a second.
                        tracing::debug!(%error, "cannot write subscription cursors; retrying");
                    }
                }
                _ = ticks.tick() => update_gauges(&self.subscriptions),
            }
        }
    }
}

/// Writes the cursors for the last time in a tenure or before the end.
async fn flush(cursors: &Cursors) {
    if let Err(error) = cursors.flush().await {
        tracing::warn!(%error, "cannot write subscription cursors; receivers get the last messages again");
    }
}

/// Runs the engine of a subscription whenever this node has its duty.
async fn run(launch: EngineLaunch, subscriptions: Arc<Inner>, notices: Arc<ChangeNotices>) {
    let (cluster, duty) = (subscriptions.cluster.clone(), DutyName::subscription(&launch.subject));
    let work = |name: &SubscriptionName, tenure| {
        run_tenure(name.clone(), tenure, Arc::clone(&subscriptions), Arc::clone(&notices))
    };
    launch.run(&cluster, duty, work).await;
}

/// Runs the engine of a subscription for one tenure of its duty.
async fn run_tenure(name: SubscriptionName, tenure: Tenure, subscriptions: Arc<Inner>, notices: Arc<ChangeNotices>) {
    let _held = subscriptions.hold(&name, &tenure);
    match subscriptions.prepare_engine(&name, &tenure, notices).await {
        Some(engine) => run_engine(engine, &subscriptions).await,
        None => tracing::debug!(subscription = %name, "this node has the duty of a subscription but no engine for it"),
    }
    if tenure.term().is_some() {
        tracing::debug!(subscription = %name, "the engine of a subscription has ended; writing cursors");
        // The next holder begins after the last confirmed message.
        flush(&subscriptions.cursors).await;
        tracing::debug!(subscription = %name, "the cursors are written; waiting to hand the duty over");
        // An engine that ended by itself would end on every other node as well.
        tenure.stop().cancelled().await;
    }
}

async fn run_engine(engine: Engine, subscriptions: &Inner) {
    let (name, status, journal) = (engine.name.clone(), Arc::clone(&engine.status), engine.journal.clone());
    match engine.run().await {
        Exit::Stopped => {}
        Exit::LostChanges => tracing::debug!(subscription = %name, "a failover has lost changes up to the cursor"),
        Exit::Gone(reason) => {
            tracing::warn!(subscription = %name, reason, "the receiver wants no more messages; the subscription has ended");
            subscriptions.end_by_receiver(&name, &reason);
            write(&journal, vec![SubscriptionWrite::SetEnded(name, Some(reason.into()))]).await;
        }
        Exit::Paused(reason) => {
            tracing::error!(subscription = %name, reason, "the subscription is paused until it is resumed");
            subscriptions.pause_failed(&name, &reason);
            write(
                &journal,
                vec![
                    SubscriptionWrite::Pause(name.clone(), BY_GATEWAY.into()),
                    SubscriptionWrite::SetEnded(name, Some(reason.into())),
                ],
            )
            .await;
        }
        Exit::FellBehind(error) => {
            let advice = "rewind the subscription to \"beginning\" or \"now\", and reload the receiver from /snapshot";
            tracing::error!(subscription = %name, %error, advice, "undelivered changes are no longer in the journal");
            status.set_stopped(SubscriptionState::FellBehind, &format!("{error}; {advice}"));
        }
    }
}

async fn write(journal: &Journal, writes: Vec<SubscriptionWrite>) {
    if let Err(error) = journal.write_subscriptions(writes).await {
        // After the next start, the receiver repeats its refusal or fails for the same time again.
        tracing::warn!(%error, "cannot write the end of a subscription");
    }
}

/// Updates the gauges of all subscriptions.
fn update_gauges(inner: &Inner) {
    let (of_hub, others): (Vec<_>, Vec<_>) =
        inner.snapshots().into_iter().partition(|(name, _)| websub::is_hub_subscription(name));
    metrics::set_subscribers(of_hub.len());
    for (name, snapshot) in others {
        let is_elsewhere = snapshot.state == SubscriptionState::Elsewhere;
        let up = matches!(snapshot.state, SubscriptionState::Running);
        let paused = matches!(snapshot.state, SubscriptionState::Paused);
        metrics::set_subscription_gauges(
            &name,
            up,
            paused,
            if is_elsewhere { 0 } else { inner.journal.count_after(snapshot.cursor) },
            snapshot.dead_letters,
        );
    }
}
