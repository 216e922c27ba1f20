//! Position of a harvest: everything that a restarted gateway needs to request the next page.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::response::RawRecord;
use crate::model::{SourceName, Timestamp};

/// Position of a harvest, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Position {
    /// Digest of the settings that the position depends on.
    pub(super) settings: String,
    /// Time from which the next run harvests; `None` before the first complete run.
    pub(super) from: Option<Timestamp>,
    /// The run that has not ended.
    pub(super) list: Option<ListPosition>,
    /// Deviations of the repository from the protocol.
    pub(super) quirks: Quirks,
    /// Facts about the repository, to notice their changes.
    pub(super) identity: Option<RepositoryIdentity>,
    /// The newest complete list of all records.
    pub(super) full: Option<FullList>,
    /// Search for missing records, which follows a complete list.
    pub(super) sweep: Option<SweepPosition>,
    /// Size and length of the last list that was much shorter than the repository had announced.
    pub(super) short_list: Option<(u64, u64)>,
    /// Whether the journal knows all views of each record, because a run has listed all records and noted them.
    pub(super) knows_views: bool,
    /// Place of the records; `None` in positions of earlier versions.
    pub(super) place: Option<Place>,
    /// Places of former settings whose records are still in the registry.
    pub(super) former: Vec<FormerPlace>,
    /// True if the URIs of the records do not have the query of the base URL, because an earlier version made them.
    pub(super) omits_query: bool,
    /// True if a remark about that is due.
    pub(super) must_tell_omission: bool,
    /// Time of the newest comparison with the number of records that the repository announces.
    pub(super) counted: Option<Timestamp>,
    /// Time at which a difference of these numbers has last begun a complete list.
    pub(super) difference_listed: Option<Timestamp>,
    /// Size of the records that were stored, in bytes.
    pub(super) stored_bytes: u64,
}

/// Place of records, which their URIs have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) base_url: String,
    pub(super) prefix: String,
}

/// Place of former settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FormerPlace {
    #[serde(flatten)]
    pub(super) place: Place,
    /// Name under which the journal has the records.
    pub(super) name: String,
    /// True if the records still have the name of the source, because no list of the new settings has begun.
    pub(super) is_new: bool,
}

/// Settings that decide whether a position can be continued.
pub(super) struct PositionSettings {
    /// Digest of the settings.
    pub(super) digest: String,
    pub(super) place: Place,
    /// Digest of the same settings in positions of earlier versions, which left out the query of the base URL.
    pub(super) adoptable: Option<String>,
}

/// A complete list of all records, by which missing ones are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FullList {
    /// Start of its run, by the clock of the gateway.
    pub(super) began: Timestamp,
    /// Whether the missing records were looked for.
    pub(super) is_swept: bool,
}

/// Stage of the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SweepStage {
    /// Records that wait for the end of the run.
    #[default]
    Waiting,
    /// Views that the complete list no longer shows of records in other views.
    Settling,
    /// Records that the complete list does not have.
    Missing,
    /// Records of former settings that an administrator retires. Such a run has no list.
    Former,
}

/// Position within the search for waiting and missing records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SweepPosition {
    /// Identifier of the last record that was looked for; empty at the beginning.
    pub(super) after: String,
    /// Number of missing records whose deletion the repository has not confirmed.
    pub(super) unconfirmed: u64,
    pub(super) stage: SweepStage,
    /// Start of the run, by the clock of the gateway.
    pub(super) began: Option<Timestamp>,
    /// Number of unreadable records that were requested again.
    pub(super) asked: u64,
}

/// Position within a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ListPosition {
    /// Start of the run, by the clock of the gateway.
    pub(super) started: Option<Timestamp>,
    /// Whether the run lists all records, and not only those since the mark.
    pub(super) is_full: bool,
    /// Whether a list of the run was much shorter than the repository had announced.
    pub(super) is_short: bool,
    /// Whether records wait for the end of the run.
    pub(super) has_waiting: bool,
    /// Number of sets that are finished.
    pub(super) set: usize,
    /// Date of the first response of the run, by the clock of the repository.
    pub(super) began: Option<Timestamp>,
    /// Newest datestamp that is not in the future.
    pub(super) newest: Option<Timestamp>,
    /// Present window of a back-fill; `None` without windows.
    pub(super) window: Option<Window>,
    /// Token of the next page; `None` for the first one.
    pub(super) token: Option<String>,
    /// Identifier up to which the records of the present page of identifiers are on disk; `None` at its beginning.
    pub(super) within: Option<String>,
    /// Number of pages of the present list.
    pub(super) pages: u64,
    /// Number of records of the present list.
    pub(super) records: u64,
    /// Number of records of the present list, as the repository announced it.
    pub(super) announced: Option<u64>,
    /// Number of successive pages without records.
    pub(super) empty_pages: u32,
    /// Number of times that the present list or window began again.
    pub(super) restarts: u32,
    /// Number of successive divisions because the repository failed.
    pub(super) outages: u32,
    /// Whether the present token was sent again without encoding.
    pub(super) tried_verbatim: bool,
    /// Whether the present token was sent again with the metadata prefix.
    pub(super) tried_prefix: bool,
    /// Detection of lists without an end.
    pub(super) cycle: CycleDetector,
}

/// Part of a back-fill. Both ends are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Start; `None` for everything before the end.
    pub(super) from: Option<Timestamp>,
    /// End; `None` for everything after the start.
    pub(super) until: Option<Timestamp>,
    /// Length of the next window, in seconds.
    pub(super) seconds: i64,
}

/// Deviations of a repository from the protocol, as the harvest has found them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Quirks {
    /// The repository decodes tokens wrongly, so they are sent as they are.
    pub(super) verbatim_tokens: bool,
    /// The repository needs the metadata prefix in requests with a token, although the token is an exclusive argument.
    pub(super) prefix_with_tokens: bool,
    /// Form of dates that the repository accepts, if it is not the announced one.
    pub(super) dates: Option<DateForm>,
    /// The repository sends broken compressed responses.
    pub(super) no_compression: bool,
}

/// Form of the arguments `from` and `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DateForm {
    /// Date and time.
    Seconds,
    /// Date alone.
    Day,
    /// The repository accepts no dates.
    None,
}

/// Facts about a repository, as `Identify` reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RepositoryIdentity {
    pub(super) base_url: String,
    pub(super) granularity: String,
    pub(super) deleted_record: String,
    pub(super) earliest_datestamp: String,
}

/// Detects that a list repeats itself, with the same memory for cycles of any length (Brent's algorithm): compares each
/// page with one earlier page, and remembers the present page after 1, 2, 4, 8 … pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CycleDetector {
    /// Digest of the remembered page.
    remembered: String,
    /// Number of pages since.
    since: u64,
    /// Number of pages after which the present page is remembered.
    limit: u64,
}

impl CycleDetector {
    /// Notes a page; returns whether the same page occurred before. A page at another place of the list is another one, even if
    /// its records and its token are the same: a repository can have the place in a cookie.
    pub(super) fn note(&mut self, records: &[RawRecord], token: &str, cursor: Option<u64>) -> bool {
        let mut hash = Sha256::new();
        for text in records.iter().map(|record| record.identifier.as_str()).chain([token]) {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        if let Some(cursor) = cursor {
            hash.update(cursor.to_be_bytes());
        }
        let page = hex::encode(&hash.finalize()[..16]);
        if page == self.remembered {
            return true;
        }
        self.since += 1;
        if self.since >= self.limit {
            *self = Self { remembered: page, since: 0, limit: (self.limit * 2).max(1) };
        }
        false
    }
}

impl Position {
    /// Parses a position. One that this version cannot parse begins the harvest again, which changes nothing in the registry.
    /// So does one of other settings; it remembers the place of the former records.
    pub(super) fn parse(text: &str, settings: &PositionSettings, source: &SourceName) -> Self {
        let PositionSettings { digest, place, adoptable } = settings;
        let begin = || Self { settings: digest.clone(), place: Some(place.clone()), ..Self::default() };
        let Ok(mut stored) = serde_json::from_str::<Self>(text) else { return begin() };
        if stored.place.is_none() && adoptable.as_ref() == Some(&stored.settings) {
            stored.settings.clone_from(digest);
            (stored.omits_query, stored.must_tell_omission) = (true, true);
        }
        if stored.settings == *digest {
            stored.place.get_or_insert_with(|| place.clone());
            return stored;
        }
        let mut former = stored.former;
        // Positions of earlier versions have no place, but the base URL from `Identify`.
        let before = stored.place.or_else(|| {
            let base_url = stored.identity?.base_url;
            Some(Place { base_url, prefix: place.prefix.clone() })
        });
        let mut is_same_place = true;
        if let Some(before) = before.filter(|before| before != place) {
            is_same_place = false;
            let name = before.former_name(source);
            former.retain(|known| known.name != name);
            former.push(FormerPlace { place: before, name, is_new: true });
        }
        let (omits_query, stored_bytes) = (stored.omits_query && is_same_place, stored.stored_bytes);
        Self { former, omits_query, stored_bytes, ..begin() }
    }

    /// Returns the position at which an audit begins. It has what the requests and the URIs of the records depend on.
    pub(super) fn of_audit(self) -> Self {
        let Self { settings, place, quirks, omits_query, .. } = self;
        Self { settings, place, quirks, omits_query, ..Self::default() }
    }

    /// Returns the start of the present list without windows; `None` for everything.
    pub(super) fn list_start(&self) -> Option<Timestamp> {
        self.from.filter(|_| !self.list.as_ref().is_some_and(|list| list.is_full))
    }

    /// Returns the position as text.
    pub(super) fn text(&self) -> String {
        // Serialization cannot fail: every value has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Position {
    /// Returns the name under which the records of the former settings are kept from now on, with the first page of the new
    /// settings.
    pub(super) fn take_new_former(&mut self) -> Option<SourceName> {
        let former = self.former.iter_mut().find(|former| former.is_new)?;
        former.is_new = false;
        SourceName::parse(&former.name).ok()
    }
}

impl Place {
    /// Returns the name under which the journal keeps the records of this place when a source has left it.
    fn former_name(&self, source: &SourceName) -> String {
        let Self { base_url, prefix } = self;
        format!("former_{}", hex::encode(&Sha256::digest(format!("{source}\n{base_url}\n{prefix}"))[..12]))
    }
}

impl ListPosition {
    /// Begins the present list again, or the next one. Facts about the whole run stay.
    pub(super) fn restart_list(&mut self) {
        let before = std::mem::take(self);
        let Self { started, is_full, is_short, has_waiting, set, began, newest, window, restarts, outages, .. } =
            before;
        *self = Self {
            started,
            is_full,
            is_short,
            has_waiting,
            set,
            began,
            newest,
            window,
            restarts,
            outages,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{CycleDetector, FormerPlace, Place, Position, PositionSettings, RawRecord, SourceName};

    #[test]
    fn cycles_of_any_length_are_detected() {
        for (tail, length) in [(0, 1), (0, 2), (3, 1), (5, 7), (100, 33)] {
            let mut detector = CycleDetector::default();
            let page = |number: usize| if number < tail { number } else { tail + (number - tail) % length };
            let found = (0..1000).find(|number| detector.note(&[], &page(*number).to_string(), None));
            assert!(found.is_some_and(|found| found < 4 * (tail + length) + 2), "{tail} {length}: {found:?}");
        }
    }

    #[test]
    fn same_token_with_other_records_is_no_cycle() {
        let mut detector = CycleDetector::default();
        for number in 0..1000 {
            let record = RawRecord::without_metadata(&number.to_string(), "", false);
            assert!(!detector.note(&[record], "next", None));
        }
    }

    #[test]
    fn same_page_at_another_place_is_no_cycle() {
        let mut detector = CycleDetector::default();
        let found = [0, 3, 6, 9].map(|cursor| detector.note(&[], "next", Some(cursor)));
        assert_eq!(found, [false; 4]);
        assert!(detector.note(&[], "next", Some(9)));
    }

    fn place(base_url: &str) -> Place {
        Place { base_url: base_url.to_owned(), prefix: "oai_dc".to_owned() }
    }

    fn settings(digest: &str) -> PositionSettings {
        PositionSettings { digest: digest.to_owned(), place: place("http://h/oai"), adoptable: Some("old".to_owned()) }
    }

    fn parse(position: &Position, digest: &str) -> Position {
        Position::parse(&position.text(), &settings(digest), &SourceName::parse("s").unwrap())
    }

    #[test]
    fn position_survives_its_text_form_and_other_positions_begin_again() {
        let place = Some(place("http://h/oai"));
        let begin = || Position { settings: "s".to_owned(), place: place.clone(), ..Position::default() };
        let position = Position { short_list: Some((3, 4)), ..begin() };
        assert_eq!(parse(&position, "s"), position);
        assert_eq!(Position::parse("?", &settings("s"), &SourceName::parse("s").unwrap()), begin());
        assert_eq!(parse(&Position { settings: "other".to_owned(), ..position }, "s"), begin());
    }

    #[test]
    fn records_of_another_place_are_remembered_and_those_without_a_query_are_adopted() {
        let before = Position { settings: "x".to_owned(), place: Some(place("http://old/oai")), ..Position::default() };
        let moved = parse(&before, "s");
        let [FormerPlace { place: former, is_new: true, .. }] = moved.former.as_slice() else { panic!("{moved:?}") };
        assert_eq!(*former, place("http://old/oai"));
        let before = Position { settings: "old".to_owned(), short_list: Some((3, 4)), ..Position::default() };
        let adopted = parse(&before, "s");
        assert!(adopted.omits_query && adopted.must_tell_omission && adopted.short_list == Some((3, 4)));
        let audit = parse(&adopted.of_audit(), "s");
        assert!(audit.omits_query && audit.short_list.is_none(), "an audit reads records under the same URIs");
    }
}
