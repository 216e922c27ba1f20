//! Results of later lookups, for events that are in the journal or that may have changed nothing.

use super::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, Fixture, ItemChange, NonEmpty,
    State, add, draft, item, set_state, update, uri,
};
use crate::model::LookupMark;

/// Returns a follow-up with the content of the item `a` at `second`.
fn content_found(second: i64, content: &str) -> Draft {
    let content = Some(ContentLocation::at(uri(content)));
    let change = ItemChange::Update { content, before: None, after: None };
    draft(second, item("a", DraftChange::FollowUp(change)))
}

fn without_content(second: i64) -> Draft {
    let change = ItemChange::Update { content: None, before: None, after: None };
    draft(second, item("a", DraftChange::FollowUp(change)))
}

fn settled_change(fixture: &mut Fixture, draft: Draft) -> Option<ItemChange> {
    let (modification, settlement) = fixture.settle_draft(draft)?;
    assert!(!settlement.is_late());
    assert_eq!(modification.items.len(), 1);
    Some(modification.items[0].change.clone())
}

#[test]
fn a_follow_up_makes_one_change_and_none_if_it_is_outdated() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    let change = settled_change(&mut fixture, content_found(1, "x")).unwrap();
    assert_eq!((change.content().unwrap().url.clone(), change.before().cloned()), (uri("x"), Some(State::ACTIVE)));
    assert_eq!(settled_change(&mut fixture, content_found(1, "x")), None, "the registry has the content");
    fixture.settle_items(5, update("a"));
    assert_eq!(settled_change(&mut fixture, content_found(4, "y")), None, "the follow-up is outdated");
    // A change of state alone does not make a version outdated.
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    fixture.settle_items(1, update("a"));
    assert!(settled_change(&mut fixture, content_found(1, "x")).is_some());
    fixture.settle_items(9, item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None })));
    assert_eq!(settled_change(&mut fixture, content_found(1, "y")), None, "the item is deleted");
}

/// Many sources have times in whole seconds.
#[test]
fn a_follow_up_of_the_second_of_the_deletion_brings_nothing_back() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    fixture.settle_items(2, update("a"));
    fixture.settle_items(2, item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None })));
    assert_eq!(settled_change(&mut fixture, content_found(2, "x")), None);
    assert!(fixture.registered.is_gone(&uri("a")));
}

#[test]
fn an_add_of_an_existing_item_is_an_update() {
    let mut fixture = Fixture::new(false);
    let content = |name| Some(ContentLocation::at(uri(name)));
    let added = |second, name| {
        let change = ItemChange::Add { content: content(name), after: Some(State::INACTIVE) };
        draft(second, item("a", DraftChange::FollowUp(change)))
    };
    let change = settled_change(&mut fixture, added(1, "x")).unwrap();
    assert_eq!(change, ItemChange::Add { content: content("x"), after: Some(State::INACTIVE) });
    let change = settled_change(&mut fixture, added(2, "y")).unwrap();
    assert_eq!(change, ItemChange::Update { content: content("y"), before: Some(State::INACTIVE), after: None });
    assert_eq!(settled_change(&mut fixture, added(2, "y")), None);
}

#[test]
fn an_unchanged_item_carries_new_facts_of_the_object() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    assert_eq!(settled_change(&mut fixture, without_content(1)), None);
    let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
    let of_parent = || Draft { parent: Some(uri("p")), ..without_content(1) };
    assert_eq!(settled_change(&mut fixture, of_parent()), Some(expected.clone()));
    assert_eq!(settled_change(&mut fixture, of_parent()), None);
    let of_types = Draft { types: vec![uri("t")], ..without_content(2) };
    assert_eq!(settled_change(&mut fixture, of_types), Some(expected.clone()));
    assert_eq!(
        settled_change(&mut fixture, Draft { types: vec![uri("u")], ..without_content(1) }),
        None,
        "the follow-up is outdated"
    );
    // The result that the object is gone makes one change, whatever the number of items.
    let lookup = DraftLookup { mark: Some(LookupMark::Gone), ..DraftLookup::default() };
    let change = || ItemChange::Update { content: None, before: None, after: None };
    let two = ["a", "a"].map(|name| DraftItem::new(uri(name), DraftChange::FollowUp(change())));
    let two = DraftItems::Listed(NonEmpty::try_from(two.to_vec()).unwrap());
    assert_eq!(settled_change(&mut fixture, Draft { lookup, ..draft(3, two) }), Some(expected));
}

#[test]
fn a_state_is_not_journaled_twice() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    fixture.settle_items(2, set_state("a", State::INACTIVE));
    let state = ItemChange::State { before: Some(State::ACTIVE), after: State::INACTIVE };
    let again = |parent| Draft { parent, ..draft(2, item("a", DraftChange::FollowUp(state.clone()))) };
    assert_eq!(settled_change(&mut fixture, again(None)), None);
    let expected = ItemChange::Update { content: None, before: Some(State::INACTIVE), after: None };
    assert_eq!(settled_change(&mut fixture, again(Some(uri("p")))), Some(expected));
}

#[test]
fn a_follow_up_without_remaining_content_deletes_the_item() {
    let mut fixture = Fixture::new(false);
    fixture.settle_items(1, add("a", State::ACTIVE));
    let delete = || ItemChange::Delete { before: None, after: None };
    let deleted = |second| draft(second, item("a", DraftChange::FollowUp(delete())));
    assert!(matches!(settled_change(&mut fixture, deleted(2)), Some(ItemChange::Delete { .. })));
    assert_eq!(settled_change(&mut fixture, deleted(3)), None);
}

#[test]
fn follow_up_of_an_event_without_time_is_outdated_if_another_event_changed_the_item() {
    let at = |content: &str| Some(ContentLocation::at(uri(content)));
    let arrived = |items| Draft { time: DraftTime::Arrival, ..draft(0, items) };
    let reported = |content: &str| ItemChange::Add { content: at(content), after: None };
    let found = || {
        let content = ContentLocation { size: Some(7), ..ContentLocation::at(uri("x")) };
        let change = ItemChange::Add { content: Some(content), after: None };
        arrived(item("a", DraftChange::FollowUpTo { reported: reported("x"), change }))
    };
    let event = |change: ItemChange| arrived(item("a", DraftChange::Reported(change)));
    let delete = || event(ItemChange::Delete { before: None, after: None });
    let update = || event(ItemChange::Update { content: at("y"), before: None, after: None });
    for (between, is_outdated) in [(None, false), (Some(delete()), true), (Some(update()), true)] {
        let mut fixture = Fixture::new(false);
        fixture.settle_draft(event(reported("x")));
        between.map(|draft| fixture.settle_draft(draft));
        assert_eq!(fixture.settle_draft(found()).is_none(), is_outdated);
    }
}
