//! Several nodes on one journal: which nodes live, and which of them has each duty.
//!
//! A duty is work that exactly one node does at a time: reading a source, delivering a subscription, retention. A
//! component runs its duty with [`Cluster::run_duty`], which calls the work whenever this node has the duty, and stops
//! the work when the node loses it. With a store for one node, the node has every duty for ever and nothing else runs.
//!
//! * `membership` is the thread that renews the node's lease, takes duties and gives them back;
//! * `observer` decides which nodes have expired;
//! * `absences` are nodes that have gone without leaving, and duties without a node;
//! * `placement` decides which node a duty belongs to;
//! * `requests` are the duties that the components of this node want;
//! * [`tenure`] is the proof of a duty: its term, for the store, and the time for which the node may trust it;
//! * [`source_control`] pauses sources and connects them again;
//! * [`overview`] is the state for people.

mod absences;
mod membership;
pub mod metrics;
mod observer;
pub mod overview;
mod placement;
mod requests;
pub mod source_control;
pub mod tenure;
pub mod workers;

use std::{
    collections::BTreeMap,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{
    membership::Membership,
    observer::Observer,
    overview::Overview,
    requests::{DutyRequest, Shared},
};
pub use self::{membership::MembershipThread, tenure::Tenure};
use crate::{
    journal::{
        nodes::{DutyName, NewNode, NodeTable, Registration, Wake},
        store::StoreError,
    },
    model::{NodeName, Seq, Timestamp},
    supervision::Supervisor,
};

/// Longest pause between two attempts to register under the name of a former run.
const REGISTRATION_PAUSE: Duration = Duration::from_millis(200);

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Name of the node, unique among the nodes of a journal.
    pub name: NodeName,
    /// URL at which the node is reached, for people.
    pub address: Option<String>,
    /// Time after which other nodes take over the duties of a node that does not renew its lease.
    pub lease: Duration,
}

/// Reasons why a node cannot join the others.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A live node has the same name.
    #[error("another node with the name {0} is running on this journal; give each node its own node.name")]
    NameInUse(NodeName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread of the node cannot be started.
    #[error("cannot start the thread of the node: {0}")]
    Thread(std::io::Error),
}

/// Handle to the nodes of a journal. Clones share the same state.
#[derive(Clone)]
pub struct Cluster(Kind);

#[derive(Clone)]
enum Kind {
    /// This node alone.
    Single(Arc<SingleNode>),
    /// Several nodes.
    Shared(Arc<Shared>),
}

/// The only node of a journal.
struct SingleNode {
    name: NodeName,
    address: Option<String>,
    started: Timestamp,
    duties: Mutex<BTreeMap<DutyName, Timestamp>>,
}

impl Cluster {
    /// Returns the handle of the only node of a journal, which has every duty.
    #[must_use]
    pub fn single(settings: NodeSettings) -> Self {
        let NodeSettings { name, address, .. } = settings;
        Self(Kind::Single(Arc::new(SingleNode { name, address, started: Timestamp::now(), duties: Mutex::default() })))
    }

    /// Registers this node and starts its thread. Blocks until the lease of a crashed former run has ended.
    /// `offers` are the duties of the configuration, and `head` returns the newest change that this node knows. `open`
    /// opens the tables, which call the given function when another node has changed something. If it returns `None`,
    /// the node is the only one and has no thread.
    ///
    /// # Errors
    /// Fails if a live node has the same name, or the store fails.
    pub fn join(
        settings: NodeSettings,
        offers: Vec<DutyName>,
        head: impl Fn() -> Seq + Send + 'static,
        open: impl FnOnce(Duration, Wake) -> Result<Option<Box<dyn NodeTable>>, StoreError>,
        supervisor: &Supervisor,
    ) -> Result<(Self, Option<MembershipThread>), JoinError> {
        let shared = Arc::new(Shared::new());
        let waking = Arc::clone(&shared);
        let Some(mut table) = open(settings.lease, Arc::new(move || waking.wake()))? else {
            return Ok((Self::single(settings), None));
        };
        let NodeSettings { name, address, lease } = settings;
        let node = NewNode { instance: Uuid::new_v4(), name, address, offers, head: head() };
        let mut observer = Observer::default();
        let registered = register(&mut *table, &mut observer, &node)?;
        tracing::info!(node = %node.name, lease_seconds = lease.as_secs(), "this node has joined the journal's nodes");
        let membership = Membership::new(table, observer, Arc::clone(&shared), node, lease, Box::new(head), registered);
        let thread = membership.start(supervisor).map_err(JoinError::Thread)?;
        Ok((Self(Kind::Shared(shared)), Some(thread)))
    }

    /// Returns whether other nodes may have duties of this journal.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Kind::Shared(_))
    }

    /// Runs `work` whenever this node has the duty, until `stop` is cancelled or the work returns by itself.
    ///
    /// The tenure's token asks the work to finish: because of `stop`, or because the duty moves to another node. The
    /// work may then still write for the duty. If the node loses the duty, the work is dropped instead.
    pub async fn run_duty<W>(&self, name: DutyName, stop: &CancellationToken, mut work: impl FnMut(Tenure) -> W)
    where
        W: Future<Output = ()>,
    {
        match &self.0 {
            Kind::Single(node) => {
                let _listed = node.list(name);
                // Boxed, so that a component that waits for its duty takes little memory.
                Box::pin(work(Tenure::permanent(stop.clone()))).await;
            }
            Kind::Shared(shared) => {
                let mut request = DutyRequest::new(shared, name);
                while let Some(tenure) = wait_for_tenure(&mut request, shared, stop).await {
                    let work = Box::pin(work(tenure.clone()));
                    if run_tenure(&request, shared, &tenure, work).await == Completion::ByItself {
                        return;
                    }
                }
            }
        }
    }

    /// Hands all duties of this node over to the others, and takes no more.
    pub fn hand_over(&self) {
        if let Kind::Shared(shared) = &self.0 {
            shared.leaving.cancel();
            shared.wake();
        }
    }

    /// Returns the nodes and their duties.
    #[must_use]
    pub fn overview(&self) -> Arc<Overview> {
        match &self.0 {
            Kind::Single(node) => Arc::new(node.overview()),
            Kind::Shared(shared) => shared.overview(),
        }
    }

    /// Returns a receiver that is notified when a node has modified a subscription; `None` for the only node.
    #[must_use]
    pub fn subscription_revisions(&self) -> Option<watch::Receiver<u64>> {
        match &self.0 {
            Kind::Single(_) => None,
            Kind::Shared(shared) => Some(shared.subscription_revision.subscribe()),
        }
    }

    /// Returns a receiver that is notified when a node has modified a harvest, or requested a run; `None` for the only node.
    #[must_use]
    pub fn harvest_revisions(&self) -> Option<watch::Receiver<u64>> {
        match &self.0 {
            Kind::Single(_) => None,
            Kind::Shared(shared) => Some(shared.harvest_revision.subscribe()),
        }
    }
}

impl SingleNode {
    /// Lists a duty until the guard is dropped.
    fn list(self: &Arc<Self>, name: DutyName) -> ListedDuty {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), Timestamp::now());
        ListedDuty { node: Arc::clone(self), name }
    }

    fn overview(&self) -> Overview {
        let duties = self.duties.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Overview::of_single(&self.name, self.address.as_deref(), self.started, duties)
    }
}

/// Lists a duty of the only node until it is dropped.
struct ListedDuty {
    node: Arc<SingleNode>,
    name: DutyName,
}

impl Drop for ListedDuty {
    fn drop(&mut self) {
        self.node.duties.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Registers a node. If the name belongs to a run that does not renew its lease, waits until the lease has ended.
/// Returns the time before the request.
fn register(
    table: &mut dyn NodeTable,
    observer: &mut Observer,
    node: &NewNode,
) -> Result<std::time::Instant, JoinError> {
    let mut former_run = None;
    loop {
        observer::look(table, observer, node.instance)?;
        let began = std::time::Instant::now();
        match table.register(node)? {
            Registration::Registered => return Ok(began),
            Registration::NameTaken { by, renewed } => {
                if former_run.is_some_and(|former| former != (by, renewed)) {
                    return Err(JoinError::NameInUse(node.name.clone()));
                }
                let remaining = observer.remaining(by, std::time::Instant::now()).unwrap_or_default();
                if former_run.is_none() {
                    let seconds = remaining.as_secs_f64();
                    tracing::info!(node = %node.name, seconds, "waiting for the lease of a node with the same name");
                }
                former_run = Some((by, renewed));
                std::thread::sleep(remaining.clamp(Duration::from_millis(10), REGISTRATION_PAUSE));
            }
        }
    }
}

/// Waits until this node has the duty; returns `None` if the node or the component stops before.
async fn wait_for_tenure(request: &mut DutyRequest, shared: &Shared, stop: &CancellationToken) -> Option<Tenure> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        () = shared.leaving.cancelled() => None,
        term = request.granted() => Some(Tenure::of(term, stop.child_token(), shared.trusted_until.subscribe())),
    }
}

/// End of the work of a duty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    /// The work returned although nothing asked it to.
    ByItself,
    /// The work finished on request, or was dropped because the duty was lost.
    OnRequest,
}

/// Runs the work of one tenure and gives the duty back. Drops the work if the duty is lost.
async fn run_tenure(
    request: &DutyRequest,
    shared: &Shared,
    tenure: &Tenure,
    mut work: Pin<Box<impl Future<Output = ()>>>,
) -> Completion {
    {
        let mut lost = pin!(request.lost(tenure));
        let mut recalled = pin!(request.recalled(tenure));
        loop {
            tokio::select! {
                biased;
                () = &mut lost => {
                    tracing::debug!(duty = %request.name(), "this node has lost a duty; its work has stopped");
                    break;
                }
                () = tenure.while_trusted(work.as_mut()) => break,
                () = &mut recalled, if !tenure.stop().is_cancelled() => tenure.stop().cancel(),
                () = shared.leaving.cancelled(), if !tenure.stop().is_cancelled() => tenure.stop().cancel(),
            }
        }
    }
    // Before another node can take the duty.
    drop(work);
    let is_requested = tenure.stop().is_cancelled() || request.has_lost(tenure);
    request.give_back(tenure);
    if is_requested { Completion::OnRequest } else { Completion::ByItself }
}

#[cfg(test)]
mod tests;
