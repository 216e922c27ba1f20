//! Numbers of the records that a repository has, and of those that have other identifiers than before, as the journal knows
//! them.

use std::collections::{BTreeMap, HashSet};

use super::{Membership, UNKNOWN_VIEW, never_missing, pending_before};
use crate::{
    journal::{Journal, JournalError},
    model::{SourceName, Timestamp},
};

/// Number of records that are read at a time.
const PAGE_RECORDS: usize = 1000;

/// Numbers of the records of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Number of records that exist.
    pub live: u64,
    /// Number of those among them that a run could not read, or whose deletion is not certain.
    pub waiting: u64,
    /// Numbers by view: by set, or of the whole repository under an empty name.
    pub views: BTreeMap<String, ViewCounts>,
}

/// Numbers of the records of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewCounts {
    /// Number of records that the view has.
    pub live: u64,
    /// Number of records for which the view has a tombstone.
    pub deleted: u64,
}

impl RecordCounts {
    /// Counts the records of a source. Reads one row for each, so it takes seconds for a million.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(in crate::harvest) async fn read(journal: &Journal, source: &SourceName) -> Result<Self, JournalError> {
        let missing = async |since| Ok::<_, JournalError>(journal.listed_counts(source.clone(), since).await?.missing);
        let (live, waiting) = (missing(never_missing()).await?, missing(pending_before()).await?);
        let (mut views, mut after) = (BTreeMap::<String, ViewCounts>::new(), String::new());
        loop {
            let identifiers = journal.missing_records(source.clone(), after_all(), after, PAGE_RECORDS).await?;
            let Some(last) = identifiers.last() else { return Ok(Self { live, waiting, views }) };
            after = last.clone();
            for text in journal.validators(source.clone(), identifiers).await?.into_values() {
                let seen = Membership::parse(&text).views.into_iter().filter(|(name, _)| name != UNKNOWN_VIEW);
                for (name, view) in seen {
                    let counts = views.entry(name).or_default();
                    if view.is_live() {
                        counts.live += 1;
                    } else {
                        counts.deleted += 1;
                    }
                }
            }
        }
    }
}

/// Maximum number of missing records whose metadata is compared with that of the others.
const MAX_COMPARED: usize = 10_000;

/// Returns the number of records that a run since `since` has listed, and whose metadata is that of records that it has not
/// listed: a repository that gives all its records other identifiers looks like that.
///
/// # Errors
/// Fails if the store fails.
pub(in crate::harvest) async fn count_renamed(
    journal: &Journal,
    source: &SourceName,
    since: Timestamp,
) -> Result<u64, JournalError> {
    let mut missing = HashSet::new();
    let mut number = 0;
    for (digests, before) in [(true, since), (false, never_missing())] {
        let mut after = String::new();
        loop {
            let identifiers = journal.missing_records(source.clone(), before, after, PAGE_RECORDS).await?;
            let Some(last) = identifiers.last() else { break };
            after = last.clone();
            for text in journal.validators(source.clone(), identifiers).await?.into_values() {
                let membership = Membership::parse(&text);
                let is_fresh = membership.is_fresh(since);
                let Some(content) = membership.content else { continue };
                if digests && !is_fresh && missing.len() < MAX_COMPARED {
                    missing.insert(content.digest().to_owned());
                } else if !digests && is_fresh && missing.contains(content.digest()) {
                    number += 1;
                }
            }
        }
    }
    Ok(number)
}

/// Time that is later than that of all records, also deleted ones.
fn after_all() -> Timestamp {
    Timestamp::from_millis(never_missing().millis() + 1).unwrap_or_else(never_missing)
}
