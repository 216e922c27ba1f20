//! What the repository says later of an event that is in the journal, or of one that may have changed nothing.

use super::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, ItemChange, NonEmpty, State, World, add,
    draft, item, set_state, update, uri,
};
use crate::model::LookupMark;

/// It says of `a`, as of that second, that its content is there.
fn said(second: i64, content: &str) -> Draft {
    let content = Some(ContentLocation::at(uri(content)));
    let change = ItemChange::Update { content, before: None, after: None };
    draft(second, item("a", DraftChange::FollowUp(change)))
}

fn without_content(second: i64) -> Draft {
    let change = ItemChange::Update { content: None, before: None, after: None };
    draft(second, item("a", DraftChange::FollowUp(change)))
}

fn told(world: &mut World, draft: Draft) -> Option<ItemChange> {
    let (modification, settlement) = world.tell_draft(draft)?;
    assert!(!settlement.is_late());
    assert_eq!(modification.items.len(), 1);
    Some(modification.items[0].change.clone())
}

#[test]
fn it_is_told_once_and_only_as_long_as_nothing_newer_is_known() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    let change = told(&mut world, said(1, "x")).unwrap();
    assert_eq!((change.content().unwrap().url.clone(), change.before().cloned()), (uri("x"), Some(State::ACTIVE)));
    assert_eq!(told(&mut world, said(1, "x")), None, "the registry holds it so");
    world.tell(5, update("a"));
    assert_eq!(told(&mut world, said(4, "y")), None, "it is outdated");
    // A newer state alone does not make a version outdated that is not.
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    world.tell(1, update("a"));
    assert!(told(&mut world, said(1, "x")).is_some());
    world.tell(9, item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None })));
    assert_eq!(told(&mut world, said(1, "y")), None, "it is gone");
}

#[test]
fn what_is_new_there_may_be_known_already() {
    let mut world = World::new(false);
    let content = |name| Some(ContentLocation::at(uri(name)));
    let brought = |second, name| {
        let change = ItemChange::Add { content: content(name), after: Some(State::INACTIVE) };
        draft(second, item("a", DraftChange::FollowUp(change)))
    };
    let change = told(&mut world, brought(1, "x")).unwrap();
    assert_eq!(change, ItemChange::Add { content: content("x"), after: Some(State::INACTIVE) });
    let change = told(&mut world, brought(2, "y")).unwrap();
    assert_eq!(change, ItemChange::Update { content: content("y"), before: Some(State::INACTIVE), after: None });
    assert_eq!(told(&mut world, brought(2, "y")), None);
}

#[test]
fn what_is_news_of_the_object_is_told_with_an_item_that_is_as_it_was() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    assert_eq!(told(&mut world, without_content(1)), None);
    let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
    let of_parent = || Draft { parent: Some(uri("p")), ..without_content(1) };
    assert_eq!(told(&mut world, of_parent()), Some(expected.clone()));
    assert_eq!(told(&mut world, of_parent()), None);
    let of_types = Draft { types: vec![uri("t")], ..without_content(2) };
    assert_eq!(told(&mut world, of_types), Some(expected.clone()));
    assert_eq!(told(&mut world, Draft { types: vec![uri("u")], ..without_content(1) }), None, "it is outdated");
    // That it is gone is news as well, once, however many items there are.
    let lookup = DraftLookup { mark: Some(LookupMark::Gone), ..DraftLookup::default() };
    let change = || ItemChange::Update { content: None, before: None, after: None };
    let two = ["a", "a"].map(|name| DraftItem::new(uri(name), DraftChange::FollowUp(change())));
    let two = DraftItems::Listed(NonEmpty::try_from(two.to_vec()).unwrap());
    assert_eq!(told(&mut world, Draft { lookup, ..draft(3, two) }), Some(expected));
}

#[test]
fn a_state_that_was_told_is_not_told_again() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    world.tell(2, set_state("a", State::INACTIVE));
    let state = ItemChange::State { before: Some(State::ACTIVE), after: State::INACTIVE };
    let again = |parent| Draft { parent, ..draft(2, item("a", DraftChange::FollowUp(state.clone()))) };
    assert_eq!(told(&mut world, again(None)), None);
    let expected = ItemChange::Update { content: None, before: Some(State::INACTIVE), after: None };
    assert_eq!(told(&mut world, again(Some(uri("p")))), Some(expected));
}

#[test]
fn nothing_that_is_left_is_a_deletion() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    let delete = || ItemChange::Delete { before: None, after: None };
    let gone = |second| draft(second, item("a", DraftChange::FollowUp(delete())));
    assert!(matches!(told(&mut world, gone(2)), Some(ItemChange::Delete { .. })));
    assert_eq!(told(&mut world, gone(3)), None);
}
