//! Items whose source announces from when or until when the public may see them.

mod histories;
mod restricted;

use super::{Fixture, at, draft, item, uri};
use crate::{
    journal::{
        registry::{Registry, Schedule},
        settle::{ReceiptClock, settle},
    },
    model::{
        Change, ContentLocation, ContentObjectModification, Draft, DraftChange, DraftItem, DraftItems, DraftTime,
        ItemChange, NonEmpty, Seq, Settlement, State, Timestamp, VisibilityDates, is_public,
    },
};

/// A registry with its journal, and a clock.
struct Life {
    fixture: Fixture,
    /// What the clock says.
    now: i64,
    /// Newest time of receipt.
    received: Timestamp,
    journal: Vec<Change>,
}

fn dates(from: Option<i64>, until: Option<i64>) -> VisibilityDates {
    VisibilityDates::new(from.map(at), until.map(at)).unwrap()
}

fn from(second: i64) -> VisibilityDates {
    dates(Some(second), None)
}

fn dated(change: DraftChange, dates: VisibilityDates) -> DraftItems {
    DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change).dated(dates)))
}

fn set_state(state: State, dates: VisibilityDates) -> DraftItems {
    dated(DraftChange::Reported(ItemChange::State { before: None, after: state }), dates)
}

fn add(dates: VisibilityDates) -> DraftItems {
    dated(DraftChange::Reported(ItemChange::Add { content: None, after: Some(State::ACTIVE) }), dates)
}

fn present(dates: VisibilityDates) -> DraftItems {
    let item = DraftItem::new(uri("a"), DraftChange::Present { content: None, state: None });
    DraftItems::Listed(NonEmpty::one(item.with_all_dates(dates)))
}

impl Life {
    fn new() -> Self {
        Self { fixture: Fixture::new(false), now: 0, received: at(0), journal: Vec::new() }
    }

    /// Settles an event that happens and arrives now.
    fn event(&mut self, items: DraftItems) -> Option<(ContentObjectModification, Settlement)> {
        self.settle(draft(self.now, items))
    }

    fn settle(&mut self, draft: Draft) -> Option<(ContentObjectModification, Settlement)> {
        let Fixture { registered, policy } = &mut self.fixture;
        let now = at(self.now);
        let received = now.max(self.received);
        self.received = received;
        let settled = settle(draft, policy, ReceiptClock { received, now }, registered);
        registered.confirm(settled.ordering_time, &settled.confirmations);
        if let Some((modification, settlement)) = settled.change.clone() {
            registered.apply(settled.ordering_time, &modification, &settlement);
            self.journal.push(Change { seq: Seq::ZERO, received, modification, settlement });
        }
        settled.change
    }

    /// Submits the change for a date.
    fn due(&mut self, second: i64) -> Option<(ContentObjectModification, Settlement)> {
        self.settle(Draft { time: DraftTime::Due(at(second)), ..draft(0, item("a", DraftChange::Due)) })
    }

    /// Submits all changes whose dates have come; returns their number.
    fn run_due(&mut self) -> usize {
        let mut changes = 0;
        while let Some(come) = self.schedule().dates.latest_come(at(self.now)) {
            self.due(come.millis() / 1000).expect("the date has come");
            changes += 1;
        }
        changes
    }

    fn schedule(&self) -> Schedule {
        self.fixture.registered.schedule(&uri("a"))
    }

    fn state(&self) -> Option<&str> {
        self.fixture.registered.state(&uri("a")).map(State::as_str)
    }

    fn is_visible(&self) -> bool {
        let registered = &self.fixture.registered;
        registered.is_live(&uri("a")) && is_public(registered.state(&uri("a")))
    }

    /// Checks that the journal alone rebuilds the registry.
    fn check_replay(&self) {
        let mut rebuilt = Registry::default();
        self.journal.iter().for_each(|change| rebuilt.apply(change));
        let rebuilt = rebuilt.objects.remove(&uri("o")).unwrap_or_default();
        assert_eq!(rebuilt.without_confirmations(), self.fixture.registered.clone().without_confirmations());
    }
}

#[test]
fn embargoed_item_becomes_active_at_its_date_and_once() {
    let mut life = Life::new();
    life.now = 1;
    let (change, settlement) = life.event(add(from(10))).unwrap();
    assert_eq!(change.items[0].change.after(), Some(&State::EMBARGOED));
    assert_eq!((settlement.item(0).dates, settlement.due), (from(10), false));
    life.now = 9;
    assert!(life.due(10).is_none(), "the clock is behind that of the node");
    life.now = 12;
    let (change, settlement) = life.due(10).unwrap();
    assert_eq!(change.items[0].change, ItemChange::State { before: Some(State::EMBARGOED), after: State::ACTIVE });
    assert_eq!((change.time, settlement.as_of, settlement.due), (at(10), Some(at(1)), true));
    assert!(!settlement.is_late() && settlement.item(0).dates.is_empty());
    assert!(life.due(10).is_none(), "it has come due already");
    life.check_replay();
}

#[test]
fn clock_that_was_ahead_ends_no_embargo() {
    let mut life = Life::new();
    life.received = at(1_000_000);
    life.now = 1;
    life.event(add(from(10))).unwrap();
    assert_eq!((life.run_due(), life.state()), (0, Some("EMBARGOED")));
    life.now = 10;
    assert_eq!((life.run_due(), life.state()), (1, Some("ACTIVE")));
    // It was set back again, after the date had come.
    life.now = 2;
    assert!(life.due(10).is_none());
    life.check_replay();
}

#[test]
fn date_without_any_state_hides_and_ends() {
    let mut life = Life::new();
    life.event(present(dates(Some(10), Some(20)))).unwrap();
    assert_eq!(life.state(), Some("EMBARGOED"));
    assert!(life.event(present(dates(Some(10), Some(20)))).is_none(), "the registry has the dates");
    life.now = 15;
    assert_eq!(life.run_due(), 1);
    assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), dates(None, Some(20))));
    assert!(life.event(present(dates(Some(10), Some(20)))).is_none(), "the first date has come");
    life.now = 20;
    assert_eq!((life.run_due(), life.state()), (1, Some("EXPIRED")));
    assert!(life.event(present(dates(Some(10), Some(20)))).is_none(), "both dates have come");
    life.check_replay();
}

#[test]
fn both_dates_that_have_passed_make_one_change_at_the_second() {
    let mut life = Life::new();
    life.event(add(dates(Some(10), Some(20)))).unwrap();
    life.now = 30;
    assert!(life.due(10).is_none(), "the item would appear after its end");
    assert_eq!((life.run_due(), life.state()), (1, Some("EXPIRED")));
    assert_eq!((life.schedule().came, life.journal[1].modification.time), (Some(at(20)), at(20)));
    // What the source denies is the end.
    life.now = 31;
    let (_, settlement) = life.event(set_state(State::ACTIVE, dates(None, Some(40)))).unwrap();
    assert_eq!(settlement.item(0).denies, Some(at(20)));
    life.check_replay();
}

#[test]
fn past_date_has_no_effect_unless_it_is_the_end() {
    let mut life = Life::new();
    life.now = 50;
    let (change, settlement) = life.event(add(from(10))).unwrap();
    assert_eq!(change.items[0].change.after(), Some(&State::ACTIVE));
    assert!(settlement.item(0).dates.is_empty());
    life.event(set_state(State::ACTIVE, dates(None, Some(20)))).unwrap();
    assert_eq!((life.state(), life.schedule()), (Some("EXPIRED"), Schedule::default()));
}

#[test]
fn statement_about_the_state_replaces_the_dates_and_no_other_does() {
    let mut life = Life::new();
    life.event(add(from(10))).unwrap();
    life.now = 1;
    life.event(item("a", DraftChange::Reported(ItemChange::Update { content: None, before: None, after: None })));
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    life.now = 2;
    let (change, settlement) = life.event(set_state(State::ACTIVE, from(30))).unwrap();
    let moved = ItemChange::State { before: Some(State::EMBARGOED), after: State::EMBARGOED };
    assert_eq!((&change.items[0].change, settlement.item(0).dates), (&moved, from(30)));
    life.now = 10;
    assert!(life.due(10).is_none(), "the embargo was extended");
    life.now = 11;
    life.event(set_state(State::ACTIVE, VisibilityDates::NONE)).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), VisibilityDates::NONE));
    life.now = 30;
    assert!(life.due(30).is_none(), "the embargo was lifted");
    life.check_replay();
}

#[test]
fn hidden_item_stays_as_its_source_says_until_the_date() {
    let mut life = Life::new();
    life.event(set_state(State::INACTIVE, from(10))).unwrap();
    assert_eq!(life.state(), Some("INACTIVE"));
    life.now = 10;
    assert_eq!((life.run_due(), life.state()), (1, Some("ACTIVE")));
}

#[test]
fn late_statement_does_not_replace_newer_dates() {
    let mut life = Life::new();
    life.now = 5;
    life.event(add(from(30))).unwrap();
    life.settle(draft(3, set_state(State::ACTIVE, from(10)))).unwrap();
    assert_eq!(life.schedule().dates, from(30));
    life.check_replay();
}

#[test]
fn withdrawal_that_arrives_after_the_date_and_happened_before_it_counts() {
    let mut life = Life::new();
    life.event(add(from(10))).unwrap();
    life.now = 12;
    life.run_due();
    let (_, settlement) = life.settle(draft(8, set_state(State::INACTIVE, VisibilityDates::NONE))).unwrap();
    assert!(!settlement.is_late() && settlement.item(0).denies.is_none());
    assert_eq!(life.state(), Some("INACTIVE"));
    life.check_replay();
}

#[test]
fn deletion_and_purge_end_the_dates() {
    for purge in [false, true] {
        let mut life = Life::new();
        life.event(add(from(10))).unwrap();
        life.now = 2;
        let delete = DraftChange::Reported(ItemChange::Delete { before: None, after: None });
        life.event(if purge { DraftItems::Purge } else { item("a", delete) }).unwrap();
        assert_eq!(life.schedule(), Schedule::default());
        life.now = 10;
        assert!(life.due(10).is_none());
        life.check_replay();
    }
}

#[test]
fn late_purge_resets_the_state_of_an_item_that_it_spares_with_its_dates() {
    let mut life = Life::new();
    life.event(add(from(30))).unwrap();
    life.now = 9;
    let update = ItemChange::Update { content: None, before: None, after: None };
    life.event(item("a", DraftChange::Reported(update))).unwrap();
    life.settle(draft(5, DraftItems::Purge)).unwrap();
    assert!(life.fixture.registered.is_live(&uri("a")));
    assert_eq!((life.state(), life.schedule()), (None, Schedule::default()));
    life.now = 30;
    assert!(life.due(30).is_none());
    life.check_replay();
}

#[test]
fn source_that_says_another_date_afterwards_denies_the_first() {
    let mut life = Life::new();
    life.event(add(from(10))).unwrap();
    life.now = 10;
    life.run_due();
    life.now = 12;
    let (_, settlement) = life.event(set_state(State::ACTIVE, from(30))).unwrap();
    assert_eq!(settlement.item(0).denies, Some(at(10)));
    assert_eq!((life.state(), life.schedule().denied), (Some("EMBARGOED"), Some(at(10))));
    life.now = 30;
    assert_eq!((life.run_due(), life.schedule().denied), (1, None), "the source's own date has come");
    // A withdrawal is no denial.
    life.now = 31;
    let (_, settlement) = life.event(set_state(State::INACTIVE, VisibilityDates::NONE)).unwrap();
    assert_eq!(settlement.item(0).denies, None);
    life.check_replay();
}

#[test]
fn result_of_a_download_keeps_the_dates() {
    let mut life = Life::new();
    let content = ContentLocation::at(uri("c"));
    let change = DraftChange::Present { content: Some(content.clone()), state: None };
    life.event(dated(change, dates(None, Some(20)))).unwrap();
    let copied = DraftChange::Copied { original: content.reported(), copy: None };
    life.event(item("a", copied)).unwrap();
    assert_eq!((life.state(), life.schedule().dates), (Some("UNAVAILABLE"), dates(None, Some(20))));
    life.now = 20;
    assert_eq!((life.run_due(), life.state()), (1, Some("EXPIRED")));
    life.check_replay();
}

/// Appends the result of a download of `content`.
fn copied(life: &mut Life, content: &ContentLocation, copy: Option<ContentLocation>) {
    let change = DraftChange::Copied { original: content.reported(), copy };
    life.event(item("a", change)).expect("the state changes");
}

#[test]
fn result_of_a_download_keeps_what_has_become_of_the_dates() {
    let content = ContentLocation::at(uri("c"));
    let copy = ContentLocation { original: Some(Box::new(content.reported())), ..ContentLocation::at(uri("copy")) };
    let mut life = Life::new();
    let change = DraftChange::Present { content: Some(content.clone()), state: None };
    life.event(dated(change, from(10))).unwrap();
    life.now = 10;
    life.run_due();
    copied(&mut life, &content, None);
    assert_eq!((life.state(), life.schedule().came), (Some("UNAVAILABLE"), Some(at(10))));
    life.now = 11;
    let (_, settlement) = life.event(set_state(State::ACTIVE, from(30))).unwrap();
    assert_eq!(settlement.item(0).denies, Some(at(10)), "the source denies the date");
    // It withdraws the embargo, so only the copy is missing.
    let unavailable = DraftChange::Present { content: None, state: Some(State::UNAVAILABLE) };
    life.event(item("a", unavailable)).unwrap();
    assert_eq!(life.schedule().denied, None);
    life.check_replay();

    let mut life = Life::new();
    life.event(dated(DraftChange::Present { content: Some(content.clone()), state: None }, dates(None, Some(10))));
    life.now = 10;
    life.run_due();
    life.now = 11;
    life.event(set_state(State::ACTIVE, dates(None, Some(30)))).unwrap();
    assert_eq!(life.schedule().denied, Some(at(10)));
    copied(&mut life, &content, None);
    assert_eq!((life.state(), life.schedule().denied), (Some("UNAVAILABLE"), Some(at(10))));
    copied(&mut life, &content, Some(copy));
    assert_eq!((life.state(), life.schedule().denied), (Some("ACTIVE"), Some(at(10))));
    assert_eq!(life.schedule().dates, dates(None, Some(30)));
    life.check_replay();
}

#[test]
fn every_report_of_the_same_state_replaces_the_dates() {
    let state = || State::ACTIVE;
    let reports: [fn(State) -> DraftChange; 5] = [
        |after| DraftChange::Reported(ItemChange::State { before: None, after }),
        |state| DraftChange::Present { content: None, state: Some(state) },
        |state| DraftChange::AddOrUpdateWithState { content: None, state },
        |after| DraftChange::Properties { after: Some(after) },
        |after| DraftChange::Activity { after, over: &[] },
    ];
    for report in reports {
        let mut life = Life::new();
        life.event(add(dates(None, Some(10)))).unwrap();
        life.now = 1;
        let reported = report(state());
        life.event(item("a", reported.clone())).unwrap();
        assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), VisibilityDates::NONE), "{reported:?}");
        life.check_replay();
    }
}

/// A listing or a relayed change that says nothing about states and dates leaves them as they are.
#[test]
fn source_that_knows_no_dates_ends_none() {
    let mut life = Life::new();
    life.now = 1;
    life.event(add(from(10))).unwrap();
    life.now = 2;
    assert!(life.event(item("a", DraftChange::Present { content: None, state: None })).is_none());
    assert_eq!((life.state(), life.schedule().dates), (Some("EMBARGOED"), from(10)));
    life.event(present(VisibilityDates::NONE)).expect("all dates have lapsed");
    assert_eq!((life.state(), life.schedule().dates), (Some("ACTIVE"), VisibilityDates::NONE));
    life.check_replay();
}

/// A sender can name a state and a date in the message about a deletion.
#[test]
fn deleted_item_does_not_come_back_at_a_date() {
    let mut life = Life::new();
    life.now = 1;
    life.event(add(from(10))).unwrap();
    life.now = 2;
    let delete = ItemChange::Delete { before: None, after: Some(State::parse("DELETED").unwrap()) };
    life.event(dated(DraftChange::Reported(delete), from(30))).unwrap();
    assert_eq!(life.schedule().dates, VisibilityDates::NONE);
    life.now = 40;
    assert!(life.due(30).is_none() && life.run_due() == 0 && !life.is_visible());
    life.check_replay();
}
