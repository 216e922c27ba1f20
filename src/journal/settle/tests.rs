//! Drafts of one object, one after the other, against what is known of it.

mod activity;
mod completed;

use super::{
    Aspect, ContentObjectModification, Draft, DraftChange, DraftItem, DraftItems, DraftTime, ItemChange, NonEmpty,
    ObjectState, Settlement, SourceName, SourcePolicy, State, Timestamp, Uri, settle,
};
use crate::model::{ContentLocation, DraftLookup, Text, User};

/// A registry of one object, and a source that tells of it.
struct World {
    known: ObjectState,
    policy: SourcePolicy,
}

impl World {
    fn new(metadata_changes: bool) -> Self {
        let name = SourceName::parse("s").unwrap();
        Self { known: ObjectState::default(), policy: SourcePolicy { name, metadata_changes } }
    }

    /// Settles what happened at that second, and takes it over.
    fn tell(&mut self, second: i64, items: DraftItems) -> Option<(ContentObjectModification, Settlement)> {
        self.tell_draft(draft(second, items))
    }

    fn tell_draft(&mut self, draft: Draft) -> Option<(ContentObjectModification, Settlement)> {
        let settled = settle(draft, &self.policy, at(1000), &self.known);
        self.known.confirm(settled.ordering_time, &settled.confirmations);
        if let Some((modification, settlement)) = &settled.change {
            self.known.apply(settled.ordering_time, modification, settlement);
        }
        settled.change
    }
}

#[test]
fn news_of_an_object_is_told_though_its_items_are_as_they_were() {
    let mut world = World::new(false);
    let told = |second, parent: &str, types: &[&str], change| {
        let items = DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change)));
        let types = types.iter().map(|name| uri(name)).collect();
        Draft { parent: Some(uri(parent)), types, ..draft(second, items) }
    };
    let state = |after: &State| DraftChange::Reported(ItemChange::State { before: None, after: after.clone() });
    let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    let add = DraftChange::Reported(ItemChange::Add { content: None, after: Some(State::ACTIVE) });
    world.tell_draft(told(1, "p1", &["t1", "t2"], add)).unwrap();
    assert_eq!(world.tell_draft(told(2, "p1", &["t2", "t1"], state(&State::ACTIVE))), None, "all of it is known");

    let unchanged = [
        state(&State::ACTIVE),
        DraftChange::Present { content: None },
        DraftChange::Properties { after: None },
        DraftChange::Properties { after: Some(State::ACTIVE) },
    ];
    for (second, change) in (3..).zip(unchanged) {
        let parent = format!("p{second}");
        let (told, settlement) = world.tell_draft(told(second, &parent, &["t3"], change)).unwrap();
        let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
        assert_eq!((&told.items[0].uri, &told.items[0].change), (&uri("a"), &expected));
        assert_eq!((told.parent, settlement.filled), (Some(uri(&parent)), Settlement::default().filled));
        assert_eq!((world.known.parent(), world.known.types()), (Some(&uri(&parent)), &[uri("t3")][..]));
        assert_eq!(world.known.state(&uri("a")), Some(&State::ACTIVE));
    }
    // What is late is no news.
    assert_eq!(world.tell_draft(told(2, "p9", &["t9"], DraftChange::Present { content: None })), None);

    world.tell_draft(told(20, "p6", &["t3"], delete())).unwrap();
    let (again, _) = world.tell_draft(told(21, "p7", &["t3"], delete())).unwrap();
    assert_eq!(again.items[0].change, ItemChange::Delete { before: None, after: None });
    assert_eq!((world.known.parent(), world.known.is_gone(&uri("a"))), (Some(&uri("p7")), true));
}

#[test]
fn an_event_without_a_time_is_as_of_the_items_that_it_names() {
    let mut world = World::new(false);
    let add = |second, name: &str| {
        let change = DraftChange::Reported(ItemChange::Add { content: None, after: None });
        draft(second, DraftItems::Listed(NonEmpty::one(DraftItem::new(uri(name), change))))
    };
    world.tell_draft(add(5, "a")).unwrap();
    let alone = settle(Draft { time: DraftTime::Arrival, ..add(0, "a") }, &world.policy, at(1000), &world.known);
    // Another draft of the batch has had this item loaded as well.
    world.tell_draft(add(9, "b")).unwrap();
    let beside = settle(Draft { time: DraftTime::Arrival, ..add(0, "a") }, &world.policy, at(1000), &world.known);
    let as_of = |settled: super::SettledDraft| settled.change.unwrap().1.as_of;
    assert_eq!(as_of(alone), Some(at(5)));
    assert_eq!(as_of(beside), Some(at(5)));
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
        lookup: DraftLookup::default(),
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
fn a_late_change_is_told_and_marked_and_moves_only_what_is_older() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    world.tell(9, set_state("a", State::INACTIVE));
    let (modification, settlement) = world.tell(5, update("a")).unwrap();
    assert!(settlement.item(0).late.contains(Aspect::Existence));
    assert!(!settlement.item(0).late.contains(Aspect::Content));
    assert_eq!(modification.items[0].change.before(), None, "what was before then is not known any more");
    assert_eq!(world.known.state(&uri("a")), Some(&State::INACTIVE));
    assert_eq!(world.known.content(&uri("a")).map(|content| content.parse().unwrap().url), Some(uri("content")));
    let (_, settlement) = world.tell(4, set_state("a", State::DELETED)).unwrap();
    assert!(settlement.item(0).late.contains(Aspect::State));
    assert_eq!(world.known.state(&uri("a")), Some(&State::INACTIVE));
}

#[test]
fn what_changes_nothing_is_no_change() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    let delete = || item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None }));
    assert!(world.tell(2, set_state("a", State::ACTIVE)).is_none());
    assert!(world.tell(3, item("a", DraftChange::Properties { after: None })).is_none());
    assert!(world.tell(4, item("a", DraftChange::Properties { after: Some(State::ACTIVE) })).is_none());
    assert!(world.tell(5, delete()).is_some());
    assert!(world.tell(6, delete()).is_none());
    assert!(world.tell(7, DraftItems::Purge).is_some(), "the object itself may have been there");
    assert!(world.tell(8, DraftItems::Purge).is_none());
}

#[test]
fn a_source_may_have_changes_of_properties_told() {
    let mut world = World::new(true);
    world.tell(1, add("a", State::ACTIVE));
    let (modification, _) = world.tell(2, item("a", DraftChange::Properties { after: None })).unwrap();
    let expected = ItemChange::Update { content: None, before: Some(State::ACTIVE), after: None };
    assert_eq!(modification.items[0].change, expected);
}

#[test]
fn properties_with_another_state_are_a_change_of_state() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    let (modification, _) = world.tell(2, item("a", DraftChange::Properties { after: Some(State::DELETED) })).unwrap();
    let expected = ItemChange::State { before: Some(State::ACTIVE), after: State::DELETED };
    assert_eq!(modification.items[0].change, expected);
}

#[test]
fn a_late_purge_spares_what_is_newer() {
    let mut world = World::new(false);
    world.tell(1, add("a", State::ACTIVE));
    world.tell(9, add("b", State::ACTIVE));
    let (modification, settlement) = world.tell(5, DraftItems::Purge).unwrap();
    let gone: Vec<_> = modification.items.iter().map(|item| item.uri.clone()).collect();
    assert_eq!(gone, [uri("a")]);
    assert!(settlement.purge);
    assert!(world.known.is_live(&uri("b")));
    assert!(world.tell(3, add("c", State::ACTIVE)).unwrap().1.is_late());
    assert!(!world.known.is_live(&uri("c")), "it was there before the purge");
}

#[test]
fn parent_and_types_are_filled_in_where_the_source_left_them_out() {
    let mut world = World::new(false);
    world.tell_draft(Draft { parent: Some(uri("p")), types: vec![uri("t")], ..draft(1, add("a", State::ACTIVE)) });
    let (modification, settlement) = world.tell(2, update("a")).unwrap();
    assert_eq!((modification.parent, modification.types), (Some(uri("p")), vec![uri("t")]));
    assert_eq!(settlement.filled.iter().collect::<Vec<_>>(), [Aspect::Parent, Aspect::Types]);
    let told = Draft { types: vec![uri("u")], ..draft(3, update("a")) };
    assert_eq!(world.tell_draft(told).unwrap().0.types, [uri("u")]);
    assert_eq!(world.known.types(), [uri("u")]);
}

#[test]
fn a_clock_that_runs_ahead_does_not_make_the_rest_late() {
    let mut world = World::new(false);
    world.tell(99_999, add("a", State::ACTIVE));
    let (modification, settlement) = world.tell(1000, set_state("a", State::INACTIVE)).unwrap();
    assert!(!settlement.is_late());
    assert_eq!(modification.items[0].change.before(), Some(&State::ACTIVE));
}

#[test]
fn a_told_state_before_counts_and_one_that_says_nothing_does_not() {
    let mut world = World::new(false);
    let told =
        |before: State, after| item("a", DraftChange::Reported(ItemChange::State { before: Some(before), after }));
    assert!(world.tell(1, told(State::ACTIVE, State::ACTIVE)).is_none());
    let (modification, _) = world.tell(2, told(State::INACTIVE, State::ACTIVE)).unwrap();
    assert_eq!(modification.items[0].change.before(), Some(&State::INACTIVE));
    let (modification, _) = world.tell(3, told(State::INACTIVE, State::INACTIVE)).unwrap();
    assert_eq!(modification.items[0].change.before(), Some(&State::ACTIVE), "the registry knows better");
}
