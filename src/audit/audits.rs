//! Starts, stops and shows audits. The journal has the request of each, written here, and the report, written by the node
//! that runs audits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use uuid::Uuid;

use super::{
    metrics,
    report::{AuditReport, AuditRequest, AuditResult, AuditState, StoredAudit},
};
use crate::{
    harvest::{Harvests, request_name},
    intake::Source,
    journal::{
        Journal, JournalError,
        harvest::{HarvestWrite, SourcePosition},
    },
    lookup::RepositorySettings,
    model::{SourceName, Timestamp},
};

/// Default of the greatest share of the registered objects that a correction may delete, in percent.
const MAX_DELETED_PERCENT: u64 = 20;

/// Default of the time after which a difference is looked at again, in seconds. The message about a change of the repository
/// arrives meanwhile.
pub(super) const PAUSE: u64 = 2;

/// Maximum number of sources that an error names.
const MAX_NAMES: usize = 20;

/// Settings of the audits of a source.
#[derive(Clone)]
pub struct AuditedSource {
    /// The source.
    pub source: Arc<Source>,
    /// Access to its repository; `None` for a harvest, which lists what it harvests.
    pub repository: Option<RepositorySettings>,
    /// Time between the starts of two complete audits; `None` if only administrators start them.
    pub every: Option<Duration>,
}

/// Options of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Number of random objects of the registry to compare; `None` for a complete audit.
    pub sample: Option<u32>,
    /// Whether to correct the registry.
    pub repair: bool,
    /// Greatest share of the registered objects that a correction may delete, in percent; `None` for the default.
    pub max_deleted_percent: Option<u64>,
    /// Time after which a difference is looked at again, in seconds; `None` for the default.
    pub pause: Option<u64>,
    /// Whether to begin anew if an earlier audit has not ended.
    pub restart: bool,
}

/// Reason why an audit cannot be started or shown.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The source does not exist, or its repository cannot be asked.
    #[error("the repository of the source {name} cannot be asked; {known}")]
    NotAudited {
        /// Name of the source.
        name: SourceName,
        /// The sources whose repositories can be asked.
        known: String,
    },
    /// Another audit of the source runs.
    #[error("another audit of the source {0} has not ended; stop it, or begin anew")]
    Running(SourceName),
    /// A sample cannot correct the registry.
    #[error("a sample cannot correct the registry; start a complete audit")]
    SampleRepairs,
    /// The repository has no requests for single objects.
    #[error(
        "a sample needs a repository that can be asked for single objects; the one of {0} cannot, so audit all of it"
    )]
    NoSample(SourceName),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Handle to the audits of all sources. Clones share the same state.
#[derive(Clone)]
pub struct Audits(pub(super) Arc<AuditsState>);

pub(super) struct AuditsState {
    pub(super) journal: Journal,
    configured: BTreeMap<SourceName, AuditedSource>,
    pub(super) harvests: Harvests,
    /// Results of the last complete audits of this node, for the status.
    results: Mutex<BTreeMap<SourceName, AuditResult>>,
    /// Wakes the runner of this node.
    pub(super) wake: Notify,
    /// Locked while a request is written, so that each is compared with the one before.
    operation: tokio::sync::Mutex<()>,
}

impl Audits {
    /// Creates the audits of these sources.
    #[must_use]
    pub fn new(journal: Journal, configured: BTreeMap<SourceName, AuditedSource>, harvests: Harvests) -> Self {
        let (wake, operation) = (Notify::new(), tokio::sync::Mutex::default());
        Self(Arc::new(AuditsState { journal, configured, harvests, results: Mutex::default(), wake, operation }))
    }

    /// Returns the results of the last complete audits that have left differences, as this node knows them.
    #[must_use]
    pub fn results(&self) -> BTreeMap<SourceName, AuditResult> {
        let results = self.0.results.lock().unwrap_or_else(PoisonError::into_inner);
        results
            .iter()
            .filter(|(_, result)| result.has_differences())
            .map(|(name, result)| (name.clone(), *result))
            .collect()
    }

    /// Returns the report of the newest audit of a source; `None` if there has been none.
    ///
    /// # Errors
    /// Fails if the source cannot be audited, or the journal fails.
    pub async fn report(&self, name: &SourceName) -> Result<Option<AuditReport>, AuditError> {
        self.check(name)?;
        let Some(request) = self.0.request(name).await? else { return Ok(None) };
        let stored = self.0.stored(name).await?;
        self.0.journal.until_published().await?;
        Ok(Some(request.report_of(stored)))
    }

    /// Starts an audit, or continues one with the same options that has not ended. Returns its report.
    ///
    /// # Errors
    /// Fails if the source cannot be audited, an audit with other options has not ended, or the journal fails.
    pub async fn start(&self, name: &SourceName, options: AuditOptions) -> Result<AuditReport, AuditError> {
        self.check(name)?;
        if options.repair && options.sample.is_some() {
            return Err(AuditError::SampleRepairs);
        }
        let has_repository = self.0.sources().get(name).is_some_and(|audited| audited.repository.is_some());
        let has_objects = || self.0.harvests.get(name).is_some_and(|harvest| harvest.requests_objects());
        if options.sample.is_some() && !has_repository && !has_objects() {
            return Err(AuditError::NoSample(name.clone()));
        }
        let _operation = self.0.operation.lock().await;
        let fresh = AuditRequest {
            id: Uuid::new_v4(),
            requested: Timestamp::now(),
            sample: options.sample,
            repair: options.repair,
            max_deleted_percent: options.max_deleted_percent.unwrap_or(MAX_DELETED_PERCENT),
            pause: options.pause.unwrap_or(PAUSE),
            attempt: 0,
            stop: false,
        };
        let before = self.0.request(name).await?;
        let stored = self.0.stored(name).await?;
        let state = |request: &AuditRequest| {
            let stored = stored.as_ref().filter(|stored| stored.report.id == request.id);
            stored.map_or(AuditState::Requested, |stored| stored.report.state)
        };
        let request = match before.filter(|before| state(before) != AuditState::Complete && !options.restart) {
            Some(before) if before.has_options_of(&fresh) => {
                AuditRequest { attempt: before.attempt + 1, stop: false, pause: fresh.pause, ..before }
            }
            Some(before) if !before.stop && state(&before) != AuditState::Failed => {
                return Err(AuditError::Running(name.clone()));
            }
            _ => fresh,
        };
        self.0.write_request(name, &request).await?;
        Ok(request.report_of(stored))
    }

    /// Stops the audit of a source, if one runs. It can be continued.
    ///
    /// # Errors
    /// Fails if the source cannot be audited, or the journal fails.
    pub async fn stop(&self, name: &SourceName) -> Result<(), AuditError> {
        self.check(name)?;
        let _operation = self.0.operation.lock().await;
        if let Some(request) = self.0.request(name).await?.filter(|request| !request.stop) {
            self.0.write_request(name, &AuditRequest { stop: true, ..request }).await?;
        }
        Ok(())
    }

    fn check(&self, name: &SourceName) -> Result<(), AuditError> {
        let sources = self.0.sources();
        if sources.contains_key(name) {
            return Ok(());
        }
        let names: Vec<_> = sources.keys().map(SourceName::as_str).take(MAX_NAMES).collect();
        let known = match sources.len() - names.len() {
            0 if names.is_empty() => "no source has one: give its url in [sources.NAME.repository]".to_owned(),
            0 => format!("only those of {} can", names.join(", ")),
            more => format!("only those of {} and {more} more can", names.join(", ")),
        };
        Err(AuditError::NotAudited { name: name.clone(), known })
    }
}

impl AuditsState {
    /// Returns all sources that can be audited: those of the configuration, and harvests that were made over HTTP.
    pub(super) fn sources(&self) -> BTreeMap<SourceName, AuditedSource> {
        let mut sources = self.configured.clone();
        for harvest in self.harvests.list().into_iter().filter(|harvest| harvest.can_be_audited()) {
            let source = Arc::clone(&harvest.source);
            let made = || AuditedSource { source, repository: None, every: None };
            sources.entry(harvest.source.name().clone()).or_insert_with(made);
        }
        sources
    }

    /// Forgets the results of sources.
    pub(super) fn forget(&self, is_gone: impl Fn(&SourceName) -> bool) {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| !is_gone(name));
    }

    /// Publishes the result of the last complete audit.
    pub(super) fn publish(&self, name: &SourceName, result: AuditResult) {
        metrics::complete(name, &result);
        self.results.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), result);
    }

    /// Reads the request of the newest audit.
    pub(super) async fn request(&self, name: &SourceName) -> Result<Option<AuditRequest>, JournalError> {
        let text = self.journal.source_position(request_row(name)).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Writes the request of an administrator, and wakes the runners of all nodes.
    async fn write_request(&self, name: &SourceName, request: &AuditRequest) -> Result<(), JournalError> {
        self.journal.append_positioned(Vec::new(), request.row(name)).await?;
        self.journal.write_harvest(request_row(name), HarvestWrite::Request(Timestamp::now())).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// Writes the request of the schedule for the duty of audits, unless an administrator has made another one than `seen`
    /// meanwhile. Returns whether it is written.
    pub(super) async fn write_scheduled(
        &self,
        journal: &Journal,
        name: &SourceName,
        seen: Option<&AuditRequest>,
        request: &AuditRequest,
    ) -> Result<bool, JournalError> {
        let _operation = self.operation.lock().await;
        if self.request(name).await?.as_ref() != seen {
            self.wake.notify_one();
            return Ok(false);
        }
        journal.append_positioned(Vec::new(), request.row(name)).await?;
        Ok(true)
    }

    /// Removes the audits of a harvest that was removed while one of them ran.
    pub(super) async fn remove(&self, journal: &Journal, name: &SourceName) -> Result<(), JournalError> {
        let _operation = self.operation.lock().await;
        for row in [request_row(name), report_row(name)] {
            journal.write_harvest(row, HarvestWrite::Remove).await?;
        }
        Ok(())
    }

    /// Reads the newest audit as its runner has written it.
    pub(super) async fn stored(&self, name: &SourceName) -> Result<Option<StoredAudit>, JournalError> {
        stored_audit(&self.journal, name).await
    }
}

/// Reads the newest audit of a source.
pub(super) async fn stored_audit(journal: &Journal, name: &SourceName) -> Result<Option<StoredAudit>, JournalError> {
    let text = journal.source_position(report_row(name)).await?;
    // An audit of another version begins anew.
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

impl AuditRequest {
    fn row(&self, name: &SourceName) -> SourcePosition {
        // Serialization fails only for maps without text keys, and the type has none.
        let position = serde_json::to_string(self).unwrap_or_default().into();
        SourcePosition { source: request_row(name), position }
    }
}

fn request_row(name: &SourceName) -> SourceName {
    request_name("audit", name)
}

/// Returns the name under which the journal has the report of a source.
pub(super) fn report_row(name: &SourceName) -> SourceName {
    request_name("report", name)
}
