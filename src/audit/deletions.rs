//! Limit of the objects that one audit deletes.

use crate::{harvest::is_plausible, journal::harvest::ListedCounts};

/// Returns why no more objects are deleted, if so many are gone that the repository has more likely lost them. `deleted` is
/// the number of those that this audit has deleted before.
pub(super) fn implausible_deletions(counts: ListedCounts, max_percent: u64, deleted: u64) -> Option<String> {
    let ListedCounts { all, missing } = counts;
    let done = if deleted == 0 { "nothing was deleted" } else { "no more were deleted" };
    (!is_plausible(counts, max_percent)).then(|| {
        format!(
            "{missing} of {all} objects are no longer listed; {done}, because --max-deleted-percent is {max_percent}: if \
             the objects are really gone, give a greater one"
        )
    })
}
