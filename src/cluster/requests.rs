//! Duties that the components of this node want, and their assignments. Components and the thread of the node share
//! this state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Tenure, overview::Overview, placement};
use crate::journal::nodes::{DutyName, Term};

/// State that the components of this node share with the node's thread.
pub(super) struct Shared {
    requests: Mutex<Requests>,
    /// End of this node's trust in its lease.
    pub(super) trusted_until: watch::Sender<Instant>,
    /// Cancelled when this node hands its duties over.
    pub(super) leaving: CancellationToken,
    /// Cancelled when the duties of this node have ended.
    pub(super) left: CancellationToken,
    pub(super) subscription_revision: watch::Sender<u64>,
    pub(super) harvest_revision: watch::Sender<u64>,
    overview: Mutex<Arc<Overview>>,
    is_awake: Mutex<bool>,
    woken: Condvar,
}

/// Duties that components want, and terms to release.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) duties: BTreeMap<DutyName, RequestedDuty>,
    pub(super) ended: Vec<Term>,
    count: u64,
}

/// A duty that a component wants.
pub(super) struct RequestedDuty {
    id: u64,
    /// Hash of the duty's name.
    pub(super) hash: u64,
    pub(super) assignment: watch::Sender<Assignment>,
}

/// Whether this node has a requested duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// The node does not have the duty.
    Waiting,
    /// The node has the duty.
    Held(Term),
    /// The node has the duty and must hand it over.
    Recalled(Term),
}

impl Assignment {
    /// Returns the term, if the node has the duty.
    pub(super) fn term(self) -> Option<Term> {
        match self {
            Self::Waiting => None,
            Self::Held(term) | Self::Recalled(term) => Some(term),
        }
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            requests: Mutex::default(),
            trusted_until: watch::Sender::new(Instant::now()),
            leaving: CancellationToken::new(),
            left: CancellationToken::new(),
            subscription_revision: watch::Sender::new(0),
            harvest_revision: watch::Sender::new(0),
            overview: Mutex::default(),
            is_awake: Mutex::new(false),
            woken: Condvar::new(),
        }
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn overview(&self) -> Arc<Overview> {
        Arc::clone(&self.overview.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_overview(&self, overview: Overview) {
        *self.overview.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(overview);
    }

    /// Ends the thread of the node.
    pub(super) fn end(&self) {
        self.leaving.cancel();
        self.left.cancel();
        self.wake();
    }

    /// Wakes the thread of the node.
    pub(super) fn wake(&self) {
        *self.is_awake.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }

    /// Waits for a wake-up; returns whether there was one.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let is_awake = self.is_awake.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.woken.wait_timeout_while(is_awake, at_most, |is_awake| !*is_awake);
        let (mut is_awake, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *is_awake)
    }
}

/// The request of a component for a duty. Dropping it gives the duty back.
pub(super) struct DutyRequest {
    shared: Arc<Shared>,
    name: DutyName,
    id: u64,
    assignment: watch::Receiver<Assignment>,
}

impl DutyRequest {
    pub(super) fn new(shared: &Arc<Shared>, name: DutyName) -> Self {
        let (sender, assignment) = watch::channel(Assignment::Waiting);
        let mut requests = shared.requests();
        requests.count += 1;
        let id = requests.count;
        let duty = RequestedDuty { id, hash: placement::hash(name.as_str()), assignment: sender };
        requests.duties.insert(name.clone(), duty);
        drop(requests);
        shared.wake();
        Self { shared: Arc::clone(shared), name, id, assignment }
    }

    pub(super) fn name(&self) -> &DutyName {
        &self.name
    }

    /// Waits until the node has the duty. A busy node may be asked to hand the duty over before its component notices
    /// that it has the duty; the component must then give it back as well.
    pub(super) async fn granted(&mut self) -> Term {
        let granted = self.assignment.wait_for(|assignment| assignment.term().is_some()).await;
        match granted.ok().and_then(|granted| granted.term()) {
            Some(term) => term,
            // A newer request for the same duty has replaced this one.
            None => std::future::pending().await,
        }
    }

    /// Waits until the node has lost the duty, or does not trust its lease any more.
    pub(super) fn lost(&self, tenure: &Tenure) -> impl Future<Output = ()> + use<> {
        let (mut assignment, tenure) = (self.assignment.clone(), tenure.clone());
        async move {
            tokio::select! {
                _ = assignment.wait_for(|assignment| assignment.term() != tenure.term()) => {}
                () = tenure.untrusted() => {}
            }
        }
    }

    /// Waits until the node must hand the duty over.
    pub(super) fn recalled(&self, tenure: &Tenure) -> impl Future<Output = ()> + use<> {
        let (mut assignment, term) = (self.assignment.clone(), tenure.term());
        async move {
            let recalled = |assignment: &Assignment| matches!(assignment, Assignment::Recalled(recalled) if Some(*recalled) == term);
            if assignment.wait_for(recalled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns whether the node has lost the duty.
    pub(super) fn has_lost(&self, tenure: &Tenure) -> bool {
        self.assignment.borrow().term() != tenure.term() || !tenure.is_trusted()
    }

    /// Gives the duty back, after its work has ended.
    pub(super) fn give_back(&self, tenure: &Tenure) {
        let mut requests = self.shared.requests();
        if let Some(duty) = requests.duties.get(&self.name).filter(|duty| duty.id == self.id) {
            duty.assignment.send_replace(Assignment::Waiting);
        }
        requests.ended.extend(tenure.term());
        drop(requests);
        self.shared.wake();
    }
}

impl Drop for DutyRequest {
    fn drop(&mut self) {
        let mut requests = self.shared.requests();
        if let Some(duty) = requests.duties.get(&self.name).filter(|duty| duty.id == self.id) {
            let term = duty.assignment.borrow().term();
            requests.ended.extend(term);
            requests.duties.remove(&self.name);
        }
        drop(requests);
        self.shared.wake();
    }
}
