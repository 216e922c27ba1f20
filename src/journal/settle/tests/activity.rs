//! Activities, whose messages come from several senders through a queue. Messages without a time are ordered by
//! arrival.

use super::{Fixture, at, draft, uri};
use crate::{
    journal::registry::Registry,
    model::{
        Change, ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftTime, ItemChange, NonEmpty, Seq, State,
    },
};

static OVER: [State; 1] = [State::COMPLETED_SUCCESS];

/// Returns a draft with one change of the activity `a`.
fn activity_draft(time: DraftTime, change: DraftChange) -> Draft {
    Draft { time, ..draft(0, DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change)))) }
}

fn start() -> Draft {
    activity_draft(
        DraftTime::Arrival,
        DraftChange::AddOrUpdate { content: None, initial_state: Some(State::REQUESTED) },
    )
}

fn stop() -> Draft {
    activity_draft(DraftTime::Arrival, DraftChange::Activity { after: State::STOPPING, over: &OVER })
}

fn status(time: DraftTime, after: &str) -> Draft {
    let after = State::parse(after).unwrap();
    activity_draft(time, DraftChange::Activity { after, over: &OVER })
}

fn began(after: &str) -> Draft {
    status(DraftTime::Reported(at(10)), after)
}

fn ended() -> Draft {
    status(DraftTime::Reported(at(20)), "COMPLETED_SUCCESS")
}

/// Settles all drafts; returns the state after each journaled change, with `!` if it was late, and the final state.
fn settle_all(drafts: impl IntoIterator<Item = Draft>) -> (Vec<String>, Option<State>) {
    let mut fixture = Fixture::new(false);
    let mut rebuilt = Registry::default();
    let mut after = Vec::new();
    for draft in drafts {
        let Some((modification, settlement)) = fixture.settle_draft(draft) else { continue };
        let change = &modification.items[0].change;
        let state = change.after().map_or_else(|| change.change_type().unwrap().to_string(), ToString::to_string);
        after.push(if settlement.is_late() { format!("{state}!") } else { state });
        rebuilt.apply(&Change { seq: Seq::ZERO, received: at(1000), modification, settlement });
    }
    let rebuilt = rebuilt.objects.remove(&uri("o")).unwrap_or_default();
    assert_eq!(rebuilt.without_confirmations(), fixture.registered.clone().without_confirmations());
    (after, fixture.registered.state(&uri("a")).cloned())
}

#[test]
fn queued_messages_of_an_activity_end_in_its_final_state() {
    let (after, state) = settle_all([start(), began("RUNNING"), stop(), began("STOPPING"), ended()]);
    assert_eq!(after, ["REQUESTED", "RUNNING", "STOPPING", "COMPLETED_SUCCESS"]);
    assert_eq!(state, Some(State::COMPLETED_SUCCESS));
}

#[test]
fn a_late_start_does_not_reset_the_state() {
    for before in [vec![began("RUNNING")], vec![began("RUNNING"), ended()], vec![status(DraftTime::Arrival, "RUNNING")]]
    {
        let last = before.last().cloned();
        let (_, expected) = settle_all(before.clone());
        let (after, state) = settle_all(before.into_iter().chain([start()]));
        assert_eq!((after.last().unwrap().as_str(), state), ("UPDATE", expected), "{last:?}");
    }
}

#[test]
fn a_stop_of_a_finished_activity_changes_nothing() {
    let (after, state) = settle_all([began("RUNNING"), ended(), stop()]);
    assert_eq!((after.len(), state), (2, Some(State::COMPLETED_SUCCESS)));
    let (after, _) = settle_all([stop(), stop()]);
    assert_eq!(after, ["STOPPING"], "nobody announced it");
}

#[test]
fn a_state_may_recur() {
    let (after, _) = settle_all([began("RUNNING"), began("RUNNING"), began("PAUSED"), began("RUNNING"), ended()]);
    assert_eq!(after, ["RUNNING", "PAUSED", "RUNNING", "COMPLETED_SUCCESS"]);
    let anew = status(DraftTime::Reported(at(30)), "RUNNING");
    let (after, _) = settle_all([began("RUNNING"), ended(), began("RUNNING"), anew]);
    assert_eq!(after, ["RUNNING", "COMPLETED_SUCCESS", "RUNNING"], "the event that is older than the end is ignored");
    let reported_late = DraftChange::Reported(ItemChange::State { before: None, after: State::COMPLETED_FAILURE });
    let (after, state) = settle_all([ended(), activity_draft(DraftTime::Reported(at(15)), reported_late)]);
    assert_eq!((after[1].as_str(), state), ("COMPLETED_FAILURE!", Some(State::COMPLETED_SUCCESS)));
}

#[test]
fn a_present_item_is_added_once() {
    let present = |name: &str| {
        let content = Some(ContentLocation::at(uri(name)));
        activity_draft(DraftTime::Reported(at(10)), DraftChange::Present { content, state: None })
    };
    let delete = activity_draft(
        DraftTime::Reported(at(11)),
        DraftChange::Reported(ItemChange::Delete { before: None, after: None }),
    );
    let again = Draft { time: DraftTime::Arrival, ..present("x") };
    let (after, _) = settle_all([present("x"), present("x"), present("y"), delete, again.clone(), again]);
    assert_eq!(after, ["ADD", "UPDATE", "DELETE", "ADD"]);
}
