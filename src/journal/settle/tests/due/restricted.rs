//! Items whose repository states dates beside their state: what a lookup finds.

use super::{Draft, DraftTime, Life, at, dates, draft, from, item, uri};
use crate::{
    journal::seed::RegistryDelta,
    model::{
        ContentLocation, CrawledItem, CrawledObject, DraftChange, DraftItem, DraftItems, DraftLookup, ItemChange,
        LookupMark, NonEmpty, SourceName, State, StatedDates, VisibilityDates,
    },
};

const NONE: StatedDates = StatedDates::All(VisibilityDates::NONE);

fn restricted(change: DraftChange, stated: StatedDates) -> DraftItems {
    DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change).restricted(stated)))
}

fn until(second: i64) -> StatedDates {
    StatedDates::All(from(second))
}

fn add() -> DraftChange {
    DraftChange::Reported(ItemChange::Add { content: None, after: None })
}

fn update() -> DraftChange {
    DraftChange::AddOrUpdate { content: None, initial_state: None }
}

#[test]
fn dates_of_a_lookup_hide_are_repeated_moved_and_lifted() {
    let mut life = Life::new();
    life.event(restricted(add(), until(10))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    life.now = 1;
    let (change, settlement) = life.event(restricted(update(), until(10))).unwrap();
    assert_eq!((change.items[0].change.after(), settlement.item(0).dates), (None, VisibilityDates::NONE));
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    life.now = 2;
    life.event(restricted(update(), until(30))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(30)));
    life.now = 3;
    life.event(restricted(update(), NONE)).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), VisibilityDates::NONE));
    life.now = 4;
    let (change, _) = life.event(restricted(update(), NONE)).unwrap();
    assert_eq!(change.items[0].change.after(), None, "nothing is left to lift");
    life.check_replay();
}

#[test]
fn repository_may_keep_a_date_that_has_come() {
    let mut life = Life::new();
    life.event(restricted(add(), StatedDates::All(dates(Some(10), Some(20))))).unwrap();
    life.now = 10;
    assert_eq!((life.run_due(), life.state()), (1, Some("ACTIVE")));
    life.now = 12;
    let (change, _) = life.event(restricted(update(), StatedDates::All(dates(Some(10), Some(20))))).unwrap();
    assert_eq!((change.items[0].change.after(), life.schedule().dates), (None, dates(None, Some(20))));
    life.now = 20;
    assert_eq!((life.run_due(), life.state()), (1, Some("EXPIRED")));
    life.now = 21;
    life.event(restricted(update(), until(30))).unwrap();
    assert_eq!(life.state(), Some("EMBARGOED"));
    life.check_replay();
}

/// The date of an embargo says nothing about an item that the repository hides for another reason.
#[test]
fn state_of_the_repository_outlasts_the_date() {
    let mut life = Life::new();
    let inactive = || DraftChange::Reported(ItemChange::State { before: None, after: State::INACTIVE });
    life.event(restricted(add(), NONE)).unwrap();
    life.now = 1;
    life.event(restricted(inactive(), until(10))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("INACTIVE"), VisibilityDates::NONE));
    life.now = 2;
    life.event(restricted(update(), until(10))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("INACTIVE"), VisibilityDates::NONE));
    life.now = 3;
    let active = DraftChange::Reported(ItemChange::State { before: None, after: State::ACTIVE });
    life.event(restricted(active, until(10))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    life.now = 4;
    life.event(restricted(inactive(), until(10))).unwrap();
    life.now = 10;
    assert_eq!((life.run_due(), life.state()), (0, Some("INACTIVE")));
    life.check_replay();
}

#[test]
fn unreadable_date_changes_nothing_and_an_embargo_without_end_hides() {
    let mut life = Life::new();
    life.event(restricted(add(), PARTIAL)).unwrap();
    assert_eq!(life.state(), None);
    for (second, stated, state, dates) in [
        (1, until(10), Some("EMBARGOED"), from(10)),
        (2, PARTIAL, Some("EMBARGOED"), from(10)),
        (3, StatedDates::Partial(from(30)), Some("EMBARGOED"), from(30)),
        (4, StatedDates::Embargo, Some("EMBARGOED"), VisibilityDates::NONE),
        (5, PARTIAL, Some("EMBARGOED"), VisibilityDates::NONE),
        (6, NONE, Some("ACTIVE"), VisibilityDates::NONE),
    ] {
        life.now = second;
        life.event(restricted(update(), stated)).unwrap();
        assert_eq!((life.state(), life.schedule().dates), (state, dates), "{second}");
    }
    life.check_replay();
}

/// A lookup that could not read all dates.
const PARTIAL: StatedDates = StatedDates::Partial(VisibilityDates::NONE);

fn state(after: State) -> DraftChange {
    DraftChange::Reported(ItemChange::State { before: None, after })
}

/// The known dates fill in for those that cannot be read, whatever state the message reports.
#[test]
fn partial_dates_leave_the_known_ones() {
    let changes: [fn() -> DraftChange; 4] =
        [update, || state(State::ACTIVE), || DraftChange::Properties { after: Some(State::ACTIVE) }, add];
    for change in changes {
        for (known, stated, state, expected) in [
            (from(10), PARTIAL, "EMBARGOED", from(10)),
            (from(10), StatedDates::Partial(from(5)), "EMBARGOED", from(10)),
            (from(10), StatedDates::Partial(dates(None, Some(20))), "EMBARGOED", dates(Some(10), Some(20))),
            (dates(Some(10), Some(20)), PARTIAL, "EMBARGOED", dates(Some(10), Some(20))),
            (dates(None, Some(20)), PARTIAL, "ACTIVE", dates(None, Some(20))),
            (dates(None, Some(20)), StatedDates::Partial(dates(None, Some(30))), "ACTIVE", dates(None, Some(20))),
            (dates(None, Some(20)), StatedDates::Partial(from(20)), "EMBARGOED", VisibilityDates::NONE),
        ] {
            let mut life = Life::new();
            life.event(restricted(add(), StatedDates::All(known))).unwrap();
            life.now = 1;
            life.event(restricted(change(), stated));
            assert_eq!((life.state(), life.schedule().dates), (Some(state), expected), "{:?}, {stated:?}", change());
            life.check_replay();
            // A lookup that reads all dates decides.
            life.now = 2;
            life.event(restricted(update(), NONE)).unwrap();
            assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), VisibilityDates::NONE), "{stated:?}");
        }
    }
}

/// No date says when the item appears, so none that a lookup reads in part does.
#[test]
fn partial_dates_show_no_item_that_is_hidden_without_a_date() {
    let past = StatedDates::All(dates(None, Some(1)));
    for (before, stated, expected) in [
        (add(), StatedDates::Embargo, "EMBARGOED"),
        (add(), past, "EXPIRED"),
        (DraftChange::Reported(ItemChange::Add { content: None, after: Some(State::INACTIVE) }), NONE, "EMBARGOED"),
    ] {
        for partial in [PARTIAL, StatedDates::Partial(from(10))] {
            let mut life = Life::new();
            life.now = 2;
            life.event(restricted(before.clone(), stated)).unwrap();
            life.now = 3;
            life.event(restricted(state(State::ACTIVE), partial));
            assert_eq!((life.state(), life.schedule().dates), (Some(expected), VisibilityDates::NONE), "{partial:?}");
            life.check_replay();
        }
    }
}

/// A date that has come may wait for its change while the clock of the gateway is busy.
#[test]
fn partial_dates_keep_a_date_that_comes_due() {
    let mut life = Life::new();
    life.event(restricted(add(), until(10))).unwrap();
    life.now = 11;
    life.event(restricted(update(), PARTIAL)).unwrap();
    assert_eq!(life.state(), Some("EMBARGOED"));
    assert_eq!((life.run_due(), life.state()), (1, Some("ACTIVE")));
    life.check_replay();
}

/// An ADD replaces the state, so the former one does not hide the item from its dates.
#[test]
fn dates_of_a_new_item_count_whatever_was_before() {
    let mut life = Life::new();
    life.event(restricted(
        DraftChange::Reported(ItemChange::Add { content: None, after: Some(State::INACTIVE) }),
        NONE,
    ));
    life.now = 1;
    life.event(restricted(add(), until(10))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
}

/// A message about RELS-EXT concerns the other datastreams only by its dates.
#[test]
fn dates_of_an_item_that_the_message_does_not_name_change_its_visibility_alone() {
    let unnamed = || DraftChange::Present { content: None, state: None };
    let mut life = Life::new();
    for stated in [NONE, until(10), PARTIAL, StatedDates::Embargo] {
        assert!(life.event(restricted(unnamed(), stated)).is_none(), "the item is unknown: {stated:?}");
    }
    let content = |name: &str| ContentLocation::at(uri(name));
    let added = ItemChange::Add { content: Some(content("c")), after: Some(State::ACTIVE) };
    life.event(restricted(DraftChange::Reported(added), NONE)).unwrap();
    life.now = 5;
    assert!(life.event(restricted(unnamed(), NONE)).is_none());
    // New content that happened before the message and arrives after it.
    let newer = DraftChange::AddOrUpdate { content: Some(content("d")), initial_state: None };
    let (_, settlement) = life.settle(draft(4, restricted(newer, NONE))).unwrap();
    assert!(!settlement.is_late());
    life.now = 6;
    let (change, _) = life.event(restricted(unnamed(), until(10))).unwrap();
    let expected = ItemChange::State { before: Some(State::ACTIVE), after: State::EMBARGOED };
    assert_eq!((&change.items[0].change, life.schedule().dates), (&expected, from(10)));
    life.now = 7;
    let delete = DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    life.event(restricted(delete, until(10))).unwrap();
    life.now = 8;
    assert!(life.event(restricted(unnamed(), until(10))).is_none(), "the item is deleted");
    life.check_replay();
}

/// An event without a time is never late, and its item may be deleted before the repository answers.
#[test]
fn outdated_follow_up_does_not_revive_a_deleted_item() {
    let arrived = |items| Draft { time: DraftTime::Arrival, ..draft(0, items) };
    for parent in [None, Some(uri("p"))] {
        let mut life = Life::new();
        let added = ItemChange::Add { content: Some(ContentLocation::at(uri("c"))), after: None };
        life.settle(arrived(item("a", DraftChange::Reported(added.clone())))).unwrap();
        let delete = DraftChange::Reported(ItemChange::Delete { before: None, after: None });
        life.settle(arrived(item("a", delete))).unwrap();
        let follow_up = DraftChange::FollowUpTo { reported: added.clone(), change: added };
        life.settle(Draft { parent, ..arrived(restricted(follow_up, until(10))) });
        assert!(!life.is_visible() && life.state().is_none(), "{:?}", life.journal.last());
    }
}

/// The change is public at first, and a later message hides it before its own lookup is repeated.
#[test]
fn follow_up_does_not_repeat_the_state_that_its_event_reported() {
    for partial in [PARTIAL, until(10)] {
        let mut life = Life::new();
        let content = ContentLocation::at(uri("c"));
        let added = |size| ItemChange::Add { content: Some(ContentLocation { size, ..content.clone() }), after: None };
        life.event(restricted(DraftChange::Reported(added(None)), until(10))).unwrap();
        let change =
            ItemChange::Update { content: added(Some(7)).content().cloned(), before: None, after: Some(State::ACTIVE) };
        life.settle(draft(0, restricted(DraftChange::FollowUp(change), partial))).unwrap();
        assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)), "{partial:?}");
        life.check_replay();
    }
}

/// A deletion that the registry has already can still bring a new parent.
#[test]
fn deletion_with_dates_carries_new_facts_of_its_object() {
    let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    let mut life = Life::new();
    life.event(item("a", add())).unwrap();
    life.now = 1;
    life.event(item("a", delete())).unwrap();
    life.now = 2;
    let (change, _) = life.settle(Draft { parent: Some(uri("p")), ..draft(2, restricted(delete(), NONE)) }).unwrap();
    assert_eq!((change.parent, life.is_visible()), (Some(uri("p")), false));
}

#[test]
fn late_event_and_deletion_have_no_dates() {
    let mut life = Life::new();
    life.now = 5;
    life.event(restricted(add(), until(30))).unwrap();
    life.settle(draft(3, restricted(update(), NONE))).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(30)));
    life.now = 6;
    let delete = DraftChange::Reported(ItemChange::Delete { before: None, after: None });
    life.event(restricted(delete, until(30))).unwrap();
    assert_eq!(life.schedule().dates, VisibilityDates::NONE);
    assert!(!life.is_visible());
    life.check_replay();
}

/// The repository did not answer at first, so the change went public without its date.
#[test]
fn later_lookup_adds_the_dates() {
    for is_new in [false, true] {
        let mut life = Life::new();
        let content = ContentLocation::at(uri("c"));
        let added = ItemChange::Add { content: Some(content.clone()), after: None };
        life.event(item("a", DraftChange::Reported(added.clone()))).unwrap();
        let found = ContentLocation { size: Some(7), ..content };
        let found = ItemChange::Add { content: if is_new { Some(found) } else { None }, after: None };
        let follow_up = || match is_new {
            true => DraftChange::FollowUp(found.clone()),
            false => DraftChange::FollowUpTo { reported: added.clone(), change: found.clone() },
        };
        let (change, settlement) = life.settle(draft(0, restricted(follow_up(), until(10)))).unwrap();
        assert_eq!(change.items[0].change.after(), Some(&State::EMBARGOED));
        assert_eq!((settlement.item(0).dates, life.state()), (from(10), Some("EMBARGOED")));
        assert!(life.settle(draft(0, restricted(follow_up(), until(10)))).is_none(), "it is known");
        life.now = 10;
        assert_eq!((life.run_due(), life.state()), (1, Some("ACTIVE")));
        assert_eq!(life.journal.last().unwrap().modification.time, at(10));
        life.check_replay();
    }
}

/// The other source has no lookups, so only the later lookup reads the dates.
#[test]
fn later_lookup_adds_the_dates_although_another_event_brought_new_content() {
    let content = |name: &str| Some(ContentLocation::at(uri(name)));
    let mut life = Life::new();
    let added = ItemChange::Add { content: content("c"), after: None };
    life.event(item("a", DraftChange::Reported(added.clone()))).unwrap();
    life.now = 5;
    let update = ItemChange::Update { content: content("d"), before: None, after: None };
    life.event(item("a", DraftChange::Reported(update))).unwrap();
    life.now = 6;
    let follow_up = || restricted(DraftChange::FollowUp(added.clone()), until(10));
    let (change, _) = life.settle(draft(0, follow_up())).unwrap();
    assert_eq!(change.items[0].change, ItemChange::State { before: None, after: State::EMBARGOED });
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    assert!(life.settle(draft(0, follow_up())).is_none(), "it is known");
    life.now = 7;
    life.event(item("a", DraftChange::Reported(ItemChange::Delete { before: None, after: None }))).unwrap();
    assert!(life.settle(draft(0, follow_up())).is_none(), "the item is deleted");
    life.check_replay();
}

/// The date was moved and moved back. The lookup of the later event has read it again, which is no news, and the lookup that was
/// repeated for the earlier event had read another one, or none.
#[test]
fn later_lookup_for_an_earlier_event_shows_no_item() {
    for earlier in [NONE, until(10)] {
        let mut life = moved_back();
        life.settle(draft(1, restricted(DraftChange::FollowUp(content_of("c")), earlier)));
        assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(30)));
        life.check_replay();
    }
}

/// RELS-EXT dates all items of an object. The lookup of the later event has read the same date again, which is no news for those
/// that it does not name.
#[test]
fn later_lookup_for_an_earlier_event_shows_no_item_that_the_event_does_not_name() {
    let event = |change: DraftChange, stated: StatedDates| {
        let unnamed = DraftChange::Present { content: None, state: None };
        let items = [DraftItem::new(uri("rels"), change), DraftItem::new(uri("a"), unnamed)];
        DraftItems::Listed(NonEmpty::try_from(items.map(|item| item.restricted(stated)).to_vec()).unwrap())
    };
    let reported = |name: &str| DraftChange::Reported(content_of(name));
    let mut life = Life::new();
    life.event(item("a", add())).unwrap();
    life.now = 1;
    life.event(event(reported("r"), until(30))).unwrap();
    life.now = 2;
    life.event(event(reported("s"), PARTIAL)).unwrap();
    life.now = 3;
    life.event(event(reported("t"), until(30))).unwrap();
    life.now = 4;
    life.settle(draft(2, event(DraftChange::FollowUp(content_of("s")), NONE)));
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(30)));
    life.check_replay();
}

/// Nobody else has read the end of the visibility.
#[test]
fn later_lookup_for_an_earlier_event_adds_an_end() {
    let mut life = Life::new();
    life.event(item("a", DraftChange::Reported(content_of("c")))).unwrap();
    life.now = 5;
    life.event(item("a", DraftChange::Reported(content_of("d")))).unwrap();
    life.now = 6;
    let end = StatedDates::All(dates(None, Some(20)));
    life.settle(draft(0, restricted(DraftChange::FollowUp(content_of("c")), end)));
    assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), dates(None, Some(20))));
    life.now = 20;
    assert_eq!((life.run_due(), life.state()), (1, Some("EXPIRED")));
    life.check_replay();
}

fn content_of(name: &str) -> ItemChange {
    ItemChange::Update { content: Some(ContentLocation::at(uri(name))), before: None, after: None }
}

/// An item whose date is the same again after an event whose lookup has failed.
fn moved_back() -> Life {
    let mut life = Life::new();
    life.event(restricted(add(), until(30))).unwrap();
    life.now = 1;
    life.event(restricted(DraftChange::Reported(content_of("c")), PARTIAL)).unwrap();
    life.now = 2;
    life.event(restricted(DraftChange::Reported(content_of("d")), until(30))).unwrap();
    life.now = 3;
    life
}

/// Only a change in the journal is looked up again. Without one, the new date of the item would never be read.
#[test]
fn event_whose_dates_are_unknown_makes_a_change_although_it_says_nothing_else() {
    for (mark, stated, is_change) in [
        (Some(LookupMark::Incomplete), PARTIAL, true),
        (Some(LookupMark::Incomplete), until(10), false),
        (None, PARTIAL, false),
    ] {
        let mut life = Life::new();
        life.event(restricted(add(), until(10))).unwrap();
        life.now = 1;
        let said = DraftChange::Present { content: None, state: None };
        let lookup = DraftLookup { mark, ..DraftLookup::default() };
        let settled = life.settle(Draft { lookup, ..draft(1, restricted(said, stated)) });
        assert_eq!(settled.is_some(), is_change, "{mark:?} {stated:?}");
        assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
        // A deletion that the registry has already is no news, and has no dates.
        life.now = 2;
        let delete = || DraftChange::Reported(ItemChange::Delete { before: None, after: None });
        life.event(item("a", delete())).unwrap();
        life.now = 3;
        let again =
            Draft { lookup: DraftLookup { mark, ..DraftLookup::default() }, ..draft(3, restricted(delete(), stated)) };
        assert!(life.settle(again).is_none(), "{mark:?} {stated:?}");
        life.check_replay();
    }
}

/// A list of the repository has no dates, so it says that an item under an embargo is active.
#[test]
fn crawl_leaves_an_item_with_dates_as_it_is() {
    for stated in [until(10), StatedDates::Embargo] {
        let mut life = Life::new();
        life.event(restricted(add(), stated)).unwrap();
        let schedule = life.schedule();
        let crawled = |state| DraftChange::Crawled { content: None, state: Some(state), at: at(5) };
        life.now = 6;
        assert!(life.settle(draft(6, item("a", crawled(State::ACTIVE)))).is_none());
        let item = CrawledItem { uri: uri("a"), at: at(5), content: None, state: Some(State::ACTIVE) };
        let found =
            CrawledObject { object: uri("o"), at: at(5), parent: None, types: Vec::new(), items: NonEmpty::one(item) };
        let delta =
            RegistryDelta::from_crawl(&SourceName::parse("s").unwrap(), &found, at(6), &life.fixture.registered);
        life.fixture.registered.apply_delta(&delta);
        assert_eq!((life.state(), life.schedule()), (Some("EMBARGOED"), schedule), "{stated:?}");
        life.settle(draft(6, super::item("a", crawled(State::INACTIVE)))).unwrap();
        assert_eq!(life.state(), Some("INACTIVE"), "the repository hides it for another reason");
    }
}
