//! Membership of records: in which views of its repository a harvest has seen a record, such as its sets.
//!
//! A repository can say that a record is deleted in one set while another set has it. A record is gone when no view that the
//! harvest follows has it any more. So a tombstone ends one membership, and the deletion of the record follows at the end of
//! the run, when all views have spoken. The result does not depend on their order.
//!
//! The journal has one row for each record ([`ListedRecord`]). Its validator is the membership as JSON, and its time decides
//! who looks at it: [`pending`] records wait for the end of a run, those with an older time than a complete list are
//! missing, and deleted ones are never missing ([`never_missing`]).

mod content;
mod counts;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use self::content::{Before, SeenContent, weigh};
pub use self::counts::{RecordCounts, ViewCounts};
pub(super) use self::{content::Weight, counts::count_renamed};
use crate::{
    journal::{
        Journal, JournalError,
        harvest::{ListedAt, ListedRecord},
    },
    model::{SourceName, Timestamp},
};

/// View of records from the time before views were noted.
const UNKNOWN_VIEW: &str = "?";

/// View of a record in one list of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Identifier of the record, without a NUL character.
    pub identifier: String,
    /// The view: the set, or an empty text for the whole repository.
    pub view: Arc<str>,
    /// True if the harvest has no other view.
    pub is_only_view: bool,
    /// Datestamp of the record.
    pub date: Option<Timestamp>,
    /// Start of the run.
    pub at: Timestamp,
    /// State of the record in the view.
    pub sight: Sight,
    /// True if the record says that it is in none of the sets of the harvest.
    pub is_foreign: bool,
    /// Number of other records of the same page with this identifier, which are older, or equally new and later in the page.
    pub doubles: u64,
}

impl Listing {
    /// Creates the listing of a record in the only view of a repository, without a datestamp.
    #[cfg(test)]
    fn of(identifier: String, sight: Sight) -> Self {
        let (view, at) = (Arc::from(""), Timestamp::EPOCH);
        Self { identifier, view, is_only_view: true, date: None, at, sight, is_foreign: false, doubles: 0 }
    }
}

/// State of a record in a view, or its state by a request of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The view has the record.
    Live,
    /// The view has the record, but the repository does not deliver it.
    Undelivered,
    /// The view has a tombstone.
    Deleted,
    /// The view has a tombstone, and it is not known which other views have the record.
    DeletedPerhaps,
    /// The repository has delivered the record on request.
    Confirmed,
    /// The deletion of the record is reported.
    Gone,
}

/// State of a record in one view: start of the newest run that has seen it, its datestamp, and whether it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct View(i64, Option<i64>, bool);

impl View {
    fn is_live(self) -> bool {
        !self.2
    }
}

/// Membership of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Membership {
    #[serde(rename = "v")]
    views: BTreeMap<String, View>,
    /// True if the record could not be read when it was last seen.
    #[serde(rename = "u", default, skip_serializing_if = "std::ops::Not::not")]
    is_unreadable: bool,
    /// True if the deletion is reported.
    #[serde(rename = "g", default, skip_serializing_if = "std::ops::Not::not")]
    is_gone: bool,
    /// Content of the record; `None` in rows of earlier versions, and if no content was read.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    content: Option<SeenContent>,
    /// Facts from before the newest sight.
    #[serde(skip)]
    before: Before,
}

/// Existence of a record, as far as its views show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// A view has it.
    Live,
    /// No known view has it, but an unknown one may.
    Unsure,
    /// No view has it.
    Deleted,
}

impl Membership {
    /// Reads a membership as the journal has it. A row without one is from an earlier version.
    pub(super) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self {
            views: BTreeMap::from([(UNKNOWN_VIEW.to_owned(), View(pending_before().millis(), None, false))]),
            ..Self::default()
        })
    }

    /// Returns whether the record exists.
    pub(super) fn existence(&self) -> Existence {
        let is_live = |name: &str| self.views.get(name).is_some_and(|view| view.is_live());
        let is_known = self.views.iter().any(|(name, view)| name != UNKNOWN_VIEW && view.is_live());
        let has_tombstone = self.views.values().any(|view| !view.is_live());
        match is_known {
            true => Existence::Live,
            false if is_live(UNKNOWN_VIEW) && has_tombstone => Existence::Unsure,
            false if is_live(UNKNOWN_VIEW) => Existence::Live,
            false => Existence::Deleted,
        }
    }

    pub(super) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Returns whether a run since `since` has seen the record in a view.
    pub(super) fn is_fresh(&self, since: Timestamp) -> bool {
        self.views.values().any(|view| view.is_live() && view.0 >= since.millis())
    }

    /// Forgets the views that no run since `since` has seen.
    pub(super) fn forget_stale(&mut self, since: Timestamp) {
        self.views.retain(|_, view| !view.is_live() || view.0 >= since.millis());
    }

    /// Returns the newest datestamp of a tombstone.
    pub(super) fn deleted_at(&self) -> Option<Timestamp> {
        let dates = self.views.values().filter(|view| !view.is_live()).filter_map(|view| view.1);
        dates.max().and_then(Timestamp::from_millis)
    }

    /// Notes the state of the record in a view. Returns false if the same run has seen a newer state in the same view.
    fn note(&mut self, listing: &Listing) -> bool {
        let at = listing.at.millis();
        let seen = View(at, listing.date.map(Timestamp::millis), false);
        match listing.sight {
            Sight::Live | Sight::Undelivered | Sight::Deleted | Sight::DeletedPerhaps => {
                let is_deleted = matches!(listing.sight, Sight::Deleted | Sight::DeletedPerhaps);
                let known = self.views.get(&*listing.view).filter(|known| known.0 == at && seen.1.is_some());
                // A tombstone does not delete an equally new record, whatever their order is.
                let is_newer = |known: &View| known.1 > seen.1 || (known.1 == seen.1 && known.is_live() && is_deleted);
                if known.is_some_and(is_newer) {
                    return false;
                }
                self.before = self.before(listing);
                if listing.is_only_view {
                    self.views.clear();
                } else if listing.sight == Sight::DeletedPerhaps && self.views.is_empty() {
                    self.views.insert(UNKNOWN_VIEW.to_owned(), View(pending_before().millis(), None, false));
                }
                self.views.insert(listing.view.to_string(), View(at, seen.1, is_deleted));
                if !is_deleted {
                    (self.is_unreadable, self.is_gone) = (listing.sight == Sight::Undelivered, false);
                }
            }
            Sight::Confirmed => {
                self.before = self.before(listing);
                self.views.retain(|_, view| view.is_live());
                self.views.values_mut().for_each(|view| view.0 = at);
                if self.views.is_empty() {
                    self.views.insert(UNKNOWN_VIEW.to_owned(), seen);
                }
                (self.is_unreadable, self.is_gone) = (false, false);
            }
            Sight::Gone => {
                self.views.values_mut().for_each(|view| view.2 = true);
                (self.is_unreadable, self.is_gone) = (false, true);
            }
        }
        if listing.sight == Sight::Gone {
            // A record that comes back is news.
            self.content = None;
        } else if self.existence() == Existence::Deleted
            && let Some(content) = &mut self.content
        {
            content.lose(self.before.newest);
        }
        true
    }

    /// Returns the facts about the record before a sight.
    fn before(&self, listing: &Listing) -> Before {
        let at = listing.at.millis();
        let live = || self.views.values().filter(|view| view.is_live());
        let own = self.views.get(&*listing.view).filter(|view| view.is_live());
        let is_same_run = !self.is_unreadable && live().any(|view| view.0 == at);
        Before {
            was_unreadable: self.is_unreadable,
            is_same_run,
            is_same_view: is_same_run && own.is_some_and(|view| view.0 == at),
            newest: live().filter_map(|view| view.1).max(),
            newest_of_run: live().filter(|view| view.0 == at).filter_map(|view| view.1).max(),
            own: own.map(|view| view.1),
        }
    }

    /// Compares the record, after [`note`](Self::note), with its content of the last run. `digest` is that of the items that
    /// it describes.
    fn weigh(&mut self, listing: &Listing, digest: &str, now: Timestamp) -> Weight {
        weigh(&mut self.content, self.before, listing, digest, now)
    }

    /// Returns the row of the record for the journal.
    pub(super) fn into_row(self, identifier: String) -> ListedRecord {
        let oldest = self.views.values().filter(|view| view.is_live()).map(|view| view.0).min();
        let listed = match self.existence() {
            Existence::Deleted if self.is_gone => never_missing(),
            Existence::Deleted | Existence::Unsure => pending(),
            Existence::Live if self.is_unreadable => pending(),
            Existence::Live => oldest.and_then(Timestamp::from_millis).unwrap_or_else(pending),
        };
        // Serialization cannot fail: every value has a JSON form.
        let validator = serde_json::to_string(&self).unwrap_or_default();
        ListedRecord { identifier, validator, listed: ListedAt::At(listed) }
    }
}

/// Memberships of the records of a part of a page.
#[derive(Debug, Default)]
pub(super) struct Memberships(HashMap<String, Membership>);

impl Memberships {
    /// Reads the memberships of records from the journal. Those of one page are different, so nothing that is being written counts.
    pub(super) async fn read(
        journal: &Journal,
        source: &SourceName,
        identifiers: Vec<String>,
    ) -> Result<Self, JournalError> {
        if identifiers.is_empty() {
            return Ok(Self::default());
        }
        let known = journal.validators(source.clone(), identifiers).await?;
        Ok(Self(known.into_iter().map(|(identifier, text)| (identifier, Membership::parse(&text))).collect()))
    }

    /// Returns whether a record was unreadable when it was last seen.
    pub(super) fn is_unreadable(&self, identifier: &str) -> bool {
        self.0.get(identifier).is_some_and(Membership::is_unreadable)
    }

    /// Notes how a repository has shown a record. Returns false if the same run has seen a newer state, which counts.
    pub(super) fn note(&mut self, listing: &Listing) -> bool {
        self.0.entry(listing.identifier.clone()).or_default().note(listing)
    }

    /// Returns whether the newest sight of a record is the first one of its run.
    pub(super) fn is_first_sight(&self, identifier: &str) -> bool {
        self.0.get(identifier).is_none_or(|membership| !membership.before.is_same_run)
    }

    /// Compares a record that was read with the last run. `digest` is that of the items that it describes.
    pub(super) fn weigh(&mut self, listing: &Listing, digest: &str, now: Timestamp) -> Weight {
        self.0.get_mut(&listing.identifier).map_or(Weight::Counts, |known| known.weigh(listing, digest, now))
    }

    /// Notes that a record cannot be read, so that later runs ask for it again.
    pub(super) fn note_unreadable(&mut self, identifier: &str) {
        if let Some(membership) = self.0.get_mut(identifier) {
            membership.is_unreadable = true;
        }
    }

    /// Returns the rows for the journal.
    pub(super) fn into_rows(self) -> impl Iterator<Item = ListedRecord> {
        self.0.into_iter().map(|(identifier, membership)| membership.into_row(identifier))
    }
}

/// Time of records that wait for the end of a run: unreadable ones, and those that their views have deleted.
fn pending() -> Timestamp {
    Timestamp::EPOCH
}

/// Time that is later than that of all records that wait, and of no others.
pub(super) fn pending_before() -> Timestamp {
    Timestamp::from_millis(1).unwrap_or(Timestamp::EPOCH)
}

/// Time of deleted records, which no list can miss; it is later than that of all others.
pub(super) fn never_missing() -> Timestamp {
    const YEAR_9999: i64 = 253_370_764_800;
    Timestamp::from_datetime(DateTime::from_timestamp(YEAR_9999, 0).unwrap_or(DateTime::<Utc>::MAX_UTC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(view: &str, date: i64, at: i64, sight: Sight) -> Listing {
        let time = |millis| Timestamp::from_millis(millis).unwrap();
        Listing {
            view: view.into(),
            is_only_view: false,
            date: Some(time(date)),
            at: time(at),
            ..Listing::of("oai:1".to_owned(), sight)
        }
    }

    #[test]
    fn a_record_is_deleted_when_its_last_view_is_gone_in_any_order() {
        let events = [seen("a", 20, 2, Sight::Deleted), seen("b", 20, 2, Sight::Live)];
        for order in [[0, 1], [1, 0]] {
            let mut record = Membership::default();
            record.note(&seen("a", 10, 1, Sight::Live));
            for event in order {
                record.note(&events[event]);
            }
            assert_eq!(record.existence(), Existence::Live);
            record.note(&seen("b", 30, 3, Sight::Deleted));
            assert_eq!(record.existence(), Existence::Deleted);
            assert_eq!(record.clone().into_row(String::new()).listed, ListedAt::At(pending()));
            record.note(&seen("", 30, 3, Sight::Gone));
            assert_eq!(record.into_row(String::new()).listed, ListedAt::At(never_missing()));
        }
    }

    #[test]
    fn an_older_state_of_the_same_run_does_not_count() {
        let mut record = Membership::default();
        assert!(record.note(&seen("", 20, 2, Sight::Live)));
        assert!(!record.note(&seen("", 10, 2, Sight::Deleted)));
        assert_eq!(record.existence(), Existence::Live);
        assert!(!record.note(&seen("", 20, 2, Sight::Deleted)), "an equally new tombstone");
        // A repository that was restored from a backup has older dates in another run.
        assert!(record.note(&seen("", 10, 3, Sight::Deleted)));
        assert_eq!(record.existence(), Existence::Deleted);
    }

    #[test]
    fn a_tombstone_does_not_decide_about_unknown_views() {
        let mut old = Membership::parse("");
        assert_eq!(old.existence(), Existence::Live);
        old.note(&seen("a", 20, 2, Sight::Deleted));
        assert_eq!(old.existence(), Existence::Unsure);
        old.note(&seen("", 20, 2, Sight::Confirmed));
        assert_eq!(old.existence(), Existence::Live);
        let mut new = Membership::default();
        new.note(&seen("a", 20, 2, Sight::DeletedPerhaps));
        assert_eq!(new.existence(), Existence::Unsure);
        // The only view decides alone.
        let mut single = Membership::parse("");
        single.note(&Listing { is_only_view: true, ..seen("a", 20, 2, Sight::Deleted) });
        assert_eq!(single.existence(), Existence::Deleted);
    }

    #[test]
    fn unreadable_records_wait_until_they_are_read() {
        let mut records = Memberships::default();
        let listing = seen("", 10, 1, Sight::Live);
        assert!(records.note(&listing));
        records.note_unreadable("oai:1");
        let row = records.into_rows().next().unwrap();
        assert_eq!(row.listed, ListedAt::At(pending()));
        let mut record = Membership::parse(&row.validator);
        assert!(record.is_unreadable());
        record.note(&seen("", 10, 2, Sight::Confirmed));
        assert!(!record.is_unreadable() && record.is_fresh(Timestamp::from_millis(2).unwrap()));
    }
}
