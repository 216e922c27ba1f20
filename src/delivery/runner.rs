//! What the application runs beside the gateway: the engines, and the writing of their cursors.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    cursors::Cursors,
    engine::{End, Engine},
    metrics,
    status::State,
    subscriptions::Inner,
    websub,
};
use crate::{
    journal::{Journal, subscriptions::SubscriptionWrite},
    supervision::{Supervisor, Worker},
};

/// How often the gauges are told.
const MEASURE: Duration = Duration::from_secs(1);

/// An engine to be started.
pub(super) struct Launch {
    pub(super) engine: Engine,
    /// Cancelled when the engine before it, of the same subscription, has ended.
    pub(super) before: Option<CancellationToken>,
    /// Cancels what says that this one has ended.
    pub(super) ended: DropGuard,
}

/// Runs the engines. The application spawns [`Runner::run`].
pub struct Runner {
    pub(super) launches: mpsc::Receiver<Launch>,
    pub(super) subscriptions: Arc<Inner>,
}

impl Runner {
    /// Runs the engines until `stop`; then they have `draining` to finish what is on its way, and where they
    /// are is written.
    pub async fn run(mut self, stop: CancellationToken, draining: Duration, supervisor: Supervisor) {
        let mut engines = JoinSet::new();
        let cursors = self.subscriptions.cursors.clone();
        let mut ticks = tokio::time::interval(MEASURE);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(launch) = self.launches.recv() => {
                    let Launch { engine, before, ended } = launch;
                    let name = engine.name.to_string();
                    let run = run(engine, before, ended, Arc::clone(&self.subscriptions));
                    let supervisor = supervisor.clone();
                    engines.spawn(async move {
                        let _guard = supervisor.guard(Worker::Engine, Some(name));
                        run.await;
                    });
                }
                Some(_) = engines.join_next() => {}
                () = cursors.due() => flush(&cursors).await,
                _ = ticks.tick() => measure(&self.subscriptions),
            }
        }
        self.subscriptions.stop_all();
        self.launches.close();
        let ended = async { while engines.join_next().await.is_some() {} };
        if tokio::time::timeout(draining, ended).await.is_err() {
            tracing::warn!("some messages were not confirmed in time; they are sent again after the next start");
            engines.shutdown().await;
        }
        flush(&cursors).await;
    }
}

async fn flush(cursors: &Cursors) {
    if let Err(error) = cursors.flush().await {
        tracing::warn!(%error, "where the subscriptions are could not be written; trying again");
    }
}

async fn run(engine: Engine, before: Option<CancellationToken>, ended: DropGuard, subscriptions: Arc<Inner>) {
    if let Some(before) = before {
        before.cancelled().await;
    }
    let (name, status, journal) = (engine.name.clone(), Arc::clone(&engine.status), engine.journal.clone());
    match engine.run().await {
        End::Stopped => {}
        End::Gone(reason) => {
            tracing::warn!(subscription = %name, reason, "the receiver wants no more; the subscription has ended");
            status.stopped(State::Ended, &reason);
            write(&journal, vec![SubscriptionWrite::SetEnded(name, Some(reason))]).await;
        }
        End::Paused(reason) => {
            tracing::error!(subscription = %name, reason, "the subscription waits for somebody to resume it");
            subscriptions.has_paused(&name, &reason);
            write(
                &journal,
                vec![SubscriptionWrite::SetPaused(name.clone(), true), SubscriptionWrite::SetEnded(name, Some(reason))],
            )
            .await;
        }
        End::FellBehind(error) => {
            let advice = "rewind it, to \"beginning\" or \"now\", and let the receiver start anew from /snapshot";
            tracing::error!(subscription = %name, %error, advice, "changes that were not delivered are gone");
            status.stopped(State::FellBehind, &format!("{error}; {advice}"));
        }
    }
    drop(ended);
}

async fn write(journal: &Journal, writes: Vec<SubscriptionWrite>) {
    if let Err(error) = journal.write_subscriptions(writes).await {
        // Then the receiver says so again after the next start, or fails as long again.
        tracing::warn!(%error, "the end of a subscription could not be written");
    }
}

/// Tells the gauges of a subscription.
fn measure(inner: &Inner) {
    let (of_hub, others): (Vec<_>, Vec<_>) =
        inner.snapshots().into_iter().partition(|(name, _)| websub::is_of_hub(name));
    metrics::subscribers(of_hub.len());
    for (name, snapshot) in others {
        let up = matches!(snapshot.state, State::Running);
        let paused = matches!(snapshot.state, State::Paused);
        metrics::subscription(&name, up, paused, inner.journal.count_after(snapshot.cursor), snapshot.dead_letters);
    }
}
