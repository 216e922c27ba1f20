//! The thread of a node: renews the lease, takes the duties that belong to the node, and gives others back.
//!
//! It is a thread and no task, because renewals must not wait for a busy runtime, and the calls to the store block.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    absences::Absences,
    metrics,
    observer::{self, Look, Observer},
    overview::Overview,
    placement::Placement,
    requests::{Assignment, Shared},
    tenure::trusted_until,
};
use crate::{
    journal::{
        nodes::{DefinitionRevisions, DutyName, HeldDuty, NewNode, NodeTable, Registration, Survey, Term},
        store::StoreError,
    },
    model::Seq,
    outage::Outage,
    supervision::{Supervisor, Worker},
};

/// Maximum time between two looks at the nodes. A lapsed lease is noticed within this time.
const POLL: Duration = Duration::from_millis(500);

/// Pause after a failed call to the store.
const RETRY: Duration = Duration::from_millis(250);

/// Minimum pause before a look at a node whose lease is about to end, or that could not be removed yet.
const EXPIRY_PAUSE: Duration = Duration::from_millis(50);

/// Number of renewals per lease.
const RENEWALS: u32 = 3;

/// Thread of a node. [`MembershipThread::join`] ends it.
#[must_use = "the node has left when its thread has ended"]
pub struct MembershipThread {
    /// `None` only while the thread is joined.
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl MembershipThread {
    /// Has the node leave, and waits until it has left. Its duties have ended before.
    pub fn join(self) {
        drop(self);
    }
}

/// Leaves also if the gateway cannot start, so that its duties do not wait for the end of its lease.
impl Drop for MembershipThread {
    fn drop(&mut self) {
        self.shared.end();
        // A panic was reported to the supervisor; the lease of the node ends by itself.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State of the thread.
pub(super) struct Membership {
    table: Box<dyn NodeTable>,
    observer: Observer,
    shared: Arc<Shared>,
    node: NewNode,
    lease: Duration,
    head: Box<dyn Fn() -> Seq + Send>,
    /// Time before the last successful renewal; `None` if the node is not registered.
    renewed: Option<Instant>,
    /// Whether the store knows that this node is leaving.
    is_leave_known: bool,
    /// Time of the last look at all duties.
    looked: Option<Instant>,
    /// Live nodes at that time, each with whether it is leaving.
    nodes: Vec<(Uuid, bool)>,
    duties: Vec<HeldDuty>,
    absences: Absences,
    /// Whether the log says that the trust in the lease has ended.
    is_distrust_logged: bool,
    outage: Outage,
}

impl Membership {
    pub(super) fn new(
        table: Box<dyn NodeTable>,
        observer: Observer,
        shared: Arc<Shared>,
        node: NewNode,
        lease: Duration,
        head: Box<dyn Fn() -> Seq + Send>,
        registered: Instant,
    ) -> Self {
        shared.trusted_until.send_replace(trusted_until(registered, lease));
        Self {
            table,
            observer,
            shared,
            node,
            lease,
            head,
            renewed: Some(registered),
            is_leave_known: false,
            looked: None,
            nodes: Vec::new(),
            duties: Vec::new(),
            absences: Absences::default(),
            is_distrust_logged: false,
            outage: Outage::of("renew the lease of this node or read the other nodes"),
        }
    }

    /// Starts the thread.
    pub(super) fn start(self, supervisor: &Supervisor) -> std::io::Result<MembershipThread> {
        metrics::register();
        let (supervisor, shared) = (supervisor.clone(), Arc::clone(&self.shared));
        let run = move || {
            let _guard = supervisor.guard(Worker::Node, None);
            self.run();
        };
        let thread = std::thread::Builder::new().name(Worker::Node.name().to_owned()).spawn(run)?;
        Ok(MembershipThread { thread: Some(thread), shared })
    }

    fn run(mut self) {
        let mut is_woken = true;
        while !self.shared.left.is_cancelled() {
            let wait = match self.step(is_woken) {
                Ok(wait) => {
                    self.outage.works();
                    wait
                }
                Err(error) => {
                    self.note(&error);
                    RETRY
                }
            };
            is_woken = self.shared.wait(wait);
        }
        if let Err(error) = self.table.leave(self.node.instance) {
            tracing::warn!(%error, "cannot remove this node; its lease ends by itself");
        }
    }

    fn note(&mut self, error: &StoreError) {
        self.outage.failed(error);
        let is_trusted = self.renewed.is_none_or(|renewed| Instant::now() < trusted_until(renewed, self.lease));
        if !is_trusted && !std::mem::replace(&mut self.is_distrust_logged, true) {
            tracing::warn!("this node may have lost its lease, so it has stopped its duties");
        }
        // What the failed call did is unknown.
        self.looked = None;
    }

    /// Takes the next step: the lease, the duties, the other nodes. `is_woken` says that something has changed since the last step. Returns the time until the
    /// next step.
    pub(super) fn step(&mut self, is_woken: bool) -> Result<Duration, StoreError> {
        if !self.renew()? {
            return Ok(RETRY);
        }
        self.release()?;
        let Look { survey, has_expired } = observer::look(&mut *self.table, &mut self.observer, self.node.instance)?;
        self.absences.note_nodes(self.observer.take_gone(), &survey.nodes, Instant::now());
        metrics::set_lag(survey.head.0.saturating_sub((self.head)().0));
        let DefinitionRevisions { subscriptions, harvests } = survey.revisions;
        for (sender, new) in
            [(&self.shared.subscription_revision, subscriptions), (&self.shared.harvest_revision, harvests)]
        {
            sender.send_if_modified(|known| std::mem::replace(known, new) != new);
        }
        let nodes: Vec<_> = survey.nodes.iter().map(|node| (node.instance, node.is_leaving)).collect();
        let is_outdated = self.looked.is_none_or(|looked| looked.elapsed() >= self.lease / RENEWALS);
        if is_woken || is_outdated || has_expired || nodes != self.nodes {
            self.duties = self.table.duties()?;
            self.looked = Some(Instant::now());
            self.nodes = nodes;
            self.assign(&survey)?;
        }
        let lost = self.absences.lost();
        let without_node = self.absences.duties(self.lease, Instant::now());
        let overview = Overview::of_nodes(&survey, &self.duties, self.node.instance);
        self.shared.set_overview(Overview { lost, without_node, ..overview });
        let until_renewal =
            self.renewed.map_or(RETRY, |renewed| (self.lease / RENEWALS).saturating_sub(renewed.elapsed()));
        // A release in this step makes room for a takeover in the next one.
        let pause = if self.looked.is_none() { Duration::ZERO } else { POLL };
        let until_expiry = self.observer.next_expiry(self.node.instance, Instant::now()).unwrap_or(POLL);
        Ok(until_renewal.min(pause).min(until_expiry.max(EXPIRY_PAUSE)))
    }

    /// Renews the lease if it is time. Returns whether the node is registered.
    fn renew(&mut self) -> Result<bool, StoreError> {
        let Some(renewed) = self.renewed else { return self.register() };
        let is_leaving = self.shared.leaving.is_cancelled();
        let began = Instant::now();
        if began.duration_since(renewed) < self.lease / RENEWALS && is_leaving == self.is_leave_known {
            return Ok(true);
        }
        if self.table.renew(self.node.instance, (self.head)(), is_leaving)? {
            self.is_leave_known = is_leaving;
            self.trust(began);
            return Ok(true);
        }
        tracing::warn!(node = %self.node.name, "the lease of this node has ended before it was renewed");
        self.lose_all();
        self.register()
    }

    /// Registers the node again after its lease has ended, as a new run.
    fn register(&mut self) -> Result<bool, StoreError> {
        if self.shared.leaving.is_cancelled() {
            return Ok(false);
        }
        self.renewed = None;
        self.node.instance = Uuid::new_v4();
        self.node.head = (self.head)();
        observer::look(&mut *self.table, &mut self.observer, self.node.instance)?;
        let began = Instant::now();
        match self.table.register(&self.node)? {
            Registration::Registered => {
                tracing::info!(node = %self.node.name, "this node has joined the journal's nodes again");
                self.is_leave_known = false;
                self.trust(began);
                Ok(true)
            }
            Registration::NameTaken { .. } => Err(StoreError::Unavailable(format!(
                "another node has taken the name {} while this one did not renew its lease",
                self.node.name
            ))),
        }
    }

    fn trust(&mut self, requested: Instant) {
        self.renewed = Some(requested);
        self.is_distrust_logged = false;
        self.shared.trusted_until.send_replace(trusted_until(requested, self.lease));
    }

    /// Takes all duties away from the components, because the lease has ended.
    fn lose_all(&mut self) {
        let mut requests = self.shared.requests();
        let mut lost = 0;
        for duty in requests.duties.values() {
            lost += usize::from(duty.assignment.send_replace(Assignment::Waiting).term().is_some());
        }
        requests.ended.clear();
        metrics::count_losses(lost);
    }

    /// Releases the duties whose work has ended.
    fn release(&mut self) -> Result<(), StoreError> {
        let ended = std::mem::take(&mut self.shared.requests().ended);
        if ended.is_empty() {
            return Ok(());
        }
        self.looked = None;
        self.table.release(&ended).inspect_err(|_| self.shared.requests().ended.extend(ended.iter().copied()))
    }

    /// Compares the duties with the requests: takes duties that belong to this node, and recalls those that belong to
    /// another one.
    fn assign(&mut self, survey: &Survey) -> Result<(), StoreError> {
        let this = self.node.instance;
        let placement = Placement::new(&survey.nodes);
        let held: HashMap<&DutyName, &HeldDuty> = self.duties.iter().map(|duty| (&duty.name, duty)).collect();
        let (mut wanted, mut lost, mut recalled, mut unused) = (Vec::new(), 0, 0, HashSet::new());
        {
            let requests = self.shared.requests();
            for (name, request) in &requests.duties {
                let assignment = *request.assignment.borrow();
                let is_own = placement.owner(name, request.hash) == Some(this);
                match (assignment.term(), held.get(name)) {
                    (Some(term), Some(duty)) if duty.term == term => {
                        // Nobody else can have it while no node is able to.
                        let has_other_owner = !is_own && placement.owner(name, request.hash).is_some();
                        if has_other_owner && assignment == Assignment::Held(term) {
                            tracing::debug!(duty = %name, "handing a duty over to another node");
                            recalled += 1;
                            request.assignment.send_replace(Assignment::Recalled(term));
                        }
                    }
                    (Some(_), _) => {
                        lost += 1;
                        request.assignment.send_replace(Assignment::Waiting);
                    }
                    (None, None) if is_own => wanted.push(name.clone()),
                    (None, _) => {}
                }
            }
            // A takeover whose outcome this node never learned, or work that has just ended.
            let in_use: BTreeMap<_, _> = requests
                .duties
                .iter()
                .filter_map(|(name, request)| Some((name, request.assignment.borrow().term()?)))
                .collect();
            unused.extend(
                self.duties
                    .iter()
                    .filter(|duty| duty.holder == this && in_use.get(&duty.name) != Some(&duty.term))
                    .map(|duty| duty.term),
            );
        }
        metrics::count_losses(lost);
        if lost > 0 {
            tracing::info!(duties = lost, "duties of this node were ended by another node");
        }
        if recalled > 0 {
            tracing::info!(duties = recalled, "handing duties over to other nodes");
        }
        if !unused.is_empty() {
            self.table.release(&unused.into_iter().collect::<Vec<_>>())?;
            self.looked = None;
        }
        if !wanted.is_empty() && !self.shared.leaving.is_cancelled() {
            let taken = self.table.take(this, &wanted)?;
            if !taken.is_empty() {
                self.grant(taken);
                self.duties = self.table.duties()?;
            }
        }
        let held: HashSet<&DutyName> = self.duties.iter().map(|duty| &duty.name).collect();
        let owner_of = |name: &DutyName, hash| {
            let owner = placement.owner(name, hash)?;
            survey.nodes.iter().find(|node| node.instance == owner).map(|node| node.name.clone())
        };
        let without_node: Vec<_> = {
            let requests = self.shared.requests();
            let vacant = requests.duties.iter().filter(|(name, _)| !held.contains(name));
            vacant.filter_map(|(name, request)| Some((name.clone(), owner_of(name, request.hash)?))).collect()
        };
        self.absences.note_duties(without_node, Instant::now());
        metrics::set_duties(self.duties.iter().filter(|duty| duty.holder == this).count());
        Ok(())
    }

    /// Gives duties to the components that want them.
    fn grant(&self, taken: Vec<(DutyName, Term)>) {
        metrics::count_takeovers(taken.len());
        tracing::info!(duties = taken.len(), "this node has taken duties");
        let mut requests = self.shared.requests();
        for (name, term) in taken {
            tracing::debug!(duty = %name, "this node has taken a duty");
            match requests.duties.get(&name) {
                Some(request) => {
                    request.assignment.send_replace(Assignment::Held(term));
                }
                // The component has withdrawn its request meanwhile.
                None => requests.ended.push(term),
            }
        }
    }
}
