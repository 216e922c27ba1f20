//! For random histories, in order and out of order: a subscriber with `visibility` that applies every change to
//! an empty set ends with exactly the present items that the public may see.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{prelude::*, test_runner::TestRunner};
use tidings::{
    journal::RecordedChange,
    model::{ContentLocation, Filter, ItemChange, Seq, Uri, is_public},
};

use crate::{
    journal::registry_order::{RegistryFixture, arrival_order, drafts, operation},
    support::run_length::lengthened,
};

/// Copy of a subscriber: its items, and their content URLs if it has received them.
#[derive(Default)]
struct Subscriber {
    items: BTreeMap<Uri, Option<ContentLocation>>,
    messages: usize,
}

impl Subscriber {
    fn apply(&mut self, change: &RecordedChange) {
        self.messages += 1;
        for item in &*change.change().unwrap().modification.items {
            match &item.change {
                ItemChange::Add { content, .. } => {
                    self.items.insert(item.uri.clone(), content.clone());
                }
                ItemChange::Update { content, .. } => {
                    // Out of order, an item may be updated before it is added.
                    let stored = self.items.entry(item.uri.clone()).or_default();
                    *stored = content.clone().or(stored.take());
                }
                ItemChange::Delete { .. } => {
                    self.items.remove(&item.uri);
                }
                ItemChange::State { .. } => panic!("the public sees no change of state"),
            }
        }
    }
}

fn after(fixture: &RegistryFixture, after: Seq) -> Vec<Arc<RecordedChange>> {
    fixture.runtime.block_on(fixture.journal.after(after, 1000)).unwrap()
}

#[test]
fn visibility_subscriber_ends_with_the_public_items() {
    let fixture = RegistryFixture::new();
    let config = ProptestConfig { cases: lengthened(400), failure_persistence: None, ..ProptestConfig::default() };
    let histories = (prop::collection::vec(operation(), 1..24), prop::collection::vec(any::<u64>(), 48), any::<bool>());
    let (case, noted) = (Cell::new(0), Cell::new(0));
    let filter = Filter { visibility: true, ..Filter::default() };
    TestRunner::new(config)
        .run(&histories, |(operations, keys, shuffled)| {
            case.set(case.get() + 1);
            let object = Uri::parse(&format!("http://h/objects/seen:{}", case.get())).unwrap();
            let events = drafts(&object, &operations);
            let order: Vec<_> = if shuffled { arrival_order(events.len(), &keys) } else { (0..events.len()).collect() };
            let head = fixture.journal.head();
            fixture.send(&order.into_iter().map(|event| events[event].clone()).collect::<Vec<_>>());

            let mut subscriber = Subscriber::default();
            let changes = after(&fixture, head);
            for change in &changes {
                if let Some(visible_change) = change.filtered(&filter).unwrap() {
                    subscriber.apply(&visible_change);
                }
            }
            noted.set(noted.get() + changes.len() - subscriber.messages);
            let state = fixture.object(&object);
            let visible: BTreeMap<_, _> = state
                .live_items()
                .filter(|(uri, _)| is_public(state.state(uri)))
                .map(|(uri, _)| (uri.clone(), state.content(uri).map(|content| content.parse().unwrap())))
                .collect();
            let names = |items: &BTreeMap<Uri, _>| items.keys().cloned().collect::<BTreeSet<_>>();
            prop_assert_eq!(names(&subscriber.items), names(&visible));
            if !shuffled {
                prop_assert_eq!(subscriber.items, visible);
            }
            Ok(())
        })
        .unwrap();
    assert!(noted.get() > 100, "hardly any change was nothing to the public: {}", noted.get());
}
