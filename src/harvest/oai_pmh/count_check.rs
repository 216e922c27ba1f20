//! The count check: once a day the number of records that a repository announces is compared with the journal.
//!
//! A mark in the dates of the repository misses records that appear with old dates. A difference begins a complete list.

use std::{sync::atomic::Ordering, time::Duration};

use super::{client::Arguments, harvest::OaiPmhHarvester, position::Position};
use crate::{
    harvest::{
        HarvestError,
        membership::{RecordCounts, ViewCounts, never_missing},
        metrics,
    },
    model::Timestamp,
};

/// Time between two comparisons.
const COUNT_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Least time between two complete lists that a difference begins, because some repositories announce estimates.
const LIST_EVERY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Number of sets that a remark shows.
const SHOWN_SETS: usize = 20;

impl OaiPmhHarvester {
    /// Returns a remark about a complete list without a record: often the set does not exist.
    pub(super) async fn empty_list_remark(&self, position: &Position) -> Option<String> {
        let list = position.list.as_ref().filter(|list| list.is_full && list.records == 0 && list.token.is_none())?;
        let Some(set) = self.settings.sets.get(list.set) else {
            return Some("the repository has no records in this metadata format".to_owned());
        };
        let Ok(sets) = self.client.sets(position.quirks, 1).await else {
            return Some(format!("the set {set} has no records"));
        };
        if sets.is_empty() {
            return Some(format!("the repository has no set {set}; it has no sets"));
        }
        if sets.iter().any(|known| known.spec == *set) {
            return Some(format!("the set {set} has no records"));
        }
        let more = if sets.len() > SHOWN_SETS { " and others" } else { "" };
        let shown: Vec<_> = sets.iter().take(SHOWN_SETS).map(|known| known.spec.as_str()).collect();
        Some(format!("the repository has no set {set}; it has {}{more}", shown.join(", ")))
    }

    /// Compares the number of records with the one that the repository announces, once a day, and for each set. Returns whether
    /// a complete list must find the difference. A repository that announces nothing, or has no answer, is not judged.
    pub(super) async fn differs_in_number(
        &self,
        position: &mut Position,
        deleted_record: &str,
        remarks: &mut Vec<String>,
    ) -> Result<bool, HarvestError> {
        let is_past = |time: Option<Timestamp>, wait: Duration| {
            time.is_none_or(|time| {
                Timestamp::now().millis().saturating_sub(time.millis()).unsigned_abs() as u128 >= wait.as_millis()
            })
        };
        if !(position.full.is_some_and(|full| full.is_swept) && is_past(position.counted, COUNT_EVERY)) {
            return Ok(false);
        }
        position.counted = Some(Timestamp::now());
        let differences = match self.settings.sets.as_slice() {
            sets @ ([] | [_]) => {
                let counts = self.journal.listed_counts(self.source.clone(), never_missing()).await?;
                let known = KnownRecords { live: counts.missing, all: counts.all };
                Vec::from_iter(self.difference(sets.first(), known, position, deleted_record).await)
            }
            // The rows of earlier versions do not have the sets of their records.
            _ if !position.knows_views => Vec::new(),
            sets => {
                let mut views = RecordCounts::read(&self.journal, &self.source).await?.views;
                let mut differences = Vec::new();
                for set in sets {
                    let ViewCounts { live, deleted } = views.remove(set).unwrap_or_default();
                    let known = KnownRecords { live, all: live + deleted };
                    differences.extend(self.difference(Some(set), known, position, deleted_record).await);
                }
                differences
            }
        };
        let records = differences.iter().map(|difference| difference.records).sum();
        self.difference.store(records, Ordering::Relaxed);
        metrics::difference(&self.source, records);
        if differences.is_empty() {
            return Ok(false);
        }
        let lists = is_past(position.difference_listed, LIST_EVERY);
        let follows = if lists { "; all records are listed" } else { ", also after a complete list" };
        for Difference { announced, known, set, .. } in differences {
            let of_set = set.map(|set| format!(" of the set {set}")).unwrap_or_default();
            remarks.push(format!(
                "the repository announces {announced} records{of_set}, and the journal knows {known}{follows}"
            ));
        }
        if lists {
            position.difference_listed = Some(Timestamp::now());
        }
        Ok(lists)
    }

    /// Compares the number of records of a set, or of the repository, with the announced one; `None` if they do not differ.
    async fn difference(
        &self,
        set: Option<&String>,
        KnownRecords { live, all }: KnownRecords,
        position: &Position,
        deleted_record: &str,
    ) -> Option<Difference> {
        let mut others = vec![("metadataPrefix", self.settings.metadata_prefix.as_str())];
        others.extend(set.map(|set| ("set", set.as_str())));
        let arguments = Arguments { verb: "ListIdentifiers", others, verbatim: None };
        // The list that follows tells about a repository that fails.
        let read = self.client.request(&arguments, position.quirks).await.ok()?;
        let list = read.response.list.as_ref()?;
        let announced = match list.token {
            // The whole list is one page.
            None => list.records.len() as u64,
            Some(_) => list.complete_list_size.filter(|size| *size > 0)?,
        };
        // A repository lists its tombstones for ever, for a while, or never.
        let (least, most) = match deleted_record {
            "persistent" => (all, all),
            "no" => (live, live),
            _ => (live, all),
        };
        let records = announced.saturating_sub(most).max(least.saturating_sub(announced));
        let set = set.filter(|_| self.settings.sets.len() > 1).cloned();
        (records > 0).then_some(Difference { announced, known: most, records, set })
    }
}

/// Numbers of records that the journal knows.
struct KnownRecords {
    live: u64,
    /// With those that are deleted.
    all: u64,
}

/// Difference between two numbers of records.
struct Difference {
    announced: u64,
    known: u64,
    records: u64,
    /// The set, if the source has several.
    set: Option<String>,
}
