//! Dates at which the visibility of an item changes, as its source announces them: the end of an embargo, the end of a
//! license.

use super::{State, Timestamp, is_public};

/// The time from which and the time until which the public may see an item. At least one of them is set, unless nothing is
/// announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VisibilityDates {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// What a repository states about the dates of an item, beside its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedDates {
    /// All dates. Earlier ones that are not among them have lapsed.
    All(VisibilityDates),
    /// Some of the dates. Others cannot be read, so those that were known may still be valid.
    Partial(VisibilityDates),
    /// An embargo without an end, or dates that contradict each other.
    Embargo,
}

/// Error for dates that leave no time in which the item is visible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("visibleFrom is not before visibleUntil")]
pub struct InvalidVisibilityDates;

impl VisibilityDates {
    /// No announced date.
    pub const NONE: Self = Self { from: None, until: None };

    /// Combines the dates of an item.
    ///
    /// # Errors
    /// Fails if the item would end to be visible before it begins.
    pub fn new(from: Option<Timestamp>, until: Option<Timestamp>) -> Result<Self, InvalidVisibilityDates> {
        match (from, until) {
            (Some(from), Some(until)) if from >= until => Err(InvalidVisibilityDates),
            _ => Ok(Self { from, until }),
        }
    }

    /// Returns the time from which the public may see the item.
    #[must_use]
    pub fn from(self) -> Option<Timestamp> {
        self.from
    }

    /// Returns the time until which the public may see the item.
    #[must_use]
    pub fn until(self) -> Option<Timestamp> {
        self.until
    }

    /// Returns whether nothing is announced.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Combines two announcements, which both limit the time in which the item is visible.
    ///
    /// # Errors
    /// Fails if they leave no time.
    pub fn and(self, other: Self) -> Result<Self, InvalidVisibilityDates> {
        Self::new(self.from.max(other.from), [self.until, other.until].into_iter().flatten().min())
    }

    /// Returns the earlier date.
    #[must_use]
    pub fn next(self) -> Option<Timestamp> {
        self.from.or(self.until)
    }

    /// Returns the later one of the dates that have come: the one that decides about the visibility.
    #[must_use]
    pub fn latest_come(self, now: Timestamp) -> Option<Timestamp> {
        let has_come = |date: &Timestamp| *date <= now;
        self.until.filter(has_come).or(self.from.filter(has_come))
    }

    /// Returns the dates that are still to come.
    #[must_use]
    pub fn after(self, now: Timestamp) -> Self {
        let is_to_come = |date: &Timestamp| *date > now;
        Self { from: self.from.filter(is_to_come), until: self.until.filter(is_to_come) }
    }

    /// Returns the state that an item with these dates has at a time, if its source reports `reported`. A source that
    /// hides the item does so whatever the dates are. `None` if the dates say nothing about the state, and the source
    /// reports none.
    #[must_use]
    pub fn state_at(self, now: Timestamp, reported: Option<State>) -> Option<State> {
        if !is_public(reported.as_ref()) {
            return reported;
        }
        if self.until.is_some_and(|until| until <= now) {
            return Some(State::EXPIRED);
        }
        match self.after(now) {
            Self { from: Some(_), .. } => Some(State::EMBARGOED),
            Self { until: Some(_), .. } => reported.or(Some(State::ACTIVE)),
            Self::NONE => reported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidVisibilityDates, State, Timestamp, VisibilityDates};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000).unwrap()
    }

    fn dates(from: Option<i64>, until: Option<i64>) -> VisibilityDates {
        VisibilityDates::new(from.map(at), until.map(at)).unwrap()
    }

    #[test]
    fn item_is_visible_between_its_dates() {
        let (both, open) = (dates(Some(10), Some(20)), dates(None, Some(20)));
        let (active, inactive) = (Some(State::ACTIVE), Some(State::INACTIVE));
        for (dates, now, reported, expected) in [
            (both, 9, None, Some(State::EMBARGOED)),
            (both, 9, active.clone(), Some(State::EMBARGOED)),
            (both, 9, inactive.clone(), inactive.clone()),
            (both, 10, None, active.clone()),
            (both, 19, active.clone(), active.clone()),
            (both, 15, inactive.clone(), inactive),
            (both, 20, active.clone(), Some(State::EXPIRED)),
            (open, 0, None, active),
            (open, 20, None, Some(State::EXPIRED)),
            (dates(Some(10), None), 10, None, None),
            (VisibilityDates::NONE, 10, None, None),
        ] {
            assert_eq!(dates.state_at(at(now), reported.clone()), expected, "{dates:?} at {now}, {reported:?}");
        }
    }

    #[test]
    fn passed_dates_are_not_announced() {
        let both = dates(Some(10), Some(20));
        assert_eq!((both.next(), both.after(at(9))), (Some(at(10)), both));
        assert_eq!(both.after(at(10)), dates(None, Some(20)));
        assert_eq!(both.after(at(10)).next(), Some(at(20)));
        assert_eq!(
            [9, 10, 19, 20].map(|now| both.latest_come(at(now))),
            [None, Some(at(10)), Some(at(10)), Some(at(20))]
        );
        assert!(both.after(at(20)).is_empty());
    }

    #[test]
    fn dates_without_time_between_them_are_refused() {
        for until in [10, 9] {
            assert_eq!(VisibilityDates::new(Some(at(10)), Some(at(until))), Err(InvalidVisibilityDates));
        }
    }
}
