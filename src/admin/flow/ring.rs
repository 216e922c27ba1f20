//! The recorded flow of one span: a ring of slots for the journal, for each source and for each subscription.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Debug,
};

use serde::{Deserialize, Serialize};

use super::span::Span;
use crate::{
    delivery::SubscriptionProgress,
    model::{Seq, SourceName, SubscriptionName, Timestamp},
};

/// Maximum number of sources, and of subscriptions, with slots of their own: the first by name. With all spans, a
/// subscription has about 9 KB and a source 6 KB.
pub(super) const MAX_SERIES: usize = 500;

/// One value for each slot of a span, oldest first; the last slot is in progress. `None` is a slot of which nothing is
/// known, because the gateway did not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Slots<T>(VecDeque<Option<T>>);

impl<T: Copy> Slots<T> {
    fn new(span: Span) -> Self {
        Self(std::iter::repeat_n(None, span.slots()).collect())
    }

    /// Returns the values, oldest first.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = Option<T>> + ExactSizeIterator {
        self.0.iter().copied()
    }

    /// Begins new slots, as many as are given. The oldest ones leave.
    fn advance(&mut self, slots: usize) {
        for _ in 0..slots.min(self.0.len()) {
            self.0.pop_front();
            self.0.push_back(None);
        }
    }

    /// Returns the value of the slot that is so many slots before the one in progress.
    fn before_last(&mut self, slots: usize) -> Option<&mut Option<T>> {
        let index = self.0.len().checked_sub(slots.checked_add(1)?)?;
        self.0.get_mut(index)
    }

    /// Sets the value of the slot in progress.
    fn set(&mut self, value: T) {
        if let Some(last) = self.0.back_mut() {
            *last = Some(value);
        }
    }
}

impl Slots<u64> {
    /// Adds to the slot that is so many slots before the one in progress.
    fn add(&mut self, slots: usize, number: u64) {
        if let Some(value) = self.before_last(slots) {
            *value = Some(value.unwrap_or(0).saturating_add(number));
        }
    }
}

/// Slots of a subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SubscriptionSlots {
    /// Number of changes that this node has delivered; `None` while another node delivers.
    pub(super) delivered: Slots<u64>,
    /// Cursor at the last sample of the slot.
    pub(super) cursors: Slots<Seq>,
}

/// When a cursor has passed a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Time of the last sample at which the cursor was before the change; `None` if none is recorded.
    pub after: Option<Timestamp>,
    /// Time by which the cursor had passed the change.
    pub before: Timestamp,
}

/// The recorded flow of a span.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ring {
    span: Span,
    /// Number of the slot in progress.
    newest: i64,
    /// Changes in the journal, by the time of their receipt.
    pub(super) changes: Slots<u64>,
    /// Changes of each source.
    pub(super) sources: BTreeMap<SourceName, Slots<u64>>,
    /// Progress of each subscription.
    pub(super) subscriptions: BTreeMap<SubscriptionName, SubscriptionSlots>,
    /// Time of the last sample of the cursors in each slot.
    samples: Slots<Timestamp>,
}

impl Ring {
    pub(super) fn new(span: Span, now: Timestamp) -> Self {
        Self {
            span,
            newest: span.slot_of(now),
            changes: Slots::new(span),
            sources: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            samples: Slots::new(span),
        }
    }

    /// Returns the end of the slot in progress.
    pub(super) fn end(&self) -> Timestamp {
        self.span.end_of(self.newest)
    }

    /// Returns whether the ring has the form of one that this program makes.
    pub(super) fn is_sound(&self, span: Span) -> bool {
        let has_slots = |length: usize| length == span.slots();
        let subscriptions = self.subscriptions.values();
        self.span == span
            && [self.changes.0.len(), self.samples.0.len()].into_iter().all(has_slots)
            && [self.sources.len(), self.subscriptions.len()].into_iter().all(|number| number <= MAX_SERIES)
            && self.sources.values().all(|slots| has_slots(slots.0.len()))
            && subscriptions
                .into_iter()
                .all(|slots| has_slots(slots.delivered.0.len()) && has_slots(slots.cursors.0.len()))
    }

    /// Begins the slots up to the present time, and marks the one in progress as recorded. After a clock was set back, the
    /// slot in progress stays; after a clock was set back by more than the span, the ring begins anew.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let slot = self.span.slot_of(now);
        let length = i64::try_from(self.span.slots()).unwrap_or(i64::MAX);
        if slot < self.newest.saturating_sub(length) {
            *self = Self::new(self.span, now);
        }
        let steps = usize::try_from(slot.saturating_sub(self.newest)).unwrap_or(0);
        if steps > 0 {
            self.newest = slot;
            self.changes.advance(steps);
            self.samples.advance(steps);
            self.sources.values_mut().for_each(|slots| slots.advance(steps));
            for SubscriptionSlots { delivered, cursors } in self.subscriptions.values_mut() {
                delivered.advance(steps);
                cursors.advance(steps);
            }
        }
        self.changes.add(0, 0);
        self.sources.values_mut().for_each(|slots| slots.add(0, 0));
    }

    /// Counts a change of a source. One that was received before the span is left out.
    pub(super) fn count(&mut self, source: &SourceName, received: Timestamp) {
        // The clock of another node can be ahead.
        let slots = usize::try_from(self.newest.saturating_sub(self.span.slot_of(received))).unwrap_or(0);
        self.changes.add(slots, 1);
        if !self.sources.contains_key(source) && self.sources.len() < MAX_SERIES {
            self.sources.insert(source.clone(), Slots::new(self.span));
        }
        if let Some(of_source) = self.sources.get_mut(source) {
            of_source.add(slots, 1);
        }
    }

    /// Keeps the slots of these sources, and begins those of new ones.
    pub(super) fn keep_sources(&mut self, names: &BTreeSet<SourceName>) {
        self.sources.retain(|name, _| names.contains(name));
        for name in names.iter().take(MAX_SERIES) {
            if !self.sources.contains_key(name) && self.sources.len() < MAX_SERIES {
                self.sources.insert(name.clone(), Slots::new(self.span));
            }
        }
    }

    /// Records the progress of all subscriptions as of a time, with the number of changes that each has delivered since the
    /// last sample. Subscriptions that are no more leave.
    pub(super) fn sample(&mut self, progress: &[(SubscriptionProgress, u64)], now: Timestamp) {
        let names: BTreeSet<_> = progress.iter().map(|(progress, _)| &progress.name).collect();
        self.subscriptions.retain(|name, _| names.contains(name));
        for (SubscriptionProgress { name, cursor, is_here, .. }, delivered) in progress {
            if !self.subscriptions.contains_key(name) {
                if self.subscriptions.len() == MAX_SERIES {
                    continue;
                }
                let slots = SubscriptionSlots { delivered: Slots::new(self.span), cursors: Slots::new(self.span) };
                self.subscriptions.insert(name.clone(), slots);
            }
            if let Some(slots) = self.subscriptions.get_mut(name) {
                slots.cursors.set(*cursor);
                if *is_here || *delivered > 0 {
                    slots.delivered.add(0, *delivered);
                }
            }
        }
        self.samples.set(now);
    }

    /// Returns when the cursor of a subscription has passed a change for the last time, as of `now`; `None` if it has not
    /// passed it, or nothing is recorded.
    fn passage(&self, name: &SubscriptionName, seq: Seq, now: Timestamp) -> Option<Passage> {
        let cursors = &self.subscriptions.get(name)?.cursors;
        let mut before = None;
        for (slot, (cursor, sampled)) in cursors.values().zip(self.samples.values()).rev().enumerate() {
            match cursor {
                None => {}
                Some(cursor) if cursor >= seq => {
                    let end = self.span.end_of(self.newest.saturating_sub(i64::try_from(slot).unwrap_or(0)));
                    before = Some(end.min(now));
                }
                Some(_) => return before.map(|before| Passage { after: sampled, before }),
            }
        }
        before.map(|before| Passage { after: None, before })
    }
}

/// The recorded flow of all spans.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rings([Ring; Span::ALL.len()]);

impl Rings {
    pub(super) fn new(now: Timestamp) -> Self {
        Self(Span::ALL.map(|span| Ring::new(span, now)))
    }

    /// Returns whether the rings have the form of those that this program makes.
    pub(super) fn are_sound(&self) -> bool {
        self.0.iter().zip(Span::ALL).all(|(ring, span)| ring.is_sound(span))
    }

    /// Returns the ring of a span.
    pub(super) fn of(&self, span: Span) -> &Ring {
        &self.0[span as usize]
    }

    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.0.iter_mut()
    }

    /// Returns when the cursor of a subscription has passed a change, as exactly as is recorded.
    pub(super) fn passage(&self, name: &SubscriptionName, seq: Seq, now: Timestamp) -> Option<Passage> {
        let mut earliest: Option<Passage> = None;
        for ring in &self.0 {
            // If it has not passed it by now, coarser rings know no better.
            let passage = ring.passage(name, seq, now)?;
            if passage.after.is_some() {
                return Some(passage);
            }
            earliest = earliest.filter(|earliest| earliest.before <= passage.before).or(Some(passage));
        }
        earliest
    }
}

#[cfg(test)]
mod tests;
