//! Tests of the ring: slots, bounds, and when a cursor has passed a change.

use std::collections::BTreeSet;

use super::{
    MAX_SERIES, Passage, Ring, Rings, Seq, Slots, SourceName, Span, SubscriptionName, SubscriptionProgress, Timestamp,
};

/// Time of this many seconds after the begin of a week slot.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + seconds * 1000).unwrap()
}

fn source(name: &str) -> SourceName {
    SourceName::parse(name).unwrap()
}

fn subscription(name: &str) -> SubscriptionName {
    SubscriptionName::parse(name).unwrap()
}

fn progress(name: &str, cursor: u64, delivered: u64) -> (SubscriptionProgress, u64) {
    (SubscriptionProgress { name: subscription(name), cursor: Seq(cursor), delivered: 0, is_here: true }, delivered)
}

/// Returns the last values, the newest one last.
fn last<T: Copy>(slots: &Slots<T>, number: usize) -> Vec<Option<T>> {
    slots.values().skip(slots.values().len() - number).collect()
}

#[test]
fn changes_count_in_the_slot_of_their_receipt() {
    let mut rings = Rings::new(at(0));
    for ring in rings.each() {
        ring.advance(at(125));
        [at(3), at(59), at(60), at(124), at(999)].into_iter().for_each(|received| ring.count(&source("a"), received));
        ring.count(&source("a"), at(-1_000_000_000));
    }
    let hour = rings.of(Span::Hour);
    assert_eq!(last(&hour.changes, 4), [None, Some(2), Some(1), Some(2)], "a change of the future is of the present");
    assert_eq!(last(&hour.sources[&source("a")], 3), [Some(2), Some(1), Some(2)]);
    assert_eq!(last(&rings.of(Span::Week).changes, 2), [None, Some(5)]);
    assert_eq!(hour.end(), at(180));
}

#[test]
fn slots_of_a_pause_are_unknown_and_those_of_silence_are_zero() {
    let mut ring = Ring::new(Span::Hour, at(0));
    ring.count(&source("a"), at(0));
    ring.advance(at(60));
    ring.advance(at(240));
    assert_eq!(last(&ring.changes, 5), [Some(1), Some(0), None, None, Some(0)]);
    assert_eq!(last(&ring.sources[&source("a")], 5), [Some(1), Some(0), None, None, Some(0)]);
    ring.advance(at(200));
    assert_eq!(ring.end(), at(300), "a clock that is set back by a little ends no slot");
    ring.advance(at(-100_000));
    assert_eq!((ring.end(), ring.sources.len()), (Span::Hour.end_of(Span::Hour.slot_of(at(-100_000))), 0));
    ring.advance(at(1_000_000));
    assert_eq!((ring.changes.values().len(), last(&ring.changes, 2)), (60, vec![None, Some(0)]));
}

#[test]
fn removed_things_leave_and_their_number_is_bounded() {
    let mut ring = Ring::new(Span::Hour, at(0));
    let names: Vec<_> = (0..MAX_SERIES + 5).map(|number| format!("s{number:04}")).collect();
    ring.keep_sources(&names.iter().map(|name| source(name)).collect());
    ring.count(&source("other"), at(0));
    let all: Vec<_> = names.iter().map(|name| progress(name, 7, 1)).collect();
    ring.sample(&all, at(0));
    assert_eq!((ring.sources.len(), ring.subscriptions.len()), (MAX_SERIES, MAX_SERIES));
    assert_eq!(last(&ring.changes, 1), [Some(1)], "the total has what no source of its own has");
    assert!(ring.is_sound(Span::Hour) && !ring.is_sound(Span::Day));
    ring.keep_sources(&BTreeSet::from([source("s0003")]));
    ring.sample(&[progress("s0004", 8, 2)], at(1));
    assert_eq!((ring.sources.len(), ring.subscriptions.len()), (1, 1));
    assert_eq!(last(&ring.subscriptions[&subscription("s0004")].delivered, 1), [Some(3)]);
}

#[test]
fn subscription_of_another_node_has_a_cursor_alone() {
    let mut ring = Ring::new(Span::Hour, at(0));
    let elsewhere = |cursor, delivered| {
        let (progress, delivered) = progress("s", cursor, delivered);
        [(SubscriptionProgress { is_here: false, ..progress }, delivered)]
    };
    ring.sample(&elsewhere(5, 0), at(0));
    let slots = &ring.subscriptions[&subscription("s")];
    assert_eq!((last(&slots.delivered, 1), last(&slots.cursors, 1)), (vec![None], vec![Some(Seq(5))]));
    ring.sample(&elsewhere(5, 2), at(1));
    assert_eq!(last(&ring.subscriptions[&subscription("s")].delivered, 1), [Some(2)], "it has delivered until now");
}

#[test]
fn passage_is_between_two_samples() {
    let mut rings = Rings::new(at(0));
    let mut sample = |seconds, cursor| {
        for ring in rings.each() {
            ring.advance(at(seconds));
            ring.sample(&[progress("s", cursor, 0)], at(seconds));
        }
        rings.clone()
    };
    let of = |rings: &Rings, seq, seconds| rings.passage(&subscription("s"), Seq(seq), at(seconds));
    sample(10, 4);
    let first = sample(50, 5);
    assert_eq!(of(&first, 6, 55), None);
    assert_eq!(of(&first, 5, 55), Some(Passage { after: None, before: at(55) }), "nobody knows since when");
    sample(70, 9);
    let third = sample(190, 9);
    assert_eq!(of(&third, 6, 200), Some(Passage { after: Some(at(50)), before: at(120) }));
    assert_eq!(of(&third, 10, 200), None);
    assert_eq!(rings_of_nobody(&third), None);
    let later = sample(2 * 3600, 12);
    assert_eq!(of(&later, 6, 7300), Some(Passage { after: None, before: at(600) }), "the day knows only ten minutes");
    assert_eq!(of(&later, 10, 7210), Some(Passage { after: Some(at(190)), before: at(7210) }));
    sample(7260, 3);
    let again = sample(7320, 12);
    assert_eq!(of(&again, 6, 7330), Some(Passage { after: Some(at(7260)), before: at(7330) }), "it was rewound");
}

fn rings_of_nobody(rings: &Rings) -> Option<Passage> {
    rings.passage(&subscription("nobody"), Seq(1), at(0))
}
