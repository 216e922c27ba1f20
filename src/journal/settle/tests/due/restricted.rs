//! Items whose repository states dates beside their state: what a lookup finds.

use super::{Life, at, dates, draft, from, item, uri};
use crate::{
    journal::seed::RegistryDelta,
    model::{
        ContentLocation, CrawledItem, CrawledObject, DraftChange, DraftItem, DraftItems, ItemChange, NonEmpty,
        SourceName, State, StatedDates, VisibilityDates,
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
    let partial = StatedDates::Partial(VisibilityDates::NONE);
    let mut life = Life::new();
    life.event(restricted(add(), partial)).unwrap();
    assert_eq!(life.state(), None);
    for (second, stated, state, dates) in [
        (1, until(10), Some("EMBARGOED"), from(10)),
        (2, partial, Some("EMBARGOED"), from(10)),
        (3, StatedDates::Partial(from(30)), Some("EMBARGOED"), from(30)),
        (4, StatedDates::Embargo, Some("EMBARGOED"), VisibilityDates::NONE),
        (5, partial, Some("EMBARGOED"), VisibilityDates::NONE),
        (6, NONE, Some("ACTIVE"), VisibilityDates::NONE),
    ] {
        life.now = second;
        life.event(restricted(update(), stated)).unwrap();
        assert_eq!((life.state(), life.schedule().dates), (state, dates), "{second}");
    }
    life.check_replay();
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
