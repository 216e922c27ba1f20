//! Comparison of a record's content with the last run: it notices records that change in each run without a new datestamp,
//! and identifiers that several records have.
//!
//! Some repositories write a nonce, a token or the time of the request into their records. Such a change is no news. After
//! the third one in a row a change of the record counts once a day, or when two runs in a row have found the same content.
//!
//! Of several records with one identifier the newest counts, and of equally new ones the first of the run. So two runs over
//! the same lists change nothing.

use serde::{Deserialize, Serialize};

use super::{Listing, Sight};
use crate::model::Timestamp;

/// Number of changes in a row without a new datestamp after which a record is noisy.
const NOISY_CHANGES: u32 = 3;

/// Time after which the change of a noisy record counts again, in milliseconds.
const PAUSE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Time before the start of a run within which a datestamp may be from a change during the run, in milliseconds: a
/// datestamp of a day is up to a day older than its change.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Content of a record as a harvest has last found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenContent {
    /// Digest of the items that the record describes.
    #[serde(rename = "d")]
    digest: String,
    /// Number of changes in a row without a new datestamp.
    #[serde(rename = "n", default, skip_serializing_if = "is_zero")]
    changes: u32,
    /// Time at which a change of the noisy record last counted, in milliseconds since 1970.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    counted: Option<i64>,
    /// The record that counts, if several have the identifier.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    several: Option<Newest>,
    /// Datestamp of the record before a tombstone of its last view, whose deletion is not reported.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    lost: Option<i64>,
}

/// The newest of the records that have one identifier: its datestamp, and the start of a run that has found an older one
/// and not yet the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Newest(Option<i64>, Option<i64>);

impl SeenContent {
    /// Returns the digest of the items that the record describes.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Notes that the last view has lost the record, which had this datestamp. Another page of the list may have it still.
    pub(super) fn lose(&mut self, date: Option<i64>) {
        self.lost = date.or(self.lost);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Facts about a record before its newest sight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// True if it could not be read, so that its content is news.
    pub(super) was_unreadable: bool,
    /// True if the same run has read the record before.
    pub(super) is_same_run: bool,
    /// True if it has read it in the same view.
    pub(super) is_same_view: bool,
    /// Newest datestamp in the views that had it.
    pub(super) newest: Option<i64>,
    /// Newest datestamp in the views in which the same run has seen it. Of others, it may have read nothing.
    pub(super) newest_of_run: Option<i64>,
    /// Datestamp in this view, if it had the record.
    pub(super) own: Option<Option<i64>>,
}

/// Weight of a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::harvest) enum Weight {
    /// It counts.
    Counts,
    /// It counts, and has replaced an older record with the same identifier.
    Replaces,
    /// It counts, although it changes in each run without a new datestamp.
    Noisy,
    /// It does not count now, because it changes in each run without a new datestamp.
    Withheld,
    /// It does not count, because another record with the same identifier does.
    Double,
    /// It does not count, because the same run has read it in another view.
    Repeated,
}

impl Weight {
    /// Returns whether the record is passed on.
    pub(in crate::harvest) fn counts(self) -> bool {
        matches!(self, Self::Counts | Self::Replaces | Self::Noisy)
    }
}

/// Compares a record that was read with the content that is known, and notes its content.
pub(super) fn weigh(
    known: &mut Option<SeenContent>,
    before: Before,
    listing: &Listing,
    digest: &str,
    now: Timestamp,
) -> Weight {
    let (date, at) = (listing.date.map(Timestamp::millis), listing.at.millis());
    // A record that was requested is no part of a list.
    let is_listed = listing.sight == Sight::Live;
    let several = (is_listed && listing.doubles > 0).then_some(Newest(date, None));
    let Some(known) = known else {
        *known = Some(SeenContent { digest: digest.to_owned(), changes: 0, counted: None, several, lost: None });
        return Weight::Counts;
    };
    let lost = known.lost.take();
    // A list with doubles shows older records between two sights of the one that counts, so their dates are no news.
    let counting = known.several.map(|newest| newest.0);
    known.several = known.several.or(several);
    let is_other = known.digest != digest;
    if is_listed {
        if let Some(Newest(newest, held)) = known.several.filter(|newest| date < newest.0) {
            if held.is_none_or(|run| run == at) {
                known.several = Some(Newest(newest, Some(at)));
                return Weight::Double;
            }
            // No list has had the newer record since.
            known.several = None;
        } else if known.several.is_some() {
            known.several = Some(Newest(date, None));
        }
        if before.is_same_run && date <= before.newest_of_run && is_other {
            if !before.is_same_view {
                return Weight::Repeated;
            }
            known.several.get_or_insert(Newest(date, None));
            return Weight::Double;
        }
    }
    let has_new_date = before.was_unreadable || counting.or(before.own).unwrap_or(before.newest.or(lost)) != date;
    if !is_other {
        (known.changes, known.counted) = (0, None);
        return Weight::Counts;
    }
    digest.clone_into(&mut known.digest);
    if is_listed && before.is_same_view && has_new_date {
        (known.changes, known.counted) = (0, None);
        known.several.get_or_insert(Newest(date, None));
        // Otherwise it may have changed while the run read the list.
        let is_old = date.is_some_and(|date| at - date > DAY_MILLIS);
        return if is_old { Weight::Replaces } else { Weight::Counts };
    }
    if has_new_date {
        (known.changes, known.counted) = (0, None);
        return Weight::Counts;
    }
    known.changes = known.changes.saturating_add(1);
    if known.changes < NOISY_CHANGES {
        return Weight::Counts;
    }
    if known.counted.is_none_or(|counted| now.millis().saturating_sub(counted) >= PAUSE_MILLIS) {
        known.counted = Some(now.millis());
        return Weight::Noisy;
    }
    Weight::Withheld
}

#[cfg(test)]
mod tests {
    use super::{DAY_MILLIS, PAUSE_MILLIS, Weight};
    use crate::{
        harvest::membership::{Listing, Membership, Sight},
        model::Timestamp,
    };

    /// A day of a run, with whole days as times.
    const RUN: i64 = 100;

    fn time(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn sight(view: &str, date: i64, run: i64) -> Listing {
        Listing {
            view: view.into(),
            is_only_view: view.is_empty(),
            date: Some(time(date * DAY_MILLIS)),
            at: time(run * DAY_MILLIS),
            ..Listing::of("oai:1".to_owned(), Sight::Live)
        }
    }

    /// Returns the weight of a record; `None` if its run has seen a newer one in the same view.
    fn see(record: &mut Membership, listing: &Listing, digest: &str, now: i64) -> Option<Weight> {
        // The journal has the membership as text.
        let counts = record.note(listing);
        let weight = counts.then(|| record.weigh(listing, digest, time(now)));
        *record = Membership::parse(&record.clone().into_row(String::new()).validator);
        weight
    }

    #[test]
    fn a_record_is_withheld_after_its_third_change_in_a_row() {
        let mut record = Membership::default();
        let mut now = 0;
        let mut run = RUN;
        let mut found = |digest: &str, wait: i64| {
            now += wait;
            run += 1;
            see(&mut record, &sight("", 1, run), digest, now).unwrap()
        };
        let first: Vec<_> = ["1", "2", "3", "4", "5", "6"].into_iter().map(|digest| found(digest, 1000)).collect();
        use Weight::{Counts, Noisy, Withheld};
        assert_eq!(first, [Counts, Counts, Counts, Noisy, Withheld, Withheld]);
        assert_eq!([found("7", PAUSE_MILLIS), found("8", 1000)], [Noisy, Withheld]);
        // The record has settled.
        assert_eq!([found("8", 1000), found("9", 1000)], [Counts, Counts]);
    }

    #[test]
    fn changes_with_a_new_datestamp_and_after_a_deletion_count() {
        let mut record = Membership::default();
        for run in 1..10 {
            assert_eq!(see(&mut record, &sight("", run, RUN + run), &run.to_string(), 0), Some(Weight::Counts));
        }
        for run in 10..20 {
            see(&mut record, &sight("", 1, RUN + run), &run.to_string(), 0);
        }
        for sight_of_loss in [Sight::Deleted, Sight::Gone] {
            record.note(&Listing { sight: sight_of_loss, ..sight("", 1, RUN + 20) });
        }
        assert_eq!(see(&mut record, &sight("", 1, RUN + 21), "x", 0), Some(Weight::Counts));
    }

    /// A repository that forgets the set after the first page has the tombstone of the set on that page.
    #[test]
    fn a_record_between_its_tombstones_is_withheld_as_any_other() {
        let mut record = Membership::default();
        let mut found = |run: i64| {
            record.note(&Listing { sight: Sight::Deleted, ..sight("a", 1, RUN + run) });
            record = Membership::parse(&record.clone().into_row(String::new()).validator);
            see(&mut record, &sight("a", 2, RUN + run), &run.to_string(), 0).unwrap()
        };
        use Weight::{Counts, Noisy, Withheld};
        assert_eq!([0, 1, 2, 3, 4, 5].map(&mut found), [Counts, Counts, Counts, Noisy, Withheld, Withheld]);
    }

    #[test]
    fn one_change_counts_in_each_run_if_a_record_differs_in_each_response() {
        let mut record = Membership::default();
        let mut counted = 0;
        for run in 1..10 {
            for view in ["a", "b"] {
                let weight = see(&mut record, &sight(view, 1, RUN + run), &format!("{view}{run}"), 0).unwrap();
                counted += u32::from(weight.counts());
            }
        }
        assert_eq!(counted, 4);
    }

    #[test]
    fn the_newest_of_several_records_counts_in_each_run() {
        let mut record = Membership::default();
        let (old, new) = (|run| sight("", 10, run), |run| sight("", 20, run));
        assert_eq!(see(&mut record, &old(RUN), "old", 0), Some(Weight::Counts));
        assert_eq!(see(&mut record, &new(RUN), "new", 0), Some(Weight::Replaces));
        for run in RUN + 1..RUN + 4 {
            assert_eq!(see(&mut record, &old(run), "old", 0), Some(Weight::Double));
            assert_eq!(see(&mut record, &new(run), "new", 0), Some(Weight::Counts));
            assert_eq!(see(&mut record, &sight("", 15, run), "middle", 0), None);
        }
        // The newest one has left: the other counts in the second run without it.
        assert_eq!(see(&mut record, &old(RUN + 5), "old", 0), Some(Weight::Double));
        assert_eq!(see(&mut record, &old(RUN + 6), "old", 0), Some(Weight::Counts));
    }

    #[test]
    fn doubles_with_other_content_in_each_response_are_noisy() {
        let mut record = Membership::default();
        let mut found = |run: i64| {
            let older = see(&mut record, &sight("", 10, RUN + run), &format!("old {run}"), 0);
            let newest = see(&mut record, &sight("", 20, RUN + run), &format!("new {run}"), 0);
            [older, newest].map(Option::unwrap)
        };
        use Weight::{Counts, Double, Noisy, Replaces, Withheld};
        assert_eq!(found(0), [Counts, Replaces]);
        let newest = [1, 2, 3, 4].map(&mut found);
        assert_eq!(newest, [[Double, Counts], [Double, Counts], [Double, Noisy], [Double, Withheld]]);
        // A new date of the newest one is news.
        assert_eq!(see(&mut record, &sight("", 10, RUN + 5), "old", 0), Some(Double));
        assert_eq!(see(&mut record, &sight("", 30, RUN + 5), "edited", 0), Some(Replaces));
    }

    #[test]
    fn the_first_of_equally_new_records_counts() {
        let mut record = Membership::default();
        for run in RUN..RUN + 3 {
            assert_eq!(see(&mut record, &sight("", 10, run), "first", 0), Some(Weight::Counts));
            assert_eq!(see(&mut record, &sight("", 10, run), "second", 0), Some(Weight::Double));
            assert_eq!(see(&mut record, &sight("", 10, run), "first", 0), Some(Weight::Counts), "listed twice");
        }
    }

    /// An earlier run has seen the record in both views, and could not read it.
    #[test]
    fn the_newest_of_several_records_counts_after_all_were_unreadable() {
        let mut record = Membership::default();
        for view in ["a", "b"] {
            record.note(&sight(view, 20, RUN));
        }
        record.is_unreadable = true;
        let mut found = |view: &str, date: i64, digest: &str, run: i64| {
            see(&mut record, &sight(view, date, run), digest, 0).unwrap()
        };
        use Weight::{Counts, Double, Replaces};
        assert_eq!(found("a", 10, "old", RUN + 1), Counts);
        assert_eq!(found("a", 20, "new", RUN + 1), Replaces);
        assert_eq!([found("b", 10, "old", RUN + 1), found("b", 20, "new", RUN + 1)], [Double, Counts]);
    }

    #[test]
    fn rows_of_earlier_versions_have_no_content() {
        let mut record = Membership::parse(r#"{"v":{"":[8640000000,864000000,false]}}"#);
        assert_eq!(see(&mut record, &sight("", 10, RUN + 1), "new", 0), Some(Weight::Counts));
        assert_eq!(see(&mut record, &sight("", 10, RUN + 2), "newer", 0), Some(Weight::Counts));
    }

    #[test]
    fn a_change_during_a_run_is_no_second_record() {
        let mut record = Membership::default();
        assert_eq!(see(&mut record, &sight("", 10, RUN), "old", 0), Some(Weight::Counts));
        assert_eq!(see(&mut record, &sight("", RUN, RUN), "new", 0), Some(Weight::Counts));
        assert_eq!(see(&mut record, &sight("", RUN, RUN + 1), "new", 0), Some(Weight::Counts));
    }
}
