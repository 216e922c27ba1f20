//! Activities, whose messages come from several senders by way of a queue: what is not told by a clock takes its
//! place by arrival.

use super::{World, at, draft, uri};
use crate::{
    journal::registry::Registry,
    model::{
        Change, ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftTime, ItemChange, NonEmpty, Seq, State,
    },
};

static OVER: [State; 1] = [State::COMPLETED_SUCCESS];

/// What a draft of the activity `a` is of.
fn of(time: DraftTime, change: DraftChange) -> Draft {
    Draft { time, ..draft(0, DraftItems::Listed(NonEmpty::one(DraftItem::new(uri("a"), change)))) }
}

fn start() -> Draft {
    of(DraftTime::Arrival, DraftChange::AddOrUpdate { content: None, initial_state: Some(State::REQUESTED) })
}

fn stop() -> Draft {
    of(DraftTime::Arrival, DraftChange::Activity { after: State::STOPPING, over: &OVER })
}

fn status(time: DraftTime, after: &str) -> Draft {
    let after = State::parse(after).unwrap();
    of(time, DraftChange::Activity { after, over: &OVER })
}

fn began(after: &str) -> Draft {
    status(DraftTime::Reported(at(10)), after)
}

fn ended() -> Draft {
    status(DraftTime::Reported(at(20)), "COMPLETED_SUCCESS")
}

/// Tells all; gives the states after of what was journaled, with a `!` where it was late.
fn told(drafts: impl IntoIterator<Item = Draft>) -> (Vec<String>, Option<State>) {
    let mut world = World::new(false);
    let mut rebuilt = Registry::default();
    let mut after = Vec::new();
    for draft in drafts {
        let Some((modification, settlement)) = world.tell_draft(draft) else { continue };
        let change = &modification.items[0].change;
        let state = change.after().map_or_else(|| change.change_type().unwrap().to_string(), ToString::to_string);
        after.push(if settlement.is_late() { format!("{state}!") } else { state });
        rebuilt.apply(&Change { seq: Seq::ZERO, received: at(1000), modification, settlement });
    }
    let rebuilt = rebuilt.objects.remove(&uri("o")).unwrap_or_default();
    assert_eq!(rebuilt.without_confirmations(), world.known.clone().without_confirmations());
    (after, world.known.state(&uri("a")).cloned())
}

#[test]
fn a_life_that_waited_in_a_queue_ends_as_it_did() {
    let (after, state) = told([start(), began("RUNNING"), stop(), began("STOPPING"), ended()]);
    assert_eq!(after, ["REQUESTED", "RUNNING", "STOPPING", "COMPLETED_SUCCESS"]);
    assert_eq!(state, Some(State::COMPLETED_SUCCESS));
}

#[test]
fn a_start_that_comes_late_sets_nothing_back() {
    for before in [vec![began("RUNNING")], vec![began("RUNNING"), ended()], vec![status(DraftTime::Arrival, "RUNNING")]]
    {
        let last = before.last().cloned();
        let (_, expected) = told(before.clone());
        let (after, state) = told(before.into_iter().chain([start()]));
        assert_eq!((after.last().unwrap().as_str(), state), ("UPDATE", expected), "{last:?}");
    }
}

#[test]
fn a_stop_of_what_is_over_changes_nothing() {
    let (after, state) = told([began("RUNNING"), ended(), stop()]);
    assert_eq!((after.len(), state), (2, Some(State::COMPLETED_SUCCESS)));
    let (after, _) = told([stop(), stop()]);
    assert_eq!(after, ["STOPPING"], "nobody announced it");
}

#[test]
fn a_state_may_come_back() {
    let (after, _) = told([began("RUNNING"), began("RUNNING"), began("PAUSED"), began("RUNNING"), ended()]);
    assert_eq!(after, ["RUNNING", "PAUSED", "RUNNING", "COMPLETED_SUCCESS"]);
    let anew = status(DraftTime::Reported(at(30)), "RUNNING");
    let (after, _) = told([began("RUNNING"), ended(), began("RUNNING"), anew]);
    assert_eq!(after, ["RUNNING", "COMPLETED_SUCCESS", "RUNNING"], "the one behind the end tells nothing any more");
    let told_late = DraftChange::Reported(ItemChange::State { before: None, after: State::COMPLETED_FAILURE });
    let (after, state) = told([ended(), of(DraftTime::Reported(at(15)), told_late)]);
    assert_eq!((after[1].as_str(), state), ("COMPLETED_FAILURE!", Some(State::COMPLETED_SUCCESS)));
}

#[test]
fn what_is_there_is_added_once() {
    let there = |name: &str| {
        let content = Some(ContentLocation::at(uri(name)));
        of(DraftTime::Reported(at(10)), DraftChange::Present { content })
    };
    let delete =
        of(DraftTime::Reported(at(11)), DraftChange::Reported(ItemChange::Delete { before: None, after: None }));
    let again = Draft { time: DraftTime::Arrival, ..there("x") };
    let (after, _) = told([there("x"), there("x"), there("y"), delete, again.clone(), again]);
    assert_eq!(after, ["ADD", "UPDATE", "DELETE", "ADD"]);
}
