//! The end of a run: records that wait for it, and records that vanish without a tombstone, by mark and sweep.
//!
//! Records wait ([`membership`](crate::harvest::membership)) because all their views have a tombstone, because it is not
//! known whether another view has them, or because they could not be read in an earlier run. The first ones are deleted, and
//! the others are requested.
//!
//! A repository may forget to report a deletion, and may write into the past of its own dates. A run then lists all records
//! from time to time, and the journal notes when each one was last listed. A record that such a run has not listed is
//! missing. It is deleted only if `GetRecord` confirms that, and if not too many are missing: a repository that was restored
//! from an old backup, or has lost its index, must not empty its readers.

use std::{sync::Arc, time::Duration};

use super::{
    harvest::OaiPmhHarvester,
    position::{FullList, ListPosition, Place, Position, SweepPosition, SweepStage},
    record::MAX_COMPLETED_BYTES,
    recovery::ATTEMPTS_BEFORE_RESTART,
    response::{ListText, RawRecord},
};
use crate::{
    format::oai_pmh::get_record_url,
    harvest::{
        HarvestError, Listing, Page, PageEnd, Records, Sight,
        client::RequestError,
        deletions::implausibility,
        membership::{Existence, Membership, count_renamed, never_missing, pending_before},
    },
    journal::harvest::{ListedCounts, ListedRecords},
    model::{Timestamp, Uri},
};

/// Time between two runs that list all records, if the repository does not report all deletions.
const FULL_EVERY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Time between two runs that list all records, if the repository reports all deletions: its dates may still be wrong.
const FULL_EVERY_IF_REPORTED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Number of missing or waiting records that are looked at for one page.
const PAGE_RECORDS: usize = 20;

/// Number of missing records that are looked at for one page if none of them is requested.
const SETTLED_RECORDS: usize = 500;

/// Maximum number of unreadable records that one run requests again.
const MAX_ASKED: u64 = 500;

impl OaiPmhHarvester {
    /// Returns whether the run that begins must list all records.
    pub(super) fn is_full_list_due(&self, deleted_record: &str, newest: Option<FullList>) -> bool {
        let default = if deleted_record == "persistent" { FULL_EVERY_IF_REPORTED } else { FULL_EVERY };
        let every = self.settings.full_every.unwrap_or(default);
        let age = |full: FullList| u64::try_from(Timestamp::now().millis() - full.began.millis()).unwrap_or_default();
        newest.is_none_or(|full| u128::from(age(full)) >= every.as_millis())
    }

    /// Ends a run, or begins the search for waiting and for missing records. The latter begins again after each run until it
    /// was completed once.
    pub(super) fn begin_sweep(
        &self,
        position: &mut Position,
        list: &ListPosition,
        remarks: &mut Vec<String>,
    ) -> PageEnd {
        if let (true, Some(began)) = (list.is_full, list.started) {
            position.full = Some(FullList { began, is_swept: list.is_short });
            position.knows_views |= !list.is_short;
            if list.is_short {
                remarks.push("missing records are not looked for, because the list may be incomplete".to_owned());
            }
        }
        let is_missing_due = position.full.is_some_and(|full| !full.is_swept);
        if !list.has_waiting && !is_missing_due {
            return PageEnd::Complete;
        }
        let stage = if list.has_waiting { SweepStage::Waiting } else { SweepStage::Settling };
        position.sweep = Some(SweepPosition { stage, began: list.started, ..SweepPosition::default() });
        PageEnd::More
    }

    /// Looks at the next waiting or missing records.
    pub(super) async fn sweep(
        &self,
        position: Position,
        sweep: SweepPosition,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        if sweep.stage == SweepStage::Former {
            return self.retire(position, sweep).await;
        }
        match (sweep.stage, position.full.filter(|full| !full.is_swept)) {
            (SweepStage::Waiting, _) => self.look_at_waiting(position, sweep, attempt).await,
            (SweepStage::Settling, Some(full)) => self.settle_views(position, sweep, full, attempt).await,
            (SweepStage::Missing, Some(full)) => self.look_for_missing(position, sweep, full, attempt).await,
            (SweepStage::Settling | SweepStage::Missing | SweepStage::Former, _) => Ok(end(&position, Vec::new())),
        }
    }

    /// Deletes the waiting records that no view has, and requests the others.
    async fn look_at_waiting(
        &self,
        mut position: Position,
        mut sweep: SweepPosition,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let began = sweep.began.unwrap_or_else(Timestamp::now);
        let waiting = self.memberships(pending_before(), &sweep.after, PAGE_RECORDS).await?;
        if waiting.is_empty() {
            return self.end_waiting(position, sweep, attempt).await;
        }
        let mut page = SweptRecords::new(began);
        for (identifier, membership) in waiting {
            if page.bytes >= MAX_COMPLETED_BYTES {
                // The next page begins with this one.
                break;
            }
            sweep.after.clone_from(&identifier);
            match membership.existence() {
                Existence::Deleted => page.delete(&identifier, membership.deleted_at()),
                // A record that this run has listed is as unreadable now as it was a moment ago.
                Existence::Live if !membership.is_unreadable() || membership.is_fresh(began) => {}
                Existence::Live | Existence::Unsure if sweep.asked < MAX_ASKED => {
                    sweep.asked += 1;
                    // The list counts, and not the sets that the header names, unless a complete list lacks the record.
                    let is_listed =
                        membership.existence() == Existence::Live && position.full.is_none_or(|full| full.is_swept);
                    match self.record(&identifier, position.quirks).await {
                        Ok(record) if !record.is_deleted && (is_listed || !record.is_foreign) => page.confirm(record),
                        // Only the lists say that an unreadable record is deleted.
                        Ok(_) if membership.existence() == Existence::Live => {}
                        Ok(record) => page.delete_at(&identifier, &record.datestamp),
                        Err(RequestError::Transient { after: None, .. }) if attempt + 1 >= ATTEMPTS_BEFORE_RESTART => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Existence::Live | Existence::Unsure => {}
            }
        }
        position.sweep = Some(sweep);
        Ok(self.swept(page, &position))
    }

    /// Continues after the waiting records.
    async fn end_waiting(
        &self,
        mut position: Position,
        sweep: SweepPosition,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let counts = self.journal.listed_counts(self.source.clone(), pending_before()).await?;
        let remark = (counts.missing > 0).then(|| {
            format!(
                "{} records cannot be read; the quarantine has the reasons, and each run requests them again",
                counts.missing
            )
        });
        let mut page = match position.full.filter(|full| !full.is_swept) {
            Some(full) => {
                let sweep =
                    SweepPosition { began: sweep.began, stage: SweepStage::Settling, ..SweepPosition::default() };
                self.settle_views(position, sweep, full, attempt).await?
            }
            None => {
                position.sweep = None;
                end(&position, Vec::new())
            }
        };
        page.remarks.extend(remark);
        Ok(page)
    }

    /// Forgets views that no longer have a record which the complete list has in another view.
    async fn settle_views(
        &self,
        mut position: Position,
        mut sweep: SweepPosition,
        full: FullList,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let mut missing = self.memberships(full.began, &sweep.after, SETTLED_RECORDS).await?;
        let last = missing.last().map(|(identifier, _)| identifier.clone());
        missing.retain(|(_, membership)| membership.is_fresh(full.began) && !membership.is_unreadable());
        let Some(last) = last else {
            let sweep = SweepPosition { began: sweep.began, stage: SweepStage::Missing, ..SweepPosition::default() };
            return self.look_for_missing(position, sweep, full, attempt).await;
        };
        let rows = missing.into_iter().map(|(identifier, mut membership)| {
            membership.forget_stale(full.began);
            membership.into_row(identifier)
        });
        let listed = ListedRecords { present: rows.collect(), at: Some(full.began), ..ListedRecords::default() };
        sweep.after = last;
        position.sweep = Some(sweep);
        Ok(Page { listed, is_listed: false, ..Page::new(Vec::new(), position.text(), PageEnd::More) })
    }

    /// Looks for the next missing records.
    async fn look_for_missing(
        &self,
        mut position: Position,
        mut sweep: SweepPosition,
        full: FullList,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let mut told = None;
        if sweep.after.is_empty() {
            let count = async |since| self.journal.listed_counts(self.source.clone(), since).await;
            let waiting = count(pending_before()).await?.missing;
            let missing = count(full.began).await?.missing.saturating_sub(waiting);
            let counts = ListedCounts { all: count(never_missing()).await?.missing, missing };
            if std::mem::take(&mut position.must_tell_omission) {
                told = Some(format!(
                    "{} records keep URIs without the query of the base URL, because an earlier version has made them; under \
                     another name of the source they get URIs with the query",
                    counts.all
                ));
            }
            if let Some(mut remark) = implausibility(counts, self.settings.max_deleted_percent, "records") {
                let renamed = count_renamed(&self.journal, &self.source, full.began).await?;
                if renamed > 0 {
                    remark.push_str(&format!(
                        "; {renamed} listed records have the metadata of missing ones, as if the repository had given its \
                         records other identifiers"
                    ));
                }
                position.sweep = None;
                return Ok(end(&position, told.into_iter().chain([remark]).collect()));
            }
        }
        let missing = self.memberships(full.began, &sweep.after, PAGE_RECORDS).await?;
        if missing.is_empty() {
            position.full = Some(FullList { is_swept: true, ..full });
            position.sweep = None;
            let unconfirmed = sweep.unconfirmed;
            let remark = (unconfirmed > 0).then(|| {
                format!("{unconfirmed} records are no longer listed, but the repository does not confirm that they are deleted")
            });
            return Ok(end(&position, told.into_iter().chain(remark).collect()));
        }
        let mut page = SweptRecords::new(full.began);
        let (mut failed, all) = (0, missing.len());
        for (identifier, membership) in missing {
            if page.bytes >= MAX_COMPLETED_BYTES {
                // The next page begins with this one.
                break;
            }
            sweep.after.clone_from(&identifier);
            if membership.is_fresh(full.began) {
                continue;
            }
            match self.record(&identifier, position.quirks).await {
                Ok(record) if record.is_deleted || record.is_foreign => {
                    page.delete_at(&identifier, &record.datestamp);
                }
                Ok(record) => page.confirm(record),
                Err(RequestError::Transient { reason, after: None }) if attempt + 1 >= ATTEMPTS_BEFORE_RESTART => {
                    failed += 1;
                    if failed == all {
                        return Err(HarvestError::fail(reason));
                    }
                    sweep.unconfirmed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        position.sweep = Some(sweep);
        Ok(Page { remarks: Vec::from_iter(told), ..self.swept(page, &position) })
    }

    /// Returns the next records that no run since `since` has listed, in order of their identifiers.
    async fn memberships(
        &self,
        since: Timestamp,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Membership)>, HarvestError> {
        let source = || self.source.clone();
        let identifiers = self.journal.missing_records(source(), since, after.to_owned(), limit).await?;
        let mut known = self.journal.validators(source(), identifiers.clone()).await?;
        let membership = |identifier: String| {
            let text = known.remove(&identifier).unwrap_or_default();
            (identifier, Membership::parse(&text))
        };
        Ok(identifiers.into_iter().map(membership).collect())
    }

    /// Returns the record of an object, for a sample; none if the repository does not have it.
    pub(super) async fn record_of(&self, position: Position, object: &Uri) -> Result<Records, HarvestError> {
        let Place { base_url, prefix } = self.place_of(&position);
        let start = get_record_url(&base_url, &prefix, "").map_err(|error| HarvestError::fail(error.to_string()))?;
        let identifier = object.as_str().strip_prefix(start.as_str());
        let identifier = identifier.map(|text| percent_encoding::percent_decode_str(text).decode_utf8_lossy());
        let identifier =
            identifier.ok_or_else(|| HarvestError::fail("the URI is none of the records of the repository"))?;
        let mut page = SweptRecords::new(Timestamp::now());
        let record = self.record(&identifier, position.quirks).await?;
        if !record.is_deleted && !record.is_foreign {
            page.confirm(record);
        }
        Ok(self.swept(page, &position).records)
    }

    pub(super) fn swept(&self, page: SweptRecords, position: &Position) -> Page {
        let SweptRecords { began, records, .. } = page;
        let date = records.iter().filter_map(|(record, _)| record.date()).max();
        let records = records.into_iter().map(|(record, sight)| {
            let listing = Listing {
                identifier: record.identifier.clone(),
                view: Arc::from(""),
                is_only_view: self.settings.sets.len() <= 1,
                date: record.date(),
                at: began,
                sight,
                is_foreign: false,
                doubles: 0,
            };
            (record, Some(listing))
        });
        let place = self.place_of(position);
        let records = self.records(records.collect(), ListText::none(), Vec::new(), date, &place);
        let listed = ListedRecords { at: Some(began), ..ListedRecords::default() };
        Page { listed, is_listed: false, ..Page::new(records, position.text(), PageEnd::More) }
    }
}

/// Records of a page that no list has.
pub(super) struct SweptRecords {
    began: Timestamp,
    records: Vec<(RawRecord, Sight)>,
    /// Size of the records, in bytes.
    bytes: usize,
}

impl SweptRecords {
    fn new(began: Timestamp) -> Self {
        Self { began, records: Vec::new(), bytes: 0 }
    }

    fn confirm(&mut self, record: RawRecord) {
        self.bytes += record.size;
        self.records.push((record, Sight::Confirmed));
    }

    fn delete(&mut self, identifier: &str, date: Option<Timestamp>) {
        self.delete_at(identifier, &date.map(|date| date.to_string()).unwrap_or_default());
    }

    fn delete_at(&mut self, identifier: &str, datestamp: &str) {
        self.records.push((RawRecord::without_metadata(identifier, datestamp, true), Sight::Gone));
    }
}

/// Ends a run after the search for missing records.
pub(super) fn end(position: &Position, remarks: Vec<String>) -> Page {
    Page { remarks, is_listed: false, ..Page::new(Vec::new(), position.text(), PageEnd::Complete) }
}
