//! Findings of an audit, and the position at which it continues.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model::{Timestamp, Uri};

/// Maximum number of differences that a report lists. Its numbers count all of them.
const MAX_LISTED: usize = 1000;

/// Maximum number of objects whose differences are remembered as counted.
const MAX_COUNTED: usize = 10_000;

/// Maximum size of the listed differences, in bytes of URIs.
const MAX_LISTED_BYTES: usize = 256 << 10;

named_values! {
    /// State of an audit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum AuditState {
        /// The node that runs audits has not begun yet.
        Requested = "requested",
        /// The audit runs.
        Running = "running",
        /// An administrator has stopped the audit. Another request continues it.
        Stopped = "stopped",
        /// The audit has compared everything.
        Complete = "complete",
        /// The audit could not continue. Another request tries again.
        Failed = "failed",
    }
}

/// Numbers of the differences that a complete audit has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditResult {
    /// Start of the audit.
    pub started: Timestamp,
    /// End of the audit.
    pub at: Timestamp,
    /// Number of missing items.
    pub missing: u64,
    /// Number of different items.
    pub different: u64,
    /// Number of extra items.
    pub extra: u64,
}

impl AuditResult {
    pub(super) fn has_differences(&self) -> bool {
        self.missing + self.different + self.extra > 0
    }
}

named_values! {
    /// Kind of a difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum DifferenceKind {
        /// The repository has the item, and the registry lacks it.
        Missing = "missing",
        /// Both have the item, with other content or another state.
        Different = "different",
        /// The registry has the item, and the repository does not.
        Extra = "extra",
    }
}

/// Part of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The list of the repository is compared with the registry.
    Repository,
    /// The registry is compared with the repository.
    Registry,
    /// Objects that the repository does not have are deleted.
    Deletions,
}

/// Difference between the repository and the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Kind of the difference.
    pub kind: DifferenceKind,
    /// URI of the object.
    pub object: Uri,
    /// URI of the item.
    pub item: Uri,
    /// Members that differ, such as `state` and `content.size`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub members: Vec<String>,
}

/// An audit of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Identifier of the audit. The events of its corrections begin with `audit:` and this identifier.
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    /// State of the audit.
    pub state: AuditState,
    /// Reason of a failure, or why extra objects were not deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// Time of the start.
    pub started: Timestamp,
    /// Time of this report.
    pub updated: Timestamp,
    /// Number of random objects to compare; absent for a complete audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sample: Option<u32>,
    /// Whether the audit corrects the registry.
    pub repair: bool,
    /// Part of the audit that runs, or has run last.
    pub phase: Phase,
    /// Number of objects that were compared.
    pub objects: u64,
    /// Number of objects of the source in the registry that were looked at.
    pub registered: u64,
    /// Number of objects about which the repository has no usable answer.
    pub unanswered: u64,
    /// Number of objects in the registry that are outside of the repository.
    pub outside: u64,
    /// Number of objects of the source in the registry that were not judged, because the list of the harvest does not have
    /// them and may lack objects that exist. A feed shows only its newest entries, for example.
    #[serde(default)]
    pub unlisted: u64,
    /// Number of missing items.
    pub missing: u64,
    /// Number of different items.
    pub different: u64,
    /// Number of extra items.
    pub extra: u64,
    /// Number of objects with a difference.
    pub differing_objects: u64,
    /// Number of changes that the audit has made.
    pub corrections: u64,
    /// Number of corrections that were refused.
    #[serde(default)]
    pub refused: u64,
    /// Upper bound of the share of differing objects, in percent, with a confidence of 95 %; absent for a complete audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub at_most_percent: Option<f64>,
    /// The first thousand differences.
    pub differences: Vec<Difference>,
}

/// Request of an audit, as the journal stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AuditRequest {
    pub(super) id: Uuid,
    pub(super) requested: Timestamp,
    pub(super) sample: Option<u32>,
    pub(super) repair: bool,
    pub(super) max_deleted_percent: u64,
    /// Time after which a difference is looked at again, in seconds.
    pub(super) pause: u64,
    /// Number of times that the audit was requested to continue.
    pub(super) attempt: u32,
    pub(super) stop: bool,
}

/// An audit with its position, as the journal stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredAudit {
    pub(super) report: AuditReport,
    /// Position in the present phase.
    pub(super) position: String,
    /// Objects with a difference that was seen once.
    pub(super) pending: Vec<Uri>,
    /// Number of listed objects that the registry phase has not met yet.
    #[serde(default)]
    pub(super) listed: u64,
    /// Number of objects that the repository does not have.
    pub(super) gone: u64,
    /// Number of objects that were deleted.
    #[serde(default)]
    pub(super) deleted: u64,
    /// Number of the attempt.
    pub(super) attempt: u32,
    /// Hashes of the first objects whose differences count already: after a kill, an object may be compared again.
    #[serde(default)]
    pub(super) counted: BTreeSet<u64>,
    /// Result of the last complete audit before this one.
    #[serde(default)]
    pub(super) last: Option<AuditResult>,
}

impl AuditRequest {
    /// Returns the report of the requested audit. An attempt that no runner has begun yet has not failed.
    pub(super) fn report_of(&self, stored: Option<StoredAudit>) -> AuditReport {
        let stored = stored.filter(|stored| stored.report.id == self.id);
        let Some(StoredAudit { mut report, attempt, .. }) = stored else { return self.report() };
        let has_ended = matches!(report.state, AuditState::Stopped | AuditState::Failed);
        if has_ended && !self.stop && attempt < self.attempt {
            (report.state, report.reason) = (AuditState::Requested, None);
        }
        report
    }

    /// Returns whether another request is about the same audit.
    pub(super) fn has_options_of(&self, other: &Self) -> bool {
        let options = |request: &Self| {
            // Only corrections delete.
            (request.sample, request.repair, request.repair.then_some(request.max_deleted_percent))
        };
        options(self) == options(other)
    }

    /// Returns the report of an audit that has not begun.
    pub(super) fn report(&self) -> AuditReport {
        AuditReport {
            id: self.id,
            state: AuditState::Requested,
            reason: None,
            started: self.requested,
            updated: self.requested,
            sample: self.sample,
            repair: self.repair,
            phase: if self.sample.is_some() { Phase::Registry } else { Phase::Repository },
            objects: 0,
            registered: 0,
            unanswered: 0,
            outside: 0,
            unlisted: 0,
            missing: 0,
            different: 0,
            extra: 0,
            differing_objects: 0,
            corrections: 0,
            refused: 0,
            at_most_percent: None,
            differences: Vec::new(),
        }
    }
}

impl StoredAudit {
    /// Begins an audit after the one that the journal has.
    pub(super) fn of(request: &AuditRequest, former: Option<&Self>) -> Self {
        Self {
            report: request.report(),
            position: String::new(),
            pending: Vec::new(),
            listed: 0,
            gone: 0,
            deleted: 0,
            attempt: request.attempt,
            counted: BTreeSet::new(),
            last: former.and_then(Self::last_result),
        }
    }
}

impl StoredAudit {
    /// Returns the result of the last complete audit, which is no sample.
    pub(super) fn last_result(&self) -> Option<AuditResult> {
        self.report.result().or(self.last)
    }

    /// Counts the differences of an object, unless they count already.
    pub(super) fn add(&mut self, object: &Uri, differences: Vec<Difference>) {
        let digest = Sha256::digest(object.as_str());
        let hash = digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        if self.counted.contains(&hash) {
            return;
        }
        if self.counted.len() < MAX_COUNTED {
            self.counted.insert(hash);
        }
        self.report.add(differences);
    }
}

impl AuditReport {
    /// Returns the differences that the audit has left, if it is complete and no sample.
    pub(super) fn result(&self) -> Option<AuditResult> {
        let Self { started, updated: at, missing, different, extra, .. } = *self;
        let is_of_all = self.state == AuditState::Complete && self.sample.is_none();
        let result = match (self.repair, &self.reason) {
            (true, _) if self.refused > 0 || self.unanswered > 0 => {
                AuditResult { started, at, missing, different, extra }
            }
            (true, None) => AuditResult { started, at, missing: 0, different: 0, extra: 0 },
            // The extra objects were not deleted.
            (true, Some(_)) => AuditResult { started, at, missing: 0, different: 0, extra },
            (false, _) => AuditResult { started, at, missing, different, extra },
        };
        is_of_all.then_some(result)
    }

    /// Counts differences, and lists them while there is room.
    pub(super) fn add(&mut self, differences: Vec<Difference>) {
        self.differing_objects += u64::from(!differences.is_empty());
        let size = |difference: &Difference| difference.object.as_str().len() + difference.item.as_str().len();
        let mut bytes: usize = self.differences.iter().map(size).sum();
        for difference in differences {
            match difference.kind {
                DifferenceKind::Missing => self.missing += 1,
                DifferenceKind::Different => self.different += 1,
                DifferenceKind::Extra => self.extra += 1,
            }
            bytes += size(&difference);
            if self.differences.len() < MAX_LISTED && bytes <= MAX_LISTED_BYTES {
                self.differences.push(difference);
            }
        }
    }
}
