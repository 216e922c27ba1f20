//! Runs the audits on the node that has the duty.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Audits,
    audits::{AuditedSource, PAUSE},
    datasets::DatasetWalk,
    harvested::HarvestWalk,
    progress::{self, Progress, WalkError},
    report::{AuditRequest, AuditState, StoredAudit},
    walk::{AuditStop, Walk},
};
use crate::{
    cluster::{Cluster, Tenure},
    harvest::Harvests,
    journal::{Journal, JournalError, nodes::DutyName},
    model::{SourceName, Timestamp},
};

/// Maximum number of audits at a time. Each has a thread, because it parses the responses of the repository.
const AT_ONCE: usize = 4;

/// Maximum time between two looks at the requests and at the schedules.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Time after which a scheduled audit that has failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Wait after the journal has failed.
const JOURNAL_PAUSE: Duration = Duration::from_secs(1);

/// Runner of the audits.
pub struct AuditRunner {
    audits: Audits,
    cluster: Cluster,
}

/// Audits that run on this node.
#[derive(Default)]
struct Running {
    stops: BTreeMap<SourceName, RunningAudit>,
    tasks: JoinSet<SourceName>,
}

/// An audit that runs.
struct RunningAudit {
    id: Uuid,
    /// Stops it.
    token: CancellationToken,
}

impl AuditRunner {
    /// Creates the runner of these audits.
    #[must_use]
    pub fn new(audits: Audits, cluster: Cluster) -> Self {
        Self { audits, cluster }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let work = |tenure: Tenure| {
            let (audits, revisions) = (self.audits.clone(), self.cluster.harvest_revisions());
            async move { run_tenure(&audits, &tenure, revisions).await }
        };
        self.cluster.run_duty(DutyName::audits(), &stop, work).await;
    }
}

/// Runs audits for one tenure of the duty.
async fn run_tenure(audits: &Audits, tenure: &Tenure, mut revisions: Option<watch::Receiver<u64>>) {
    let journal = audits.0.journal.under(tenure.term());
    if tenure.term().is_some() && tenure.stop().run_until_cancelled(journal.until_losses_are_known()).await.is_none() {
        return;
    }
    let mut running = Running::default();
    loop {
        if let Err(error) = look(audits, &journal, &mut running, tenure.stop()).await {
            tracing::debug!(%error, "cannot read the requests of audits; retrying");
        }
        let revised = async {
            match &mut revisions {
                Some(revisions) => {
                    if revisions.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tenure.stop().cancelled() => break,
            () = audits.0.wake.notified() => {}
            () = revised => {}
            () = sleep(LOOK_EVERY) => {}
            Some(ended) = running.tasks.join_next() => if let Ok(source) = ended {
                running.stops.remove(&source);
                forget_removed(audits, &journal, &source).await;
            },
        }
    }
    // The audits save their positions.
    while running.tasks.join_next().await.is_some() {}
    // Another node shows the results from now on.
    audits.0.forget(|_| true);
}

/// Removes what an audit has written after its harvest was removed.
async fn forget_removed(audits: &Audits, journal: &Journal, name: &SourceName) {
    if audits.0.sources().contains_key(name) {
        return;
    }
    match audits.0.remove(journal, name).await {
        Ok(()) => tracing::info!(source = %name, "the audits of a removed harvest are removed"),
        Err(error) => tracing::warn!(source = %name, %error, "the audits of a removed harvest cannot be removed"),
    }
}

/// Starts the audits that are requested or due, and stops those that shall stop.
async fn look(
    audits: &Audits,
    journal: &Journal,
    running: &mut Running,
    stop: &CancellationToken,
) -> Result<(), JournalError> {
    let sources = audits.0.sources();
    // A harvest can be removed while its audit runs.
    running.stops.iter().filter(|(name, _)| !sources.contains_key(*name)).for_each(|(_, stop)| stop.token.cancel());
    audits.0.forget(|name| !sources.contains_key(name));
    for (name, audited) in &sources {
        let seen = audits.0.request(name).await?;
        if let Some(stop) = running.stops.get(name) {
            // Another audit replaces it.
            if seen.is_none_or(|request| request.stop || request.id != stop.id) {
                stop.token.cancel();
            }
            continue;
        }
        let stored = audits.0.stored(name).await?;
        if let Some(result) = stored.as_ref().and_then(StoredAudit::last_result) {
            audits.0.publish(name, result);
        }
        if running.stops.len() >= AT_ONCE {
            continue;
        }
        let due = seen.clone().filter(|request| is_due(request, stored.as_ref()));
        let request = match due {
            Some(request) => request,
            None => match scheduled(audited.every, stored.as_ref()) {
                Some(request) if audits.0.write_scheduled(journal, name, seen.as_ref(), &request).await? => request,
                Some(_) | None => continue,
            },
        };
        let same = stored.clone().filter(|stored| stored.report.id == request.id);
        let mut audit = same.unwrap_or_else(|| StoredAudit::of(&request, stored.as_ref()));
        audit.attempt = request.attempt;
        let stop = AuditStop { duty: stop.clone(), audit: stop.child_token() };
        running.stops.insert(name.clone(), RunningAudit { id: request.id, token: stop.audit.clone() });
        let (audited, journal, harvests) = (audited.clone(), journal.clone(), audits.0.harvests.clone());
        let task = Task { audited, harvests, journal, audit, request, stop };
        running.tasks.spawn(task.run());
    }
    Ok(())
}

/// Returns whether an audit must run for a request.
fn is_due(request: &AuditRequest, stored: Option<&StoredAudit>) -> bool {
    let stored = stored.filter(|stored| stored.report.id == request.id);
    !request.stop
        && stored.is_none_or(|stored| match stored.report.state {
            AuditState::Requested | AuditState::Running => true,
            AuditState::Stopped | AuditState::Failed => stored.attempt < request.attempt,
            AuditState::Complete => false,
        })
}

/// Returns the request of a scheduled audit that is due.
fn scheduled(every: Option<Duration>, stored: Option<&StoredAudit>) -> Option<AuditRequest> {
    let every = every?;
    let now = Timestamp::now();
    let is_over = |since: Timestamp, wait: Duration| {
        u128::try_from(now.millis() - since.millis()).is_ok_and(|age| age >= wait.as_millis())
    };
    let fresh = AuditRequest {
        id: Uuid::new_v4(),
        requested: now,
        sample: None,
        repair: false,
        max_deleted_percent: 0,
        pause: PAUSE,
        attempt: 0,
        stop: false,
    };
    let Some(stored) = stored else { return Some(fresh) };
    let (report, last) = (&stored.report, stored.last_result());
    match report.state {
        AuditState::Requested | AuditState::Running => None,
        AuditState::Failed if !is_over(report.updated, TRY_AGAIN.min(every)) => None,
        // Nobody has asked the schedule for corrections or a sample, so it continues neither.
        AuditState::Failed if !report.repair && report.sample.is_none() => {
            Some(AuditRequest { id: report.id, requested: report.started, attempt: stored.attempt + 1, ..fresh })
        }
        // An administrator has decided about this one. The next one comes at its time.
        AuditState::Stopped if report.sample.is_none() => is_over(report.started, every).then_some(fresh),
        AuditState::Stopped | AuditState::Failed | AuditState::Complete => {
            last.is_none_or(|last| is_over(last.started, every)).then_some(fresh)
        }
    }
}

/// An audit to run.
struct Task {
    audited: AuditedSource,
    harvests: Harvests,
    journal: Journal,
    audit: StoredAudit,
    request: AuditRequest,
    stop: AuditStop,
}

impl Task {
    /// Runs the audit on a blocking thread, and returns the name of its source.
    async fn run(self) -> SourceName {
        let name = self.audited.source.name().clone();
        // If the duty is lost, this future is dropped, and the thread must end.
        let _stop = self.stop.audit.clone().drop_guard();
        let handle = Handle::current();
        let (journal, audit) = (self.journal.clone(), self.audit.clone());
        // A panic is logged by the hook of the process. The audit would perhaps meet it again for ever.
        if spawn_blocking(move || handle.block_on(self.walk())).await.is_err() {
            let error = WalkError::Harvest("the program has an error here; the log has it".to_owned());
            let _ = progress::fail(&journal, &name, audit, &error).await;
        }
        name
    }

    async fn walk(self) {
        let (name, id) = (self.audited.source.name().clone(), self.request.id);
        let (journal, audit, stop) = (self.journal.clone(), self.audit.clone(), self.stop.clone());
        tracing::info!(source = %name, audit = %id, "an audit begins");
        let result = match self.compare().await {
            // Nothing was written before.
            Err(Begun::No(error)) => progress::fail(&journal, &name, audit, &error).await.and(Err(error)),
            Err(Begun::Yes(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match result {
            Ok(()) => tracing::info!(source = %name, audit = %id, "an audit is complete"),
            Err(WalkError::Stopped) => tracing::info!(source = %name, audit = %id, "an audit is stopped"),
            Err(WalkError::Journal(error)) if error.is_transient() => {
                tracing::debug!(source = %name, %error, "an audit waits for the journal");
                let _ = stop.audit.run_until_cancelled(sleep(JOURNAL_PAUSE)).await;
            }
            Err(error) => tracing::warn!(source = %name, audit = %id, %error, "an audit has failed"),
        }
    }

    async fn compare(self) -> Result<(), Begun> {
        let Self { audited, harvests, journal, audit, request, stop } = self;
        let source = Arc::clone(&audited.source);
        let name = source.name().clone();
        let progress = Progress::new(journal, source, audit);
        if let Some(settings) = &audited.repository {
            let walk = Walk::new(settings, progress, &request).await.map_err(Begun::No)?;
            return walk.run(&stop).await.map_err(Begun::Yes);
        }
        if let Some(jobs) = harvests.jobs(&name) {
            return DatasetWalk::new(jobs, progress, &request).run(&stop).await.map_err(Begun::Yes);
        }
        let harvester = harvests.reader(&name).await.map_err(|error| Begun::No(error.into()))?;
        let gone = || Begun::No(WalkError::Harvest("the harvest was removed".to_owned()));
        let walk = HarvestWalk::new(harvester.ok_or_else(gone)?, progress, &request);
        walk.run(&stop).await.map_err(Begun::Yes)
    }
}

/// Error of an audit that has begun, and has written how it has ended, or of one that has not.
enum Begun {
    Yes(WalkError),
    No(WalkError),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::{AuditRequest, AuditState, PAUSE, StoredAudit, Timestamp, scheduled};

    fn request(sample: Option<u32>, repair: bool) -> AuditRequest {
        let (id, requested) = (Uuid::new_v4(), Timestamp::EPOCH);
        let max_deleted_percent = 20;
        AuditRequest { id, requested, sample, repair, max_deleted_percent, pause: PAUSE, attempt: 3, stop: false }
    }

    fn failed(sample: Option<u32>, repair: bool) -> StoredAudit {
        let mut stored = StoredAudit::of(&request(sample, repair), None);
        (stored.report.state, stored.report.updated) = (AuditState::Failed, Timestamp::EPOCH);
        stored
    }

    /// A sample or a stopped audit says nothing about the last complete one, which counts for the schedule.
    #[test]
    fn schedule_follows_the_last_complete_audit() {
        let every = Some(Duration::from_secs(3600));
        let complete_at = |started: Timestamp| {
            let mut stored = failed(None, false);
            (stored.report.state, stored.report.started) = (AuditState::Complete, started);
            stored
        };
        let after = |former: &StoredAudit, sample, state| {
            let mut stored = StoredAudit::of(&request(sample, false), Some(former));
            stored.report.state = state;
            stored
        };
        let (old, new) = (complete_at(Timestamp::EPOCH), complete_at(Timestamp::now()));
        for state in [AuditState::Complete, AuditState::Stopped, AuditState::Failed] {
            assert!(scheduled(every, Some(&after(&old, Some(10), state))).is_some(), "{state:?}");
            assert!(scheduled(every, Some(&after(&new, Some(10), state))).is_none(), "{state:?}");
        }
        let sample = after(&new, Some(10), AuditState::Complete);
        assert_eq!(sample.last_result(), new.report.result());
        // A complete audit that was stopped is followed by another one at its time, and not at once.
        let mut stopped = after(&new, None, AuditState::Stopped);
        assert!(scheduled(every, Some(&stopped)).is_some());
        stopped.report.started = Timestamp::now();
        assert!(scheduled(every, Some(&stopped)).is_none());
    }

    /// Corrections and samples are an administrator's decision.
    #[test]
    fn schedule_continues_only_its_own_audits() {
        let every = Some(Duration::from_secs(3600));
        let next = |stored: &StoredAudit| scheduled(every, Some(stored)).unwrap();
        let own = failed(None, false);
        assert_eq!((next(&own).id, next(&own).attempt), (own.report.id, 4));
        for other in [failed(None, true), failed(Some(10), false)] {
            let fresh = next(&other);
            assert!(fresh.id != other.report.id && !fresh.repair && fresh.sample.is_none());
        }
        assert!(scheduled(None, Some(&own)).is_none());
    }
}
