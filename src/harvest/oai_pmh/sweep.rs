//! Search for records that vanish without a tombstone, by mark and sweep.
//!
//! A repository whose `deletedRecord` is not `persistent` does not report all deletions (section 2.5.1). A run then lists
//! all records from time to time, and the journal notes when each one was last listed. A record that such a run has not
//! listed is missing. It is deleted only if `GetRecord` confirms that, and if not too many are missing: a repository that
//! was restored from an old backup, or has lost its index, must not empty its readers.

use std::time::Duration;

use super::{
    harvest::{OaiPmhHarvester, newest_of_each},
    position::{FullList, ListPosition, Position, RepositoryIdentity, SweepPosition},
    record::MAX_COMPLETED_BYTES,
    recovery::ATTEMPTS_BEFORE_RESTART,
    response::{ListText, RawRecord},
};
use crate::{
    format::oai_pmh::datestamp_of,
    harvest::{HarvestError, Page, PageEnd, client::RequestError, deletions::implausibility},
    journal::harvest::{ListedRecord, ListedRecords},
    model::Timestamp,
};

/// Time between two runs that list all records, if the repository does not report all deletions.
const FULL_EVERY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Number of missing records that are requested for one page.
const PAGE_RECORDS: usize = 20;

/// Maximum length of an identifier in the journal, in bytes.
const MAX_IDENTIFIER_BYTES: usize = 4096;

impl OaiPmhHarvester {
    /// Returns the time between two runs that list all records; `None` if the repository reports all deletions.
    fn full_every(&self, identity: &RepositoryIdentity) -> Option<Duration> {
        self.settings.full_every.or((identity.deleted_record != "persistent").then_some(FULL_EVERY))
    }

    /// Returns whether the run that begins must list all records.
    pub(super) fn is_full_list_due(&self, identity: &RepositoryIdentity, newest: Option<FullList>) -> bool {
        let age = |full: FullList| u64::try_from(Timestamp::now().millis() - full.began.millis()).unwrap_or_default();
        let is_due = |every: Duration| newest.is_none_or(|full| u128::from(age(full)) >= every.as_millis());
        self.full_every(identity).is_some_and(is_due)
    }

    /// Returns what the journal notes about the records of a page. It takes the identifiers of those that become messages.
    pub(super) fn listed(
        &self,
        position: &Position,
        list: &ListPosition,
        records: &mut [RawRecord],
        is_first_page: bool,
    ) -> ListedRecords {
        if position.identity.as_ref().is_none_or(|identity| self.full_every(identity).is_none()) {
            return ListedRecords::default();
        }
        let (mut gone, mut present) = (Vec::new(), Vec::new());
        for record in records.iter_mut().filter(|record| is_storable(record)) {
            let identifier = record.take_identifier(self.max_record_bytes);
            if record.is_deleted { gone.push(identifier) } else { present.push(ListedRecord::from(identifier)) }
        }
        ListedRecords {
            // Records from before the first list of these settings belong to other settings.
            replaces: is_first_page && position.from.is_none() && position.full.is_none(),
            gone,
            present,
            at: list.started,
        }
    }

    /// Ends a run, or begins the search for missing records after a complete list. It begins again after each run until
    /// it was completed once.
    pub(super) fn begin_sweep(
        &self,
        position: &mut Position,
        list: &ListPosition,
        remarks: &mut Vec<String>,
    ) -> PageEnd {
        if let (true, Some(began)) = (list.is_full, list.started) {
            position.full = Some(FullList { began, is_swept: list.is_short });
            if list.is_short {
                remarks.push("missing records are not looked for, because the list may be incomplete".to_owned());
            }
        }
        if position.full.is_none_or(|full| full.is_swept) {
            return PageEnd::Complete;
        }
        position.sweep = Some(SweepPosition::default());
        PageEnd::More
    }

    /// Looks for the next missing records.
    pub(super) async fn sweep(
        &self,
        mut position: Position,
        mut sweep: SweepPosition,
        full: FullList,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        if sweep.after.is_empty() {
            let counts = self.journal.listed_counts(self.source.clone(), full.began).await?;
            if let Some(remark) = implausibility(counts, self.settings.max_deleted_percent, "records") {
                return Ok(end(&position, vec![remark]));
            }
        }
        let after = sweep.after.clone();
        let missing = self.journal.missing_records(self.source.clone(), full.began, after, PAGE_RECORDS).await?;
        if missing.is_empty() {
            position.full = Some(FullList { is_swept: true, ..full });
            let unconfirmed = sweep.unconfirmed;
            let remark = (unconfirmed > 0).then(|| {
                format!("{unconfirmed} records are no longer listed, but the repository does not confirm that they are deleted")
            });
            return Ok(end(&position, Vec::from_iter(remark)));
        }
        let mut listed = ListedRecords { at: Some(full.began), ..ListedRecords::default() };
        let (mut records, mut failed, mut bytes) = (Vec::new(), 0, 0);
        for identifier in &missing {
            if bytes >= MAX_COMPLETED_BYTES {
                // The next page begins with this one.
                break;
            }
            sweep.after.clone_from(identifier);
            let record = match self.record(identifier, position.quirks).await {
                Ok(record) => record,
                Err(RequestError::Transient { reason, after: None }) if attempt + 1 >= ATTEMPTS_BEFORE_RESTART => {
                    failed += 1;
                    if failed == missing.len() {
                        return Err(HarvestError::fail(reason));
                    }
                    sweep.unconfirmed += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let record = if self.has_left(&record) {
                RawRecord::without_metadata(identifier, &record.datestamp, true)
            } else {
                record
            };
            if record.is_deleted {
                listed.gone.push(identifier.clone());
            } else {
                listed.present.push(identifier.clone().into());
            }
            bytes += record.size;
            records.push(record);
        }
        let date = records.iter().filter_map(|record| datestamp_of(&record.datestamp)).max();
        let records = self.records(newest_of_each(records), (ListText::none(), Vec::new()), date);
        position.sweep = Some(sweep);
        Ok(Page { listed, ..Page::new(records, position.text(), PageEnd::More) })
    }

    /// Returns whether a record has left the sets of the harvest. Records that name no set are not judged.
    fn has_left(&self, record: &RawRecord) -> bool {
        let belongs = |set: &String| {
            let is_within = |wanted: &String| {
                set.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            self.settings.sets.iter().any(is_within)
        };
        !self.settings.sets.is_empty() && !record.sets.is_empty() && !record.sets.iter().any(belongs)
    }
}

/// Ends a run after the search for missing records.
fn end(position: &Position, remarks: Vec<String>) -> Page {
    Page { remarks, ..Page::new(Vec::new(), position.text(), PageEnd::Complete) }
}

fn is_storable(record: &RawRecord) -> bool {
    let identifier = &record.identifier;
    !identifier.is_empty() && identifier.len() <= MAX_IDENTIFIER_BYTES && !identifier.contains('\0')
}
