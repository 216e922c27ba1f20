//! What is known of every object and item: the fold of all changes, kept beside the journal.
//!
//! Events of one object do not always arrive in the order in which they happened (Fedora 3 sends
//! each from a thread of its own). So every fact is a register with its own clock, the time of the
//! event that set it, and an older event never moves it back. What a change moved is written in the
//! change ([`Settlement`]), so that [`ObjectState::apply`] over the journal rebuilds the registry.

use std::collections::BTreeMap;

use super::kept::KeptContent;
use crate::model::{
    Aspect, AspectSet, Change, ContentObjectModification, DraftItems, ItemChange, ItemNotes, Settlement, State,
    Timestamp, Uri,
};

/// When a fact was set, and until when it is known to have stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time of the change that set it.
    pub at: Option<Timestamp>,
    /// The latest time of an event that found it so and changed nothing. Such events are not in the
    /// journal, so this alone of the registry is not rebuilt from it.
    pub confirmed: Option<Timestamp>,
}

impl Clock {
    /// The latest time of which the fact is known.
    #[must_use]
    pub fn latest(self) -> Option<Timestamp> {
        self.at.max(self.confirmed)
    }

    fn set(&mut self, time: Timestamp) {
        self.at = self.at.max(Some(time));
    }

    fn confirm(&mut self, time: Timestamp) {
        self.confirmed = self.confirmed.max(Some(time));
    }
}

/// A fact and its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register<T> {
    /// The fact.
    pub value: T,
    /// When it was set.
    pub clock: Clock,
}

impl<T> Register<T> {
    pub(super) fn set(&mut self, value: T, time: Timestamp) {
        self.value = value;
        self.clock.set(time);
    }
}

/// A state that nobody told: what such an item begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The state.
    pub state: State,
    /// The latest time at which the item may have begun.
    pub at: Timestamp,
    /// The latest time at which a source told just this state.
    pub confirmed: Option<Timestamp>,
}

/// What is known of one item. Whether it still holds depends on when its object was last purged,
/// so it is read through [`ObjectState`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemRecord {
    /// Whether it is there.
    pub existence: Register<bool>,
    /// Where its content is.
    pub content: Register<Option<KeptContent>>,
    /// The state that a source told.
    pub state: Register<Option<State>>,
    /// The state that it began in, if nobody told one.
    pub begins_in: Option<Beginning>,
    /// Whether a walk found the state, and no change has told it.
    pub unheard: bool,
}

/// What is known of one object, with some or all of its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// What it belongs to.
    pub parent: Register<Option<Uri>>,
    /// Its types; empty when nobody told any.
    pub types: Register<Vec<Uri>>,
    /// When it was last purged; what is older does not hold any more.
    pub purged: Clock,
    /// Its items, by URI; those that the question named, or all. A map of a single record has room for
    /// eleven, so the records stand outside.
    pub items: BTreeMap<Uri, Box<ItemRecord>>,
}

/// What events that changed nothing say about how long facts have stood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmations {
    /// Items and the aspects of them that were found as they are held.
    pub items: Vec<(Uri, AspectSet)>,
    /// The object was found purged.
    pub purged: bool,
}

/// The registry of a whole journal, rebuilt in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// What is known of each object.
    pub objects: BTreeMap<Uri, ObjectState>,
}

impl Registry {
    /// Takes over the next change of the journal.
    pub fn take(&mut self, change: &Change) {
        self.objects.entry(change.modification.object.clone()).or_default().take(change);
    }
}

/// The time by which the registry orders an event. A source whose clock runs ahead must not make
/// everything after it late, so no event counts as newer than its receipt.
#[must_use]
pub fn order_of(time: Timestamp, received: Timestamp) -> Timestamp {
    time.min(received)
}

impl ObjectState {
    /// Whether the item is there.
    #[must_use]
    pub fn is_live(&self, item: &Uri) -> bool {
        self.items.get(item).is_some_and(|record| record.existence.value && self.holds(record.existence.clock))
    }

    /// Whether the item is known to be gone.
    #[must_use]
    pub fn is_gone(&self, item: &Uri) -> bool {
        self.items.contains_key(item) && !self.is_live(item)
    }

    /// The state of the item, if it is there and its state is known.
    #[must_use]
    pub fn state(&self, item: &Uri) -> Option<&State> {
        let record = self.items.get(item).filter(|_| self.is_live(item))?;
        match record.begun_since(self.purged) {
            Some(beginning) => Some(&beginning.state),
            None => record.state.value.as_ref().filter(|_| self.holds(record.state.clock)),
        }
    }

    /// Where the item's content is, if it is there and the place is known.
    #[must_use]
    pub fn content(&self, item: &Uri) -> Option<&KeptContent> {
        let record = self.items.get(item).filter(|_| self.is_live(item))?;
        record.content.value.as_ref().filter(|_| self.holds(record.content.clock))
    }

    /// Whether the state of the item is known from a walk alone.
    #[must_use]
    pub fn is_unheard(&self, item: &Uri) -> bool {
        self.items.get(item).is_some_and(|record| record.unheard)
    }

    /// What the object belongs to, if that is known since its last purge.
    #[must_use]
    pub fn parent(&self) -> Option<&Uri> {
        self.parent.value.as_ref().filter(|_| self.holds(self.parent.clock))
    }

    /// The object's types, if they are known since its last purge.
    #[must_use]
    pub fn types(&self) -> &[Uri] {
        if self.holds(self.types.clock) { &self.types.value } else { &[] }
    }

    /// The items that are there, in order of their URIs.
    pub fn live_items(&self) -> impl Iterator<Item = (&Uri, &ItemRecord)> {
        self.items.iter().filter(|(uri, _)| self.is_live(uri)).map(|(uri, record)| (uri, &**record))
    }

    /// The latest time of which anything is known of the object or of these items. What else is here depends on the other drafts of
    /// the batch.
    pub(super) fn newest(&self, items: &DraftItems) -> Option<Timestamp> {
        let named: Vec<&ItemRecord> = match items {
            DraftItems::Listed(items) => {
                items.iter().filter_map(|item| self.items.get(&item.uri)).map(|item| &**item).collect()
            }
            DraftItems::Purge => self.items.values().map(|item| &**item).collect(),
        };
        let of_items =
            named.into_iter().flat_map(|item| [item.existence.clock, item.content.clock, item.state_clock()]);
        [self.parent.clock, self.types.clock, self.purged].into_iter().chain(of_items).filter_map(Clock::latest).max()
    }

    /// Whether an event at `time` is older than what is held of that aspect. Events at the same
    /// millisecond count as arriving in order.
    #[must_use]
    pub fn is_late(&self, item: &Uri, aspect: Aspect, time: Timestamp) -> bool {
        Some(time) < self.held_at(item, aspect)
    }

    /// Whether an event at `time` is newer than what is held of that aspect.
    #[must_use]
    pub fn is_newer(&self, item: &Uri, aspect: Aspect, time: Timestamp) -> bool {
        Some(time) > self.held_at(item, aspect)
    }

    /// The latest time of which that aspect is known.
    fn held_at(&self, item: &Uri, aspect: Aspect) -> Option<Timestamp> {
        let record = self.items.get(item);
        let held = match aspect {
            Aspect::Existence => record.map(|record| record.existence.clock),
            Aspect::Content => record.map(|record| record.content.clock),
            Aspect::State => record.map(|record| record.state_clock()),
            Aspect::Parent => Some(self.parent.clock),
            Aspect::Types => Some(self.types.clock),
        };
        held.and_then(Clock::latest).max(self.purged.latest())
    }

    /// Takes over a change of the journal. To take over again a run of changes that it holds already, from
    /// any of them to the newest, in order, moves nothing: what a change sets, it sets whatever was there.
    pub fn take(&mut self, change: &Change) {
        let order = order_of(change.settlement.as_of.unwrap_or(change.modification.time), change.received);
        self.apply(order, &change.modification, &change.settlement);
    }

    /// Takes over what a change says, except what it says too late.
    pub fn apply(&mut self, time: Timestamp, modification: &ContentObjectModification, settlement: &Settlement) {
        let told = |aspect| !settlement.filled.contains(aspect) && !settlement.late.contains(aspect);
        if modification.parent.is_some() && told(Aspect::Parent) {
            self.parent.set(modification.parent.clone(), time);
        }
        if !modification.types.is_empty() && told(Aspect::Types) {
            self.types.set(modification.types.clone(), time);
        }
        for (index, item) in modification.items.iter().enumerate() {
            self.items.entry(item.uri.clone()).or_default().apply(time, &item.change, &settlement.item(index));
        }
        if settlement.purge {
            self.purged.set(time);
        }
    }

    /// Whether [`apply`](Self::apply) takes anything over that is not an item's.
    #[must_use]
    pub fn is_told_by(modification: &ContentObjectModification, settlement: &Settlement) -> bool {
        let told = |aspect| !settlement.filled.contains(aspect) && !settlement.late.contains(aspect);
        let parent = modification.parent.is_some() && told(Aspect::Parent);
        let types = !modification.types.is_empty() && told(Aspect::Types);
        parent || types || settlement.purge
    }

    /// The same without what events that are not in the journal have confirmed: what the journal
    /// alone rebuilds.
    #[must_use]
    pub fn without_confirmations(mut self) -> Self {
        let clear = |clock: &mut Clock| clock.confirmed = None;
        clear(&mut self.parent.clock);
        clear(&mut self.types.clock);
        clear(&mut self.purged);
        for record in self.items.values_mut() {
            clear(&mut record.existence.clock);
            clear(&mut record.content.clock);
            clear(&mut record.state.clock);
            if let Some(beginning) = &mut record.begins_in {
                beginning.confirmed = None;
            }
        }
        self
    }

    /// Takes over how long facts have stood.
    pub fn confirm(&mut self, time: Timestamp, confirmations: &Confirmations) {
        for (uri, aspects) in &confirmations.items {
            if let Some(record) = self.items.get_mut(uri) {
                record.confirm(time, *aspects, self.purged);
            }
        }
        if confirmations.purged {
            self.purged.confirm(time);
        }
    }
}

impl ItemRecord {
    fn apply(&mut self, time: Timestamp, change: &ItemChange, notes: &ItemNotes) {
        let on_time = |aspect| !notes.late.contains(aspect);
        let gone = matches!(change, ItemChange::Delete { .. });
        if on_time(Aspect::Existence) {
            self.existence.set(!gone, time);
        }
        // What is told to be new or gone has no content and no state but what it is told to have.
        let told_anew = gone || (matches!(change, ItemChange::Add { .. }) && !notes.inferred);
        if (told_anew || change.content().is_some()) && on_time(Aspect::Content) {
            self.content.set(change.content().map(KeptContent::from), time);
        }
        let told_state = change.after().is_some() && notes.begins_in.is_none();
        if (told_anew || told_state) && on_time(Aspect::State) {
            self.state.set(change.after().cloned(), time);
            self.unheard = false;
        }
        let known_longer = self.begins_in.as_ref().is_some_and(|held| held.at > time);
        if let Some(state) = notes.begins_in.clone().filter(|_| !known_longer) {
            let same = self.begins_in.as_ref().filter(|held| held.state == state);
            let confirmed = same.and_then(|held| held.confirmed);
            self.begins_in = Some(Beginning { state, at: time, confirmed });
        }
    }

    fn confirm(&mut self, time: Timestamp, aspects: AspectSet, purged: Clock) {
        if aspects.contains(Aspect::Existence) {
            self.existence.clock.confirm(time);
        }
        if aspects.contains(Aspect::Content) {
            self.content.clock.confirm(time);
        }
        if aspects.contains(Aspect::State) {
            let begun = self.begun_since(purged).is_some();
            match self.begins_in.as_mut().filter(|_| begun) {
                Some(beginning) => beginning.confirmed = beginning.confirmed.max(Some(time)),
                None => self.state.clock.confirm(time),
            }
        }
    }

    /// The beginning, if it is what tells the state: nobody has told another state since.
    fn begun_since(&self, purged: Clock) -> Option<&Beginning> {
        let told = self.state.clock.latest().max(purged.latest());
        let holds = |beginning: &&Beginning| {
            let untold = self.state.value.is_none() || self.state.clock.latest() < purged.latest();
            beginning.confirmed > told || (untold && Some(beginning.at) >= told)
        };
        self.begins_in.as_ref().filter(holds)
    }

    fn state_clock(&self) -> Clock {
        let confirmed = self.begins_in.as_ref().and_then(|beginning| beginning.confirmed);
        Clock { at: self.state.clock.at, confirmed: self.state.clock.confirmed.max(confirmed) }
    }
}

impl ObjectState {
    /// Whether what was last known to stand at that time still holds after the last purge.
    fn holds(&self, clock: Clock) -> bool {
        clock.latest() >= self.purged.latest()
    }
}
