//! Dates that a repository states about a resource in RDF: from when and until when the public may see it. No standard names
//! the predicates, so the configuration does.

use crate::model::{StatedDates, Timestamp, Uri, VisibilityDates};

/// Value of an embargo without an end, as the module Scholar Embargo of Islandora 7 writes it.
const INDEFINITE: &str = "indefinite";

/// Maximum number of resources that a resource names as the place of its dates.
const MAX_PLACES: usize = 4;

/// Predicates whose values are dates, or resources that have the dates by the same predicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatePredicates {
    /// Predicates of the date from which the public may see the resource.
    pub from: Vec<Uri>,
    /// Predicates of the date until which the public may see the resource.
    pub until: Vec<Uri>,
}

/// End of a time that a date limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateRole {
    /// The public may see the resource from this date on.
    From,
    /// The public may see the resource until this date.
    Until,
}

/// Statements about the dates of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DateStatements {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    is_indefinite: bool,
    has_unreadable: bool,
    places: Vec<Uri>,
}

impl DatePredicates {
    /// Returns whether there are none, so that no dates are read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from.is_empty() && self.until.is_empty()
    }

    /// Returns whether the name of an attribute, without its namespace, can be that of a predicate. Namespaces seldom end with a
    /// letter or a digit.
    pub(super) fn may_end_with(&self, local: &str) -> bool {
        let has_name = |predicate: &Uri| {
            let namespace = predicate.as_str().strip_suffix(local);
            namespace.is_some_and(|namespace| !namespace.ends_with(char::is_alphanumeric))
        };
        self.from.iter().chain(&self.until).any(has_name)
    }

    /// Returns the role of a predicate; `None` for one that has no dates.
    #[must_use]
    pub fn role(&self, predicate: &str) -> Option<DateRole> {
        let is_one_of = |uris: &[Uri]| uris.iter().any(|uri| uri.as_str() == predicate);
        match (is_one_of(&self.from), is_one_of(&self.until)) {
            (true, _) => Some(DateRole::From),
            (false, true) => Some(DateRole::Until),
            (false, false) => None,
        }
    }
}

impl DateStatements {
    /// Adds the value of a predicate. Of several dates, those count that leave the shortest time. An empty value is no date.
    pub fn add(&mut self, role: DateRole, value: &str) {
        let value = value.trim();
        match (role, first_day(value)) {
            _ if value.is_empty() => {}
            (DateRole::From, _) if value == INDEFINITE => self.is_indefinite = true,
            (DateRole::From, Some(date)) => self.from = self.from.max(Some(date)),
            (DateRole::Until, Some(date)) => self.until = Some(self.until.map_or(date, |until| until.min(date))),
            (_, None) => self.has_unreadable = true,
        }
    }

    /// Adds a resource that has the dates. The dates of further resources than four stay unknown.
    pub fn add_place(&mut self, place: Uri) {
        if self.places.contains(&place) {
            return;
        }
        match self.places.len() < MAX_PLACES {
            true => self.places.push(place),
            false => self.has_unreadable = true,
        }
    }

    /// Adds the statements of a resource that has the dates. The dates of further resources that it names stay unknown.
    pub fn add_all(&mut self, other: &Self) {
        self.has_unreadable |= other.places.iter().any(|place| !self.places.contains(place));
        self.from = self.from.max(other.from);
        self.until = [self.until, other.until].into_iter().flatten().min();
        self.is_indefinite |= other.is_indefinite;
        self.has_unreadable |= other.has_unreadable;
    }

    /// Returns statements that cannot be read.
    #[must_use]
    pub fn unreadable() -> Self {
        Self { has_unreadable: true, ..Self::default() }
    }

    /// Notes a value that cannot be read.
    pub fn add_unreadable(&mut self) {
        self.has_unreadable = true;
    }

    /// Returns the resources that have the dates, at most four.
    #[must_use]
    pub fn places(&self) -> &[Uri] {
        &self.places
    }

    /// Returns whether a value cannot be read, or leaves no time in which the resource is visible.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        self.has_unreadable || VisibilityDates::new(self.from, self.until).is_err()
    }

    /// Returns what the statements say. Dates that leave no time are an embargo, because none of them says when it ends.
    #[must_use]
    pub fn dates(&self) -> StatedDates {
        match VisibilityDates::new(self.from, self.until) {
            Ok(dates) if !self.is_indefinite && self.has_unreadable => StatedDates::Partial(dates),
            Ok(dates) if !self.is_indefinite => StatedDates::All(dates),
            Ok(_) | Err(_) => StatedDates::Embargo,
        }
    }
}

/// Parses a date of W3CDTF. A day, a month or a year is its begin in UTC.
pub(super) fn first_day(date: &str) -> Option<Timestamp> {
    let date = date.trim();
    let day = match date.len() {
        4 => format!("{date}-01-01"),
        7 => format!("{date}-01"),
        _ => date.to_owned(),
    };
    Timestamp::parse_or_day(&day).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        DatePredicates,
        DateRole::{From, Until},
        DateStatements, MAX_PLACES, StatedDates, Timestamp, Uri, VisibilityDates,
    };

    #[test]
    fn names_of_attributes_are_compared_as_a_whole() {
        let predicate = |uri: &str| DatePredicates { from: Vec::new(), until: vec![Uri::parse(uri).unwrap()] };
        for uri in ["http://h/until", "http://h#until", "urn:x:until", "http://h/x-until", "http://h/x_until"] {
            assert!(predicate(uri).may_end_with("until") && !predicate(uri).may_end_with("til"), "{uri}");
        }
    }

    #[test]
    fn shortest_time_counts() {
        let day = |text: &str| Some(Timestamp::parse_or_day(text).unwrap());
        let dates = |from, until| VisibilityDates::new(from, until).unwrap();
        for (values, expected) in [
            (&[][..], StatedDates::All(VisibilityDates::NONE)),
            (&[(From, ""), (Until, " ")], StatedDates::All(VisibilityDates::NONE)),
            (
                &[(From, "2030"), (From, " 2031-02 "), (From, "2029-01-01")],
                StatedDates::All(dates(day("2031-02-01"), None)),
            ),
            (
                &[(Until, "2031-01-01T00:00:00Z"), (Until, "2030-01-01")],
                StatedDates::All(dates(None, day("2030-01-01"))),
            ),
            (
                &[(From, "2030-01-01"), (Until, "2031-01-01")],
                StatedDates::All(dates(day("2030-01-01"), day("2031-01-01"))),
            ),
            (&[(From, "in spring"), (From, "2030-01-01")], StatedDates::Partial(dates(day("2030-01-01"), None))),
            (&[(Until, "indefinite")], StatedDates::Partial(VisibilityDates::NONE)),
            (&[(From, "2031-01-01"), (Until, "2030-01-01")], StatedDates::Embargo),
            (&[(From, "2029-01-01"), (From, "2031-01-01"), (Until, "2030-01-01")], StatedDates::Embargo),
            (&[(From, "2030-01-01"), (Until, "2030-01-01"), (From, "in spring")], StatedDates::Embargo),
            (&[(From, "2030-01-01"), (From, "indefinite")], StatedDates::Embargo),
        ] {
            let mut statements = DateStatements::default();
            values.iter().for_each(|(role, value)| statements.add(*role, value));
            assert_eq!(statements.dates(), expected, "{values:?}");
            let mut merged = DateStatements::default();
            merged.add_all(&statements);
            assert_eq!(merged, statements, "{values:?}");
        }
    }

    fn with_places(numbers: std::ops::Range<usize>) -> DateStatements {
        let mut statements = DateStatements::default();
        for number in numbers {
            statements.add_place(Uri::parse(&format!("http://h/{number}")).unwrap());
        }
        statements
    }

    #[test]
    fn places_beyond_the_bound_are_unreadable() {
        for (number, has_unreadable) in [(MAX_PLACES, false), (MAX_PLACES + 1, true), (100, true)] {
            let mut statements = with_places(0..number);
            statements.add_place(Uri::parse("http://h/0").unwrap());
            assert_eq!((statements.places().len(), statements.has_unreadable()), (MAX_PLACES, has_unreadable));
        }
    }

    #[test]
    fn places_of_a_place_are_unreadable_unless_they_are_known() {
        for (of_place, has_unreadable) in [(0..2, false), (1..3, true)] {
            let mut statements = with_places(0..2);
            statements.add_all(&with_places(of_place));
            assert_eq!((statements.places().len(), statements.has_unreadable()), (2, has_unreadable));
        }
    }
}
