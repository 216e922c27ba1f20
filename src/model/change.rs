//! A modification that the journal has accepted.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::{AspectSet, ContentObjectModification, LookupMark, NonEmpty, State, Timestamp};

/// A place in the journal. The first change has 1; every next change has one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The place before the first change: the head of an empty journal, a cursor at the beginning.
    pub const ZERO: Self = Self(0);

    /// The next place.
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

/// A [`ContentObjectModification`] after settling, with its place in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place in the journal.
    pub seq: Seq,
    /// When the gateway received it, by the gateway's clock.
    pub received: Timestamp,
    /// What happened.
    pub modification: ContentObjectModification,
    /// What settling found out about it.
    pub settlement: Settlement,
}

impl Change {
    /// Copy with a range of its items alone, and with what was noted about these; `None` when it has none of them.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let ContentObjectModification { id, user, time, object, parent, types, description, origin, items } =
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
            origin: origin.clone(),
            items: NonEmpty::try_from(chosen).ok()?,
        };
        let Settlement { filled, late, purge, as_of, lookup, items: notes } = &self.settlement;
        let notes = notes.iter().skip(range.start).take(range.len()).cloned().collect();
        let (filled, late, lookup) = (*filled, *late, *lookup);
        let settlement = Settlement { filled, late, purge: *purge, as_of: *as_of, lookup, items: notes };
        Some(Self { seq: self.seq, received: self.received, modification, settlement })
    }
}

/// How a change relates to what the registry held when it was settled. It says what the change
/// moved, so that the registry can be rebuilt from the journal alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// What the source did not say and the registry did ([`super::Aspect::Parent`], [`super::Aspect::Types`]).
    pub filled: AspectSet,
    /// What of the object is older than what the registry held.
    pub late: AspectSet,
    /// The object as a whole is gone, with every item that it ever had.
    pub purge: bool,
    /// Where the source told no time and the change took its place by arrival: the time by which the
    /// registry ordered it, that of the newest of what was known of the object.
    pub as_of: Option<Timestamp>,
    /// What came of asking the repository about the event, where it is not that all was answered.
    pub lookup: Option<LookupMark>,
    /// The same for each item, in order of the items; may be shorter than the list of items, and
    /// then the rest has nothing to note.
    pub items: Vec<ItemNotes>,
}

/// What settling found out about one item of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemNotes {
    /// What of the item is older than what the registry held.
    pub late: AspectSet,
    /// The source told of new content; that it is an ADD or an UPDATE the registry told.
    pub inferred: bool,
    /// The state that such an item begins in, which holds until a source tells one.
    pub initial_state: Option<State>,
}

impl Settlement {
    /// What was noted about the item at `index` of the change.
    #[must_use]
    pub fn item(&self, index: usize) -> ItemNotes {
        self.items.get(index).cloned().unwrap_or_default()
    }

    /// Whether any part of the change is older than what the registry held.
    #[must_use]
    pub fn is_late(&self) -> bool {
        !self.late.is_empty() || self.items.iter().any(|notes| !notes.late.is_empty())
    }
}
