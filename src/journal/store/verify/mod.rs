//! Verification of a journal, the same for every store: every change against its checksum and its columns, the
//! numbering, the registry against the changes, and all other tables.
//!
//! Each store adds checks of its own: of its files, of its event keys, and of what it counts.

mod registry;
mod replay;
mod tables;

use self::replay::JournalReplay;
use super::{
    StoreError,
    tables::{Table, TableReader},
};
use crate::model::Seq;

/// Maximum number of findings in a report; further findings are only counted.
const MAX_FINDINGS: usize = 100;

/// Maximum number of objects that are rebuilt in memory at the same time. For a larger registry, the changes are
/// read again for each part of the objects.
const MAX_OBJECTS_IN_MEMORY: u64 = 100_000;

/// Content of a journal, and its errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of changes.
    pub changes: u64,
    /// Number of the oldest change.
    pub first: Option<Seq>,
    /// Number of the newest change.
    pub head: Seq,
    /// Number of objects in the registry.
    pub objects: u64,
    /// Whether the journal has every change since the first one. If not, only the facts that the remaining changes
    /// set were compared with the registry.
    pub complete: bool,
    /// Descriptions of the first 100 errors.
    pub findings: Vec<String>,
    /// Number of further errors.
    pub more: u64,
}

impl Report {
    /// Adds a description of an error.
    pub(super) fn add(&mut self, finding: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Examines the tables, and adds the errors to the report. Calls `progress` with the number of changes that were read,
/// and with the number of all changes to read.
///
/// # Errors
/// Fails if the rest of the journal cannot be read.
pub(super) fn examine(
    journal: &dyn TableReader,
    report: &mut Report,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), StoreError> {
    let total = journal.count(Table::Changes)?;
    let objects = journal.count(Table::Objects)?;
    let restores = tables::restores(journal)?;
    let parts = objects / MAX_OBJECTS_IN_MEMORY + 1;
    report.objects = objects;
    for part in 0..parts {
        let mut replay = JournalReplay::new(journal, &restores, part, parts);
        replay.run(report, &mut |done| progress(part * total + done, parts * total))?;
        let rebuilt = replay.into_registry();
        registry::compare(journal, rebuilt, |uri| replay::part_of(uri, parts) == part, report)?;
    }
    tables::examine(journal, &restores, report);
    Ok(())
}
