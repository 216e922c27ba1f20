//! Progress of a running audit: its report, its position, and what it writes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    audits::{report_row, stored_audit},
    bound, compare,
    report::{AuditState, StoredAudit},
};
use crate::{
    harvest::SetupError,
    http_client::ClientError,
    intake::{Corrections, Intake, SeedError, Source},
    journal::{Journal, JournalError, harvest::SourcePosition, registry::ObjectState},
    lookup::crawl::CrawlError,
    model::{ContentObjectModification, Draft, SourceName, Timestamp, Uri},
};

/// Time between two writes of the report.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Reason why a walk ends before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    /// The audit was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The repository fails.
    #[error(transparent)]
    Crawl(#[from] CrawlError),
    /// The repository of a harvest fails.
    #[error("{0}")]
    Harvest(String),
    /// The client of the repository cannot be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The harvester cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A correction exceeds a limit.
    #[error("{0}")]
    Refused(String),
    /// The journal fails.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl From<SeedError> for WalkError {
    fn from(error: SeedError) -> Self {
        match error {
            SeedError::TooLarge(rejection) => Self::Refused(rejection.reason),
            SeedError::Journal(error) => Self::Journal(error),
        }
    }
}

/// Report and position of a running audit.
pub(super) struct Progress {
    /// The journal, for the duty of audits.
    pub(super) journal: Journal,
    intake: Intake,
    /// The source.
    pub(super) source: Arc<Source>,
    /// The audit as the journal has it, or will have it.
    pub(super) audit: StoredAudit,
    /// The audit as it was written last. Its numbers belong to its position, while those of `audit` are ahead of it.
    written: StoredAudit,
    saved: Instant,
    /// Number of objects of the report that was written last.
    saved_objects: u64,
}

impl Progress {
    pub(super) fn new(journal: Journal, source: Arc<Source>, audit: StoredAudit) -> Self {
        let (intake, written) = (Intake::new(journal.clone()), audit.clone());
        Self { intake, journal, source, audit, written, saved: Instant::now(), saved_objects: 0 }
    }

    /// Returns the change that a draft of a harvest would make; `None` if it would make none. Facts that an audit does not compare
    /// make none.
    pub(super) fn preview(&self, draft: Draft, registered: &ObjectState) -> Option<ContentObjectModification> {
        self.source.preview(compare::comparable(draft, registered), registered)
    }

    /// Writes that the audit runs.
    pub(super) async fn begin(&mut self) -> Result<(), WalkError> {
        self.audit.report.state = AuditState::Running;
        self.audit.report.reason = None;
        self.save().await
    }

    /// Writes how the audit has ended. `goes_on` is true if it was interrupted and continues by itself.
    pub(super) async fn end(mut self, walked: Result<(), WalkError>, goes_on: bool) -> Result<(), WalkError> {
        if walked.is_err() {
            // The objects since the last position are counted again.
            self.audit = self.written.clone();
        }
        let report = &mut self.audit.report;
        match &walked {
            Ok(()) => {
                report.state = AuditState::Complete;
                if report.sample.is_some() {
                    report.at_most_percent = bound::upper_bound_percent(report.objects, report.differing_objects);
                }
            }
            // It continues when the journal has recovered. Damage stays.
            Err(WalkError::Journal(error)) if error.is_transient() => return walked,
            Err(WalkError::Stopped) if goes_on => {}
            Err(WalkError::Stopped) => report.state = AuditState::Stopped,
            Err(error) => {
                report.state = AuditState::Failed;
                report.reason = Some(error.to_string());
            }
        }
        self.save().await?;
        walked
    }

    /// Drops the findings of the audit, because it begins anew.
    pub(super) fn forget(&mut self) {
        let report = &mut self.audit.report;
        (report.objects, report.registered, report.differing_objects) = (0, 0, 0);
        (report.missing, report.different, report.extra) = (0, 0, 0);
        (report.unanswered, report.outside, report.unlisted) = (0, 0, 0);
        report.differences.clear();
        self.audit.pending.clear();
        self.audit.counted.clear();
        (self.audit.listed, self.audit.gone, self.audit.deleted) = (0, 0, 0);
    }

    /// Returns whether the source has reported the object first, and the object exists.
    pub(super) fn is_own(&self, state: &ObjectState) -> bool {
        state.source.as_ref() == Some(self.source.name()) && state.live_items().next().is_some()
    }

    /// Returns the registry's facts about an object.
    pub(super) async fn registered(&self, object: &Uri) -> Result<ObjectState, JournalError> {
        Ok(self.journal.object(object.clone()).await?.unwrap_or_default())
    }

    /// Appends corrections, and counts their changes.
    pub(super) async fn correct(&mut self, drafts: Vec<Draft>) -> Result<(), WalkError> {
        let Corrections { changes, refused } = self.intake.correct(&self.source, drafts).await?;
        let report = &mut self.audit.report;
        report.corrections += changes;
        report.refused += refused;
        if refused > 0 {
            let reason =
                "corrections were refused, because a limit or a rule of the journal forbids them; the log has them";
            report.reason = Some(format!("{} {reason}", report.refused));
        }
        Ok(())
    }

    /// Writes the report if it has changed, but not too often.
    pub(super) async fn save_sometimes(&mut self) -> Result<(), WalkError> {
        let is_due = self.saved.elapsed() >= SAVE_EVERY && self.saved_objects != self.audit.report.objects;
        if is_due { self.save().await } else { Ok(()) }
    }

    /// Writes the report with the position.
    pub(super) async fn save(&mut self) -> Result<(), WalkError> {
        save(&self.journal, self.source.name(), &mut self.audit).await?;
        (self.saved, self.saved_objects) = (Instant::now(), self.audit.report.objects);
        self.written = self.audit.clone();
        Ok(())
    }
}

/// Writes that an audit cannot begin, or that it has ended by an error of the program. Its written progress stays.
pub(super) async fn fail(
    journal: &Journal,
    source: &SourceName,
    mut audit: StoredAudit,
    error: &WalkError,
) -> Result<(), WalkError> {
    let written = stored_audit(journal, source).await?;
    if let Some(written) = written.filter(|written| written.report.id == audit.report.id) {
        audit = written;
    }
    audit.report.state = AuditState::Failed;
    audit.report.reason = Some(error.to_string());
    save(journal, source, &mut audit).await
}

async fn save(journal: &Journal, source: &SourceName, audit: &mut StoredAudit) -> Result<(), WalkError> {
    audit.report.updated = Timestamp::now();
    // Serialization fails only for maps without text keys, and the type has none.
    let position = serde_json::to_string(audit).unwrap_or_default().into();
    journal.append_positioned(Vec::new(), SourcePosition { source: report_row(source), position }).await?;
    Ok(())
}
