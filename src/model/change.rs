//! Changes: modifications that the journal has accepted.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::{
    Aspect, AspectSet, ContentItemModification, ContentObjectModification, LookupMark, NonEmpty, State, Timestamp,
    VisibilityDates,
};

/// Number of a change in the journal: 1 for the first change, and one more for each next change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The number before the first change: the head of an empty journal, or a cursor at the beginning.
    pub const ZERO: Self = Self(0);

    /// Returns the next number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A settled [`ContentObjectModification`] with its number in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number in the journal.
    pub seq: Seq,
    /// Time of receipt, by the gateway's clock.
    pub received: Timestamp,
    /// The modification.
    pub modification: ContentObjectModification,
    /// Notes from settling.
    pub settlement: Settlement,
}

impl Change {
    /// Returns a copy that contains only a range of the items, with the notes about these; `None` if the range is
    /// empty.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let ContentObjectModification { id, user, time, object, parent, types, description, report, origin, items } =
            &self.modification;
        let chosen = items.iter().skip(range.start).take(range.len()).cloned().collect::<Vec<_>>();
        let modification = ContentObjectModification {
            id: *id,
            user: user.clone(),
            time: *time,
            object: object.clone(),
            parent: parent.clone(),
            types: types.clone(),
            description: description.clone(),
            report: report.clone().filter(|_| range.start == 0),
            origin: origin.clone(),
            items: NonEmpty::try_from(chosen).ok()?,
        };
        let Settlement { filled, late, purge, as_of, lookup, due, items: notes } = &self.settlement;
        let notes = notes.iter().skip(range.start).take(range.len()).cloned().collect();
        let (filled, late, lookup) = (*filled, *late, *lookup);
        let (purge, as_of, due) = (*purge, *as_of, *due);
        let settlement = Settlement { filled, late, purge, as_of, lookup, due, items: notes };
        Some(Self { seq: self.seq, received: self.received, modification, settlement })
    }

    /// Returns the items whose change is news: what it says of the existence of the item, or of its state if that alone
    /// changed, is not older than what the registry had.
    pub fn items_on_time(&self) -> impl Iterator<Item = &ContentItemModification> {
        let is_on_time = |(index, item): &(usize, &ContentItemModification)| {
            let aspect = if item.change.change_type().is_some() { Aspect::Existence } else { Aspect::State };
            !self.settlement.item(*index).late.contains(aspect)
        };
        self.modification.items.iter().enumerate().filter(is_on_time).map(|(_, item)| item)
    }

    /// Returns whether the time is that of the receipt, because the source reported none.
    #[must_use]
    pub fn has_made_up_time(&self) -> bool {
        self.modification.time == self.received
    }
}

/// Notes from settling: how a change relates to the registry at that moment. They record which facts the change set, so
/// that the journal alone can rebuild the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Aspects of the object that come from the registry and not from the source ([`super::Aspect::Parent`],
    /// [`super::Aspect::Types`]).
    pub filled: AspectSet,
    /// Aspects of the object that are older than in the registry.
    pub late: AspectSet,
    /// Whether the object was purged, with all items that it ever had.
    pub purge: bool,
    /// Time by which the registry ordered a change whose source reported no time ([`super::DraftTime::Arrival`]), an older
    /// time than the registry has ([`super::DraftTime::Observed`]), or whole seconds: the newest time in the registry for
    /// the object.
    pub as_of: Option<Timestamp>,
    /// Result of the lookup; `None` if no lookup was made or the repository answered completely.
    pub lookup: Option<LookupMark>,
    /// Whether the gateway made the change at a time that a source had announced before.
    pub due: bool,
    /// Notes about each item, in order of the items. The list may be shorter than the list of items; the missing
    /// notes are empty.
    pub items: Vec<ItemNotes>,
}

/// Notes from settling about one item of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemNotes {
    /// Aspects of the item that are older than in the registry.
    pub late: AspectSet,
    /// Whether the journal inferred ADD or UPDATE from the registry, because the source only reported new content.
    pub inferred: bool,
    /// Default state of a new item, valid until a source reports a state.
    pub initial_state: Option<State>,
    /// Dates at which the visibility of the item will change, as announced together with the state.
    pub dates: VisibilityDates,
    /// Time at which the gateway had changed the visibility of the item because it was announced, if the source now says
    /// another date. The result of a download repeats it, because it says nothing about access.
    pub denies: Option<Timestamp>,
    /// Announced time at which the gateway had changed the visibility of the item, which still holds after the result of a
    /// download.
    pub came: Option<Timestamp>,
}

impl Settlement {
    /// Returns the notes about the item at `index` of the change.
    #[must_use]
    pub fn item(&self, index: usize) -> ItemNotes {
        self.items.get(index).cloned().unwrap_or_default()
    }

    /// Returns whether any aspect of the change is older than in the registry.
    #[must_use]
    pub fn is_late(&self) -> bool {
        !self.late.is_empty() || self.items.iter().any(|notes| !notes.late.is_empty())
    }
}
