//! Runs the harvests, each on the node that has the duty of its source.

use std::{pin::pin, sync::Arc};

use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{Harvest, HarvestLaunch, Harvests, Waits, status::HarvestState};
use crate::{
    cluster::{Cluster, Tenure, workers::keep_synchronized},
    journal::{JournalError, nodes::DutyName, subscriptions::MadeBy},
    supervision::{Supervisor, Worker},
};

/// Runs the harvests, and those that are made later.
pub struct HarvestRunner {
    harvests: Harvests,
    launches: mpsc::Receiver<HarvestLaunch>,
    cluster: Cluster,
}

impl HarvestRunner {
    /// Creates the runner of the harvests that `launches` starts.
    #[must_use]
    pub fn new(harvests: Harvests, launches: mpsc::Receiver<HarvestLaunch>, cluster: Cluster) -> Self {
        Self { harvests, launches, cluster }
    }

    /// Runs until `stop` is cancelled and all harvests have ended.
    pub async fn run(self, stop: CancellationToken, supervisor: Supervisor) {
        let Self { harvests, mut launches, cluster } = self;
        let mut tasks = JoinSet::new();
        let no_worker_says = Notify::new();
        let mut news = pin!(keep_synchronized(cluster.harvest_revisions(), &no_worker_says, || hear_news(&harvests)));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(launch) = launches.recv() => {
                    let (name, made_by) = (launch.subject.source.name().to_string(), launch.subject.made_by);
                    let task = run(launch, harvests.clone(), cluster.clone());
                    tasks.spawn(supervise(supervisor.clone(), made_by, name, task));
                }
                Some(_) = tasks.join_next() => {}
                never = &mut news => match never {},
            }
        }
        harvests.stop_all();
        launches.close();
        while tasks.join_next().await.is_some() {}
    }
}

/// Reads the harvests again, and wakes those that run here, because another node may have requested a run or paused one.
async fn hear_news(harvests: &Harvests) -> Result<(), JournalError> {
    harvests.synchronize().await?;
    harvests.wake_all();
    Ok(())
}

/// Runs the task of a harvest. One of the configuration ends only with the gateway; one that was made over HTTP also when
/// it is removed.
async fn supervise(supervisor: Supervisor, made_by: MadeBy, name: String, task: impl Future<Output = ()>) {
    match made_by {
        MadeBy::Config => supervisor.run(Worker::Harvest, Some(name), task).await,
        MadeBy::Api | MadeBy::Hub => {
            let _guard = supervisor.guard(Worker::Harvest, Some(name));
            task.await;
        }
    }
}

/// Runs a harvest whenever this node has the duty of its source, until it is removed or the gateway stops.
async fn run(launch: HarvestLaunch, harvests: Harvests, cluster: Cluster) {
    let harvest = Arc::clone(&launch.subject);
    if cluster.is_shared() {
        harvest.status.set(HarvestState::Elsewhere, None);
    }
    let work = |harvest: &Arc<Harvest>, tenure| run_tenure(harvests.clone(), Arc::clone(harvest), tenure);
    launch.run(&cluster, DutyName::source(harvest.source.name()), work).await;
    harvest.status.set(HarvestState::Stopped, None);
}

/// Runs a harvest for one tenure of its duty.
async fn run_tenure(harvests: Harvests, harvest: Arc<Harvest>, tenure: Tenure) {
    let _elsewhere = tenure.show_elsewhere(|| harvest.status.set(HarvestState::Elsewhere, None));
    let journal = harvests.journal().under(tenure.term());
    let known = journal.until_losses_are_known();
    if tenure.term().is_some() && tenure.stop().run_until_cancelled(known).await.is_none() {
        return;
    }
    // Another node may have removed or replaced the harvest. A former holder of the duty may have missed that.
    if tenure.read(|| harvests.is_current(&harvest)).await == Some(true) {
        harvest.run(journal.clone(), Waits::default(), tenure.stop().clone()).await;
    }
}
