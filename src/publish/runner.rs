//! Runs on the node that has the duty: at intervals, and when an administrator asks for one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::Serialize;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use utoipa::ToSchema;

use super::{
    Face, PublicationSettings,
    run::{RunError, Work, Written},
};
use crate::{
    cluster::{Cluster, Tenure},
    journal::{Journal, nodes::DutyName},
    model::Timestamp,
    outage::Outage,
    web::Spool,
};

/// State of the published copy.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PublicationState {
    /// URL under which the copy is served.
    pub url: String,
    /// Folder or bucket of the copy.
    pub location: String,
    /// Whether this node writes the copy. Of several nodes, one does.
    pub here: bool,
    /// Whether documents of another view can be in the copy: no run of this node has removed them yet.
    pub former_view: bool,
    /// Number of runs that were requested at this node.
    pub requested: u64,
    /// Number of these requests that a later run has answered.
    pub answered: u64,
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Run)]
    pub last: Option<Run>,
}

/// A run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PublicationRun)]
pub struct Run {
    /// Time of its end.
    pub ended: Timestamp,
    /// Number of the newest change in the copy. Absent if the run has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    pub head: Option<u64>,
    /// Number of documents that were written.
    pub documents: u64,
    /// Size of their files, in bytes.
    pub bytes: u64,
    /// Number of files that were removed.
    pub removed: u64,
    /// Why the run has failed. The next one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    pub error: Option<String>,
}

/// The published copy, for those who ask for its state and for a run. Clones share it.
#[derive(Clone)]
pub struct Publication(Arc<Shared>);

struct Shared {
    wake: Notify,
    state: watch::Sender<PublicationState>,
}

impl Publication {
    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> PublicationState {
        self.0.state.borrow().clone()
    }

    /// Asks for a run, and returns the state with this request; `None` if this node does not write the copy. If a run goes on,
    /// another one follows.
    #[must_use]
    pub fn request(&self) -> Option<PublicationState> {
        let mut requested = None;
        self.0.state.send_modify(|state| {
            if state.here {
                state.requested += 1;
                requested = Some(state.clone());
            }
        });
        if requested.is_some() {
            self.0.wake.notify_one();
        }
        requested
    }
}

/// Runner of the runs.
pub struct PublicationRunner {
    work: Work,
    cluster: Cluster,
    shared: Arc<Shared>,
}

impl PublicationRunner {
    /// Creates the runner of a copy of these faces.
    #[must_use]
    pub fn new(
        settings: PublicationSettings,
        faces: Vec<Arc<dyn Face>>,
        (journal, cluster): (Journal, Cluster),
        spool: Spool,
    ) -> (Publication, Self) {
        let (url, location) = (settings.url.clone(), settings.location.to_string());
        let (requested, answered, last) = (0, 0, None);
        let state = PublicationState { url, location, here: false, former_view: true, requested, answered, last };
        let (state, _) = watch::channel(state);
        let shared = Arc::new(Shared { wake: Notify::new(), state });
        let work = Work { journal, spool, faces, settings, has_only_this_view: AtomicBool::new(false) };
        (Publication(Arc::clone(&shared)), Self { work, cluster, shared })
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: tokio_util::sync::CancellationToken) {
        let runner = Arc::new(self);
        let work = |tenure: Tenure| {
            let runner = Arc::clone(&runner);
            async move {
                runner.shared.state.send_modify(|state| state.here = true);
                let _here = Here(&runner.shared);
                runner.run_tenure(&tenure).await;
            }
        };
        runner.cluster.run_duty(DutyName::publication(), &stop, work).await;
    }

    async fn run_tenure(&self, tenure: &Tenure) {
        let losses = self.work.journal.until_losses_are_known();
        if tenure.term().is_some() && tenure.stop().run_until_cancelled(losses).await.is_none() {
            return;
        }
        let outage = Outage::of("write the published copy");
        loop {
            let next = Instant::now() + self.work.settings.interval;
            // A request that comes during the run is answered by the next one.
            let requested = self.shared.state.borrow().requested;
            match self.work.run(tenure.stop()).await {
                Ok(written) => {
                    outage.works();
                    let Written { head, documents, bytes, removed } = written;
                    if documents > 0 {
                        tracing::info!(head, documents, bytes, removed, "the published copy is up to date");
                    }
                    self.ended(requested, written, None);
                }
                Err(RunError::Stopped) => return,
                Err(error) => {
                    outage.failed(&error);
                    self.ended(requested, Written::default(), Some(error.to_string()));
                }
            }
            tokio::select! {
                () = tenure.stop().cancelled() => return,
                () = self.shared.wake.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn ended(&self, answered: u64, written: Written, error: Option<String>) {
        let Written { head, documents, bytes, removed } = written;
        let head = error.is_none().then_some(head);
        let former_view = !self.work.has_only_this_view.load(Ordering::Relaxed);
        self.shared.state.send_modify(|state| {
            (state.answered, state.former_view) = (answered, former_view);
            state.last = Some(Run { ended: Timestamp::now(), head, documents, bytes, removed, error });
        });
    }
}

/// Says that this node writes the copy, until it is dropped.
struct Here<'s>(&'s Shared);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.here = false);
    }
}
