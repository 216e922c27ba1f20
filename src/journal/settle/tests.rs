//! Drafts of one object, settled one after the other.

mod activity;
mod due;
mod follow_up;

use super::{
    Aspect, ContentObjectModification, Draft, DraftChange, DraftItem, DraftItems, DraftTime, ItemChange, NonEmpty,
    ObjectState, ReceiptClock, Settlement, SourceName, SourcePolicy, State, Timestamp, Uri, settle,
};
use crate::model::{ContentLocation, Digest, DigestAlgorithm, DraftLookup, Reading, Text, User};

/// A registry of one object, and the policy of its source.
struct Fixture {
    registered: ObjectState,
    policy: SourcePolicy,
}

impl Fixture {
    fn new(metadata_changes: bool) -> Self {
        let name = SourceName::parse("s").unwrap();
        Self { registered: ObjectState::default(), policy: SourcePolicy { name, metadata_changes } }
    }

    /// Settles a draft with the time `second`, and applies the result.
    fn settle_items(&mut self, second: i64, items: DraftItems) -> Option<(ContentObjectModification, Settlement)> {
        self.settle_draft(draft(second, items))
    }

    fn settle_draft(&mut self, draft: Draft) -> Option<(ContentObjectModification, Settlement)> {
        let settled = settle(draft, &self.policy, ReceiptClock::at(at(1000)), &self.registered);
        self.registered.confirm(settled.ordering_time, &settled.confirmations);
        if let Some((modification, settlement)) = &settled.change {
            self.registered.apply(settled.ordering_time, modification, settlement);
        }
        settled.change
    }
}

#[test]
fn new_facts_of_an_object_make_a_change_without_changed_items() {
    let mut fixture = Fixture::new(false);
    let object_draft = |second, parent: &str, types: &[&str], change| {
        let items = DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change)));
        let types = types.iter().map(|name| uri(name)).collect();
        Draft { parent: Some(uri(parent)), types, ..draft(second, items) }
    };
    let state = |after: &State| DraftChange::Reported(ItemChange::State { before: None, after: after.clone() });
    let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    let add = DraftChange::Reported(ItemChange::Add { content: None, after: Some(State::ACTIVE) });
    fixture.settle_draft(object_draft(1, "p1", &["t1", "t2"], add)).unwrap();
    assert_eq!(
        fixture.settle_draft(object_draft(2, "p1", &["t2", "t1"], state(&State::ACTIVE))),
        None,
        "the registry has all facts"
    );

    let unchanged = [
        state(&State::ACTIVE),
        DraftChange::Present { content: None, state: None },
        DraftChange::Properties { after: None },
        DraftChange::Properties { after: Some(State::ACTIVE) },
    ];
    for (second, change) in (3..).zip(unchanged) {
        let parent = format!("p{second}");
        let (change, settlement) = fixture.settle_draft(object_draft(second, &parent, &["t3"], change)).unwrap();
        let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
        assert_eq!((&change.items[0].uri, &change.items[0].change), (&uri("a"), &expected));
        assert_eq!((change.parent, settlement.filled), (Some(uri(&parent)), Settlement::default().filled));
        assert_eq!((fixture.registered.parent(), fixture.registered.types()), (Some(&uri(&parent)), &[uri("t3")][..]));
        assert_eq!(fixture.registered.state(&uri("a")), Some(&State::ACTIVE));
    }
    // Late facts are dropped.
    assert_eq!(
        fixture.settle_draft(object_draft(2, "p9", &["t9"], DraftChange::Present { content: None, state: None })),
        None
    );

    fixture.settle_draft(object_draft(20, "p6", &["t3"], delete())).unwrap();
    let (again, _) = fixture.settle_draft(object_draft(21, "p7", &["t3"], delete())).unwrap();
    assert_eq!(again.items[0].change, ItemChange::Delete { before: None, after: None });
    assert_eq!((fixture.registered.parent(), fixture.registered.is_gone(&uri("a"))), (Some(&uri("p7")), true));
}

#[test]
fn an_event_without_a_time_is_ordered_by_the_items_that_it_names() {
    let mut fixture = Fixture::new(false);
    let add = |second, name: &str| {
        let change = DraftChange::Reported(ItemChange::Add { content: None, after: None });
        draft(second, DraftItems::Listed(NonEmpty::one(DraftItem::new(uri(name), change))))
    };
    fixture.settle_draft(add(5, "a")).unwrap();
    let alone = settle(
        Draft { time: DraftTime::Arrival, ..add(0, "a") },
        &fixture.policy,
        ReceiptClock::at(at(1000)),
        &fixture.registered,
    );
    // Another draft of the batch has prefetched a newer item.
    fixture.settle_draft(add(9, "b")).unwrap();
    let beside = settle(
        Draft { time: DraftTime::Arrival, ..add(0, "a") },
        &fixture.policy,
        ReceiptClock::at(at(1000)),
        &fixture.registered,
    );
    let as_of = |settled: super::SettledDraft| settled.change.unwrap().1.as_of;
    assert_eq!(as_of(alone), Some(at(5)));
    assert_eq!(as_of(beside), Some(at(5)));
}

#[test]
fn new_content_with_a_state_adds_or_updates() {
    let mut fixture = Fixture::new(false);
    let mut settled = |second, state: State| {
        let change = DraftChange::AddOrUpdateWithState { content: Some(ContentLocation::at(uri("a"))), state };
        let items = DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change)));
        fixture.settle_items(second, items).unwrap().0.items[0].change.clone()
    };
    let content = Some(ContentLocation::at(uri("a")));
    let (hidden, shown) = (State::INACTIVE, State::ACTIVE);
    let add = ItemChange::Add { content: content.clone(), after: Some(hidden.clone()) };
    assert_eq!(settled(1, hidden.clone()), add);
    let same = ItemChange::Update { content: content.clone(), before: Some(hidden.clone()), after: None };
    assert_eq!(settled(2, hidden.clone()), same);
    let other = ItemChange::Update { content, before: Some(hidden.clone()), after: Some(shown.clone()) };
    assert_eq!(settled(3, shown.clone()), other);
    assert_eq!(fixture.registered.state(&uri("a")), Some(&shown));
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000).unwrap()
}

fn uri(name: &str) -> Uri {
    Uri::parse(&format!("http://h/{name}")).unwrap()
}

fn draft(second: i64, items: DraftItems) -> Draft {
    Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::unknown(),
        time: DraftTime::Reported(at(second)),
        object: uri("o"),
        parent: None,
        types: Vec::new(),
        description: Text::new("deed"),
        items,
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

fn item(name: &str, change: DraftChange) -> DraftItems {
    DraftItems::Listed(NonEmpty::one(DraftItem::new(uri(name), change)))
}

fn add(name: &str, after: State) -> DraftItems {
    item(name, DraftChange::Reported(ItemChange::Add { content: None, after: Some(after) }))
}

fn set_state(name: &str, after: State) -> DraftItems {
    item(name, DraftChange::Reported(ItemChange::State { before: None, after }))
}

fn update(name: &str) -> DraftItems {
    let content = Some(ContentLocation::at(uri("content")));
    item(name, DraftChange::Reported(ItemChange::Update { content, before: None, after: None }))
}

#[test]
fn a_late_change_is_journaled_and_sets_only_older_facts() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    fixture.settle_items(9, set_state("a", State::INACTIVE));
    let (modification, settlement) = fixture.settle_items(5, update("a")).unwrap();
    assert!(settlement.item(0).late.contains(Aspect::Existence));
    assert!(!settlement.item(0).late.contains(Aspect::Content));
    assert_eq!(modification.items[0].change.before(), None, "what was before then is not known any more");
    assert_eq!(fixture.registered.state(&uri("a")), Some(&State::INACTIVE));
    assert_eq!(fixture.registered.content(&uri("a")).map(|content| content.parse().unwrap().url), Some(uri("content")));
    let (_, settlement) = fixture.settle_items(4, set_state("a", State::DELETED)).unwrap();
    assert!(settlement.item(0).late.contains(Aspect::State));
    assert_eq!(fixture.registered.state(&uri("a")), Some(&State::INACTIVE));
}

#[test]
fn drafts_without_effect_make_no_change() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    let delete = || item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None }));
    assert!(fixture.settle_items(2, set_state("a", State::ACTIVE)).is_none());
    assert!(fixture.settle_items(3, item("a", DraftChange::Properties { after: None })).is_none());
    assert!(fixture.settle_items(4, item("a", DraftChange::Properties { after: Some(State::ACTIVE) })).is_none());
    assert!(fixture.settle_items(5, delete()).is_some());
    assert!(fixture.settle_items(6, delete()).is_none());
    assert!(fixture.settle_items(7, DraftItems::Purge).is_some(), "the object itself may have been there");
    assert!(fixture.settle_items(8, DraftItems::Purge).is_none());
}

/// Readers who know objects alone would take the deletion of an unknown part for an update, and the object for alive.
#[test]
fn deletion_of_an_object_that_is_gone_stays_beside_that_of_an_unknown_part() {
    let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    let add = || DraftChange::Reported(ItemChange::Add { content: None, after: None });
    let both = |part| {
        let items = NonEmpty::try_from(vec![DraftItem::new(uri("a"), delete()), DraftItem::new(uri("a/part"), part)]);
        DraftItems::Listed(items.unwrap())
    };
    for (first, part, expected) in [
        (delete(), delete(), vec!["a/part", "a"]),
        (delete(), add(), vec!["a/part"]),
        (add(), delete(), vec!["a", "a/part"]),
    ] {
        let mut fixture = Fixture::new(false);
        fixture.settle_draft(Draft { object: uri("a"), ..draft(2, item("a", first.clone())) }).unwrap();
        let settled = |fixture: &mut Fixture, second, part| {
            let settled = fixture.settle_draft(Draft { object: uri("a"), ..draft(second, both(part)) });
            settled.map(|(change, _)| change.items.into_vec().into_iter().map(|item| item.uri).collect::<Vec<_>>())
        };
        let expected: Vec<_> = expected.into_iter().map(uri).collect();
        assert_eq!(settled(&mut fixture, 3, part.clone()), Some(expected), "{first:?} {part:?}");
        if part == delete() {
            assert_eq!(settled(&mut fixture, 4, part), None, "the registry has both");
        }
    }
}

/// The same for sources that list what they have.
#[test]
fn absence_of_an_object_that_is_gone_stays_beside_that_of_its_last_part() {
    let both = [uri("a"), uri("a/part")].map(|uri| DraftItem::new(uri, DraftChange::Absent));
    let both = DraftItems::Listed(NonEmpty::try_from(both.to_vec()).unwrap());
    let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    for absent in [both, DraftItems::Complete(Vec::new())] {
        let mut fixture = Fixture::new(false);
        let mut settled = |second, items| {
            fixture.settle_draft(Draft { object: uri("a"), ..draft(second, items) }).map(|(change, _)| change)
        };
        settled(1, item("a", delete())).unwrap();
        settled(2, add("a/part", State::ACTIVE)).unwrap();
        let items = settled(3, absent.clone()).unwrap().items.into_vec();
        let deleted: Vec<_> =
            items.into_iter().map(|item| (item.uri, item.change.change_type().unwrap().as_str())).collect();
        assert_eq!(deleted, [(uri("a/part"), "DELETE"), (uri("a"), "DELETE")]);
        assert!(settled(4, absent).is_none());
    }
}

#[test]
fn items_that_a_complete_draft_lacks_are_deleted() {
    let mut fixture = Fixture::new(false);
    let complete = |names: &[&str]| {
        let present = |name: &&str| DraftItem::new(uri(name), DraftChange::Present { content: None, state: None });
        DraftItems::Complete(names.iter().map(present).collect())
    };
    assert!(fixture.settle_items(1, complete(&[])).is_none(), "no subscriber has heard of the object");
    let changes = |settled: Option<(ContentObjectModification, Settlement)>| {
        let items = settled.unwrap().0.items.into_vec().into_iter();
        items.map(|item| (item.uri, item.change.change_type().unwrap().as_str())).collect::<Vec<_>>()
    };
    let added = changes(fixture.settle_items(2, complete(&["a", "b", "c"])));
    assert_eq!(added, [(uri("a"), "ADD"), (uri("b"), "ADD"), (uri("c"), "ADD")]);
    assert!(fixture.settle_items(3, complete(&["c", "b", "a"])).is_none());
    assert_eq!(
        changes(fixture.settle_items(4, complete(&["b", "d"]))),
        [(uri("d"), "ADD"), (uri("a"), "DELETE"), (uri("c"), "DELETE")]
    );
    assert_eq!(changes(fixture.settle_items(5, complete(&[]))), [(uri("b"), "DELETE"), (uri("d"), "DELETE")]);
    assert!(fixture.settle_items(6, complete(&[])).is_none());
}

#[test]
fn content_with_the_former_digest_is_the_same() {
    let mut fixture = Fixture::new(false);
    let digest = |number: u8| Digest::parse(DigestAlgorithm::Sha256, &format!("{number:064}")).unwrap();
    let content = |number| ContentLocation { digest: Some(digest(number)), ..ContentLocation::at(uri("a")) };
    let redigested =
        |number, former| item("a", DraftChange::Redigested { content: content(number), former: digest(former) });
    let registered = |fixture: &Fixture| fixture.registered.content(&uri("a")).unwrap().parse().unwrap();
    fixture.settle_items(1, item("a", DraftChange::Present { content: Some(content(1)), state: None })).unwrap();
    assert_eq!(fixture.settle_items(2, redigested(2, 1)), None);
    assert_eq!(registered(&fixture), content(1), "the registry keeps the former digest");
    fixture.settle_items(3, redigested(3, 4)).unwrap();
    assert_eq!(registered(&fixture), content(3), "other content has the new digest");
    // The former rule finds a difference where the new one finds none.
    assert_eq!(fixture.settle_items(4, redigested(3, 5)), None);
}

#[test]
fn copy_replaces_its_original_only() {
    let mut fixture = Fixture::new(false);
    let original = |name: &str| ContentLocation { size: Some(7), ..ContentLocation::at(uri(name)) };
    let copy_of = |name: &str| ContentLocation {
        original: Some(Box::new(original(name).reported())),
        ..ContentLocation::at(uri("copy"))
    };
    let copied = |name: &str, has_copy: bool| {
        let copy = has_copy.then(|| copy_of(name));
        item("a", DraftChange::Copied { original: original(name).reported(), copy })
    };
    let present = |name: &str| item("a", DraftChange::Present { content: Some(original(name)), state: None });
    let change = |settled: Option<(ContentObjectModification, Settlement)>| settled.unwrap().0.items[0].change.clone();
    assert!(fixture.settle_items(1, copied("1", true)).is_none(), "there is no such item");
    fixture.settle_items(2, present("1")).unwrap();
    assert!(fixture.settle_items(3, copied("2", true)).is_none(), "the content is another one");
    let unavailable = ItemChange::State { before: None, after: State::UNAVAILABLE };
    assert_eq!(change(fixture.settle_items(4, copied("1", false))), unavailable);
    assert!(fixture.settle_items(5, copied("1", false)).is_none());
    let update = ItemChange::Update {
        content: Some(copy_of("1")),
        before: Some(State::UNAVAILABLE),
        after: Some(State::ACTIVE),
    };
    assert_eq!(change(fixture.settle_items(6, copied("1", true))), update);
    assert!(fixture.settle_items(7, copied("1", true)).is_none(), "the copy is there");
    assert!(fixture.settle_items(8, copied("1", false)).is_none(), "the copy is there");
    assert!(fixture.settle_items(9, present("1")).is_none(), "the copy is the same content");
    let update = ItemChange::Update { content: Some(original("2")), before: Some(State::ACTIVE), after: None };
    assert_eq!(change(fixture.settle_items(10, present("2"))), update);
    fixture.settle_items(11, set_state("a", State::INACTIVE)).unwrap();
    assert!(fixture.settle_items(12, copied("2", false)).is_none(), "its source has hidden the content");
}

#[test]
fn metadata_changes_are_journaled_if_the_policy_says_so() {
    let mut fixture = Fixture::new(true);
    fixture.settle_items(1, add("a", State::ACTIVE));
    let (modification, _) = fixture.settle_items(2, item("a", DraftChange::Properties { after: None })).unwrap();
    let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
    assert_eq!(modification.items[0].change, expected);
}

#[test]
fn properties_with_another_state_are_a_change_of_state() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    let (modification, _) =
        fixture.settle_items(2, item("a", DraftChange::Properties { after: Some(State::DELETED) })).unwrap();
    let expected = ItemChange::State { before: Some(State::ACTIVE), after: State::DELETED };
    assert_eq!(modification.items[0].change, expected);
}

#[test]
fn a_late_purge_does_not_delete_newer_items() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    fixture.settle_items(9, add("b", State::ACTIVE));
    let (modification, settlement) = fixture.settle_items(5, DraftItems::Purge).unwrap();
    let deleted: Vec<_> = modification.items.iter().map(|item| item.uri.clone()).collect();
    assert_eq!(deleted, [uri("a")]);
    assert!(settlement.purge);
    assert!(fixture.registered.is_live(&uri("b")));
    assert!(fixture.settle_items(3, add("c", State::ACTIVE)).unwrap().1.is_late());
    assert!(!fixture.registered.is_live(&uri("c")), "it was there before the purge");
}

#[test]
fn missing_parent_and_types_come_from_the_registry() {
    let mut fixture = Fixture::new(false);
    fixture.settle_draft(Draft { parent: Some(uri("p")), types: vec![uri("t")], ..draft(1, add("a", State::ACTIVE)) });
    let (modification, settlement) = fixture.settle_items(2, update("a")).unwrap();
    assert_eq!((modification.parent, modification.types), (Some(uri("p")), vec![uri("t")]));
    assert_eq!(settlement.filled.iter().collect::<Vec<_>>(), [Aspect::Parent, Aspect::Types]);
    let retyped = Draft { types: vec![uri("u")], ..draft(3, update("a")) };
    assert_eq!(fixture.settle_draft(retyped).unwrap().0.types, [uri("u")]);
    assert_eq!(fixture.registered.types(), [uri("u")]);
    // A list of all items, none of which has changed.
    let present = DraftItem::new(uri("a"), DraftChange::Present { content: None, state: None });
    let complete = |second, name: &str| Draft {
        types: vec![uri(name)],
        ..draft(second, DraftItems::Complete(vec![present.clone()]))
    };
    assert!(fixture.settle_draft(complete(4, "u")).is_none());
    let (modification, _) = fixture.settle_draft(complete(5, "v")).unwrap();
    assert_eq!((modification.types, modification.items.len()), (vec![uri("v")], 1));
    assert_eq!((fixture.registered.types(), fixture.registered.is_live(&uri("a"))), (&[uri("v")][..], true));
}

#[test]
fn a_clock_that_is_ahead_does_not_make_later_events_late() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(99_999, add("a", State::ACTIVE));
    let (modification, settlement) = fixture.settle_items(1000, set_state("a", State::INACTIVE)).unwrap();
    assert!(!settlement.is_late());
    assert_eq!(modification.items[0].change.before(), Some(&State::ACTIVE));
}

#[test]
fn a_reported_state_before_counts_unless_it_equals_the_state_after() {
    let mut fixture = Fixture::new(false);
    let state_change =
        |before: State, after| item("a", DraftChange::Reported(ItemChange::State { before: Some(before), after }));
    assert!(fixture.settle_items(1, state_change(State::ACTIVE, State::ACTIVE)).is_none());
    let (modification, _) = fixture.settle_items(2, state_change(State::INACTIVE, State::ACTIVE)).unwrap();
    assert_eq!(modification.items[0].change.before(), Some(&State::INACTIVE));
    let (modification, _) = fixture.settle_items(3, state_change(State::INACTIVE, State::INACTIVE)).unwrap();
    assert_eq!(modification.items[0].change.before(), Some(&State::ACTIVE), "the registry knows better");
}
