//! Rule about the number of records that one run may delete without a report by the repository.

use crate::journal::harvest::ListedCounts;

/// Number of missing records that is plausible in every repository, however small it is.
pub(super) const FEW: u64 = 10;

/// Returns whether so many records can be gone: at most `max_percent` of all, or ten unless `max_percent` is 0.
pub(crate) fn is_plausible(counts: ListedCounts, max_percent: u64) -> bool {
    let ListedCounts { all, missing } = counts;
    let most = all.saturating_mul(max_percent) / 100;
    missing <= most || (max_percent > 0 && missing <= FEW)
}

/// Returns a remark if so many records are missing that the list is more likely wrong than the records are gone
/// ([`is_plausible`]). `noun` names the records.
pub(super) fn implausibility(counts: ListedCounts, max_percent: u64, noun: &str) -> Option<String> {
    let ListedCounts { all, missing } = counts;
    (!is_plausible(counts, max_percent)).then(|| {
        format!(
            "{missing} of {all} {noun} are no longer listed; nothing was deleted, because max_deleted_percent is \
             {max_percent}: if the {noun} are really gone, and no set was renamed, raise it and run the harvest again"
        )
    })
}
