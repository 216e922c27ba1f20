//! The registry: the last known state of every object and item, derived from all changes.
//!
//! Events of one object do not always arrive in the order in which they happened, because Fedora 3 sends each event
//! from its own thread. Every fact is therefore a last-writer-wins register with its own clock: the time of the
//! event that set it. An older event never overwrites it. Each change records which facts it set ([`Settlement`]),
//! so replaying the journal with [`ObjectState::apply_change`] rebuilds the registry.

use std::collections::BTreeMap;

use super::raw_content::RawContentLocation;
use crate::model::{
    Aspect, AspectSet, Change, ContentObjectModification, DraftItems, ItemChange, ItemNotes, Settlement, SourceName,
    State, Timestamp, Uri, VisibilityDates,
};

/// Clock of a fact: the time at which it was set, and the latest time at which it was confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Time of the change that set the fact.
    pub at: Option<Timestamp>,
    /// Latest time of an event that reported the same fact. Such events are not in the journal, so a replay of the
    /// journal does not restore this field.
    pub confirmed: Option<Timestamp>,
}

impl Clock {
    /// Returns the latest time at which the fact is known to be true.
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
    /// Clock of the fact.
    pub clock: Clock,
}

impl<T> Register<T> {
    pub(super) fn set(&mut self, value: T, time: Timestamp) {
        self.value = value;
        self.clock.set(time);
    }
}

/// State that a new item has by default, while no source has reported another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialState {
    /// The state.
    pub state: State,
    /// Latest possible creation time of the item.
    pub at: Timestamp,
    /// Latest time at which a source reported the same state.
    pub confirmed: Option<Timestamp>,
}

/// Facts about one item. A purge of the object invalidates older facts, so read them through [`ObjectState`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemRecord {
    /// Whether the item exists.
    pub existence: Register<bool>,
    /// Location of the content.
    pub content: Register<Option<RawContentLocation>>,
    /// State that a source reported.
    pub state: Register<Option<State>>,
    /// State of the item since its creation, if no source reported one.
    pub initial_state: Option<InitialState>,
    /// Whether the state comes from a crawl, and no change has reported it.
    pub unannounced: bool,
    /// Dates that were announced together with the state.
    pub schedule: Schedule,
}

/// When the visibility of an item changes. It belongs to the state: whatever sets the state replaces it. An item that does not
/// exist has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Dates that have not come.
    pub dates: VisibilityDates,
    /// The announced date that has set the present state, as no source has reported one since.
    pub came: Option<Timestamp>,
    /// The announced date that had set a state before, if the source has said another date afterwards.
    pub denied: Option<Timestamp>,
}

/// Facts about one object, with some or all of its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// Parent of the object.
    pub parent: Register<Option<Uri>>,
    /// Types of the object; empty if no source reported any.
    pub types: Register<Vec<Uri>>,
    /// Time of the last purge, which invalidates older facts.
    pub purged: Clock,
    /// Source whose change or crawl was the first about the object. It never changes. An object can only be without it
    /// (`None`) if a version that did not record it has written the object, and retention has removed its changes.
    pub source: Option<SourceName>,
    /// Items by URI: either the selected items or all. The records are boxed, because even a map with one record
    /// allocates room for eleven.
    pub items: BTreeMap<Uri, Box<ItemRecord>>,
}

/// Facts that an event reported as the registry has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmations {
    /// Items with their confirmed aspects.
    pub items: Vec<(Uri, AspectSet)>,
    /// Whether the event reported the purge that the registry has.
    pub purged: bool,
}

/// The registry of a whole journal, rebuilt in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// State of each object.
    pub objects: BTreeMap<Uri, ObjectState>,
}

impl Schedule {
    /// Returns the two dates, the one that came and the one that was denied.
    #[must_use]
    pub(super) fn times(self) -> [Option<Timestamp>; 4] {
        [self.dates.from(), self.dates.until(), self.came, self.denied]
    }
}

impl Registry {
    /// Applies the next change of the journal.
    pub fn apply(&mut self, change: &Change) {
        self.objects.entry(change.modification.object.clone()).or_default().apply_change(change);
    }
}

/// Returns the time by which the registry orders an event: the event's time, but not after its receipt. Otherwise
/// one event from a source whose clock is ahead would make all later events late.
#[must_use]
pub fn ordering_time(time: Timestamp, received: Timestamp) -> Timestamp {
    time.min(received)
}

impl ObjectState {
    /// Returns whether any event or crawl was about the object.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.source.is_some() || !self.items.is_empty()
    }

    /// Returns whether the item exists.
    #[must_use]
    pub fn is_live(&self, item: &Uri) -> bool {
        self.items.get(item).is_some_and(|record| record.existence.value && self.is_valid(record.existence.clock))
    }

    /// Returns whether the item is known to be deleted.
    #[must_use]
    pub fn is_gone(&self, item: &Uri) -> bool {
        self.items.contains_key(item) && !self.is_live(item)
    }

    /// Returns the state of the item, if the item exists and its state is known.
    #[must_use]
    pub fn state(&self, item: &Uri) -> Option<&State> {
        let record = self.items.get(item).filter(|_| self.is_live(item))?;
        match record.current_initial_state(self.purged) {
            Some(initial) => Some(&initial.state),
            None => record.state.value.as_ref().filter(|_| self.is_valid(record.state.clock)),
        }
    }

    /// Returns the location of the item's content, if the item exists and the location is known.
    #[must_use]
    pub fn content(&self, item: &Uri) -> Option<&RawContentLocation> {
        let record = self.items.get(item).filter(|_| self.is_live(item))?;
        record.content.value.as_ref().filter(|_| self.is_valid(record.content.clock))
    }

    /// Returns whether the state of the item is known only from a crawl.
    #[must_use]
    pub fn is_unannounced(&self, item: &Uri) -> bool {
        self.items.get(item).is_some_and(|record| record.unannounced)
    }

    /// Returns when the visibility of the item changes.
    #[must_use]
    pub fn schedule(&self, item: &Uri) -> Schedule {
        self.items.get(item).map(|record| record.schedule).unwrap_or_default()
    }

    /// Returns whether dates decide about the state of an item, so that a list that knows no dates says nothing about it.
    #[must_use]
    pub fn is_decided_by_dates(&self, item: &Uri) -> bool {
        let Schedule { dates, came, .. } = self.schedule(item);
        !dates.is_empty() || came.is_some() || self.state(item).is_some_and(State::is_of_dates)
    }

    /// Returns the earliest time at which a source has announced the dates of one of these items.
    pub(super) fn announced(&self, items: &DraftItems) -> Option<Timestamp> {
        let records = items.listed().iter().filter_map(|item| self.items.get(&item.uri));
        records.filter_map(|record| record.state_clock().latest()).min()
    }

    /// Returns the items that lose their dates with the purge of this settlement.
    pub(super) fn unscheduled_by(&self, settlement: &Settlement) -> Vec<Uri> {
        let items = self.items.iter().filter(|(_, record)| settlement.purge && record.schedule != Schedule::default());
        items.map(|(uri, _)| uri.clone()).collect()
    }

    /// Returns the parent of the object, if an event since the last purge reported it.
    #[must_use]
    pub fn parent(&self) -> Option<&Uri> {
        self.parent.value.as_ref().filter(|_| self.is_valid(self.parent.clock))
    }

    /// Returns the types of the object, if an event since the last purge reported them.
    #[must_use]
    pub fn types(&self) -> &[Uri] {
        if self.is_valid(self.types.clock) { &self.types.value } else { &[] }
    }

    /// Returns the existing items, in order of their URIs.
    pub fn live_items(&self) -> impl Iterator<Item = (&Uri, &ItemRecord)> {
        self.items.iter().filter(|(uri, _)| self.is_live(uri)).map(|(uri, record)| (uri, &**record))
    }

    /// Returns the latest clock of the object and of these items. Ignores other items, because it depends on the
    /// rest of the batch which of them were prefetched.
    pub(super) fn newest(&self, items: &DraftItems) -> Option<Timestamp> {
        self.clocks(items).into_iter().max()
    }

    /// Returns the latest clock of the object and of these items that an event at `time` may be as new as: within the second
    /// of a time in whole seconds. `None` if no clock there is newer than `time`.
    pub(super) fn newest_covered_by(&self, time: Timestamp, items: &DraftItems) -> Option<Timestamp> {
        let is_covered = |clock: &Timestamp| time < *clock && *clock <= time.latest_meaning();
        if time.is_whole_second() { self.clocks(items).into_iter().filter(is_covered).max() } else { None }
    }

    fn clocks(&self, items: &DraftItems) -> Vec<Timestamp> {
        let named: Vec<&ItemRecord> = if items.concerns_all() {
            self.items.values().map(|item| &**item).collect()
        } else {
            items.listed().iter().filter_map(|item| self.items.get(&item.uri)).map(|item| &**item).collect()
        };
        let of_items =
            named.into_iter().flat_map(|item| [item.existence.clock, item.content.clock, item.state_clock()]);
        let of_object = [self.parent.clock, self.types.clock, self.purged];
        of_object.into_iter().chain(of_items).filter_map(Clock::latest).collect()
    }

    /// Returns whether an event at `time` is older than the registered fact. Events of the same millisecond are
    /// ordered by arrival.
    #[must_use]
    pub fn is_late(&self, item: &Uri, aspect: Aspect, time: Timestamp) -> bool {
        Some(time) < self.latest(item, aspect)
    }

    /// Returns whether an event at `time` is newer than the registered fact.
    #[must_use]
    pub fn is_newer(&self, item: &Uri, aspect: Aspect, time: Timestamp) -> bool {
        Some(time) > self.latest(item, aspect)
    }

    /// Returns whether the registered fact comes from messages without a time.
    #[must_use]
    pub fn is_undated(&self, item: &Uri, aspect: Aspect) -> bool {
        self.latest(item, aspect) == Some(Timestamp::EPOCH)
    }

    /// Returns the latest time at which the registered fact is known to be true.
    fn latest(&self, item: &Uri, aspect: Aspect) -> Option<Timestamp> {
        let record = self.items.get(item);
        let clock = match aspect {
            Aspect::Existence => record.map(|record| record.existence.clock),
            Aspect::Content => record.map(|record| record.content.clock),
            Aspect::State => record.map(|record| record.state_clock()),
            Aspect::Parent => Some(self.parent.clock),
            Aspect::Types => Some(self.types.clock),
        };
        clock.and_then(Clock::latest).max(self.purged.latest())
    }

    /// Applies a change of the journal. The values that a change sets do not depend on the state before, except that an
    /// object keeps its first source. Replaying changes that are applied already is therefore harmless, as long as the
    /// replay continues in order to the newest change.
    pub fn apply_change(&mut self, change: &Change) {
        let order = ordering_time(change.settlement.as_of.unwrap_or(change.modification.time), change.received);
        self.apply(order, &change.modification, &change.settlement);
    }

    /// Applies the facts of a change, except those that are late.
    pub fn apply(&mut self, time: Timestamp, modification: &ContentObjectModification, settlement: &Settlement) {
        if self.source.is_none() {
            self.source = Some(modification.origin.source.clone());
        }
        let sets = |aspect| !settlement.filled.contains(aspect) && !settlement.late.contains(aspect);
        if modification.parent.is_some() && sets(Aspect::Parent) {
            self.parent.set(modification.parent.clone(), time);
        }
        if !modification.types.is_empty() && sets(Aspect::Types) {
            self.types.set(modification.types.clone(), time);
        }
        for (index, item) in modification.items.iter().enumerate() {
            let came = settlement.due.then_some(modification.time);
            self.items.entry(item.uri.clone()).or_default().apply(time, &item.change, &settlement.item(index), came);
        }
        if settlement.purge {
            self.purged.set(time);
            // Not by confirmations, because a replay does not know them.
            let purged = self.purged.at;
            let outdated = self.items.values_mut().filter(|record| record.state.clock.at < purged);
            outdated.for_each(|record| record.schedule = Schedule::default());
        }
    }

    /// Returns whether the change has a fact that the registry lacks; times are no news.
    #[must_use]
    pub fn learns_from(
        &self,
        time: Timestamp,
        modification: &ContentObjectModification,
        settlement: &Settlement,
    ) -> bool {
        let mut after = self.clone();
        after.apply(time, modification, settlement);
        let items = |state: &Self| -> Vec<_> {
            let item = |(uri, _): (&Uri, _)| (uri.clone(), state.state(uri).cloned(), state.content(uri).cloned());
            state.live_items().map(item).collect()
        };
        (self.parent(), self.types()) != (after.parent(), after.types()) || items(self) != items(&after)
    }

    /// Returns whether [`apply`](Self::apply) sets a fact of the object itself: its source, its parent, its types or its
    /// purge.
    #[must_use]
    pub fn is_changed_by(&self, modification: &ContentObjectModification, settlement: &Settlement) -> bool {
        let sets = |aspect| !settlement.filled.contains(aspect) && !settlement.late.contains(aspect);
        let parent = modification.parent.is_some() && sets(Aspect::Parent);
        let types = !modification.types.is_empty() && sets(Aspect::Types);
        self.source.is_none() || parent || types || settlement.purge
    }

    /// Returns the state without confirmations: the part that a replay of the journal rebuilds.
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
            if let Some(initial) = &mut record.initial_state {
                initial.confirmed = None;
            }
        }
        self
    }

    /// Applies the confirmations of an event at `time`.
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
    fn apply(&mut self, time: Timestamp, change: &ItemChange, notes: &ItemNotes, came: Option<Timestamp>) {
        let on_time = |aspect| !notes.late.contains(aspect);
        let is_delete = matches!(change, ItemChange::Delete { .. });
        if on_time(Aspect::Existence) {
            self.existence.set(!is_delete, time);
        }
        // An ADD or DELETE replaces content and state; facts that it does not carry become unset.
        let replaces_all = is_delete || (matches!(change, ItemChange::Add { .. }) && !notes.inferred);
        if (replaces_all || change.content().is_some()) && on_time(Aspect::Content) {
            self.content.set(change.content().map(RawContentLocation::from), time);
        }
        let reports_state = change.after().is_some() && notes.initial_state.is_none();
        if (replaces_all || reports_state) && on_time(Aspect::State) {
            self.state.set(change.after().cloned(), time);
            self.unannounced = false;
            self.schedule = Schedule { dates: notes.dates, came: came.or(notes.came), denied: notes.denies };
        }
        let has_newer = self.initial_state.as_ref().is_some_and(|initial| initial.at > time);
        if let Some(state) = notes.initial_state.clone().filter(|_| !has_newer) {
            let same = self.initial_state.as_ref().filter(|initial| initial.state == state);
            let confirmed = same.and_then(|initial| initial.confirmed);
            self.initial_state = Some(InitialState { state, at: time, confirmed });
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
            let is_initial = self.current_initial_state(purged).is_some();
            match self.initial_state.as_mut().filter(|_| is_initial) {
                Some(initial) => initial.confirmed = initial.confirmed.max(Some(time)),
                None => self.state.clock.confirm(time),
            }
        }
    }

    /// Returns the initial state if the item still has it: no source has reported another state since.
    fn current_initial_state(&self, purged: Clock) -> Option<&InitialState> {
        let reported_at = self.state.clock.latest().max(purged.latest());
        let is_current = |initial: &&InitialState| {
            let is_unreported = self.state.value.is_none() || self.state.clock.latest() < purged.latest();
            initial.confirmed > reported_at || (is_unreported && Some(initial.at) >= reported_at)
        };
        self.initial_state.as_ref().filter(is_current)
    }

    fn state_clock(&self) -> Clock {
        let confirmed = self.initial_state.as_ref().and_then(|initial| initial.confirmed);
        Clock { at: self.state.clock.at, confirmed: self.state.clock.confirmed.max(confirmed) }
    }
}

impl ObjectState {
    /// Returns whether a fact with this clock is at least as new as the last purge.
    fn is_valid(&self, clock: Clock) -> bool {
        clock.latest() >= self.purged.latest()
    }
}
