//! Tests of the delivery loop against a receiver that misbehaves on demand.

mod batches;
mod exits;
mod failures;
mod fixture;
mod memory;
mod receiver;
mod waits;

use super::Exit;
use crate::{
    delivery::{DeliveryOutcome, status::SubscriptionState},
    journal::subscriptions::SubscriptionWrite,
};

use fixture::EngineFixture;
use receiver::{Action, Receiver, refuse, retry};

/// Returns whether each new number follows its predecessor, duplicates aside.
fn is_without_gap(accepted: &[u64], last: u64) -> bool {
    let mut expected = 1;
    for seq in accepted {
        if *seq > expected {
            return false;
        }
        expected = expected.max(seq + 1);
    }
    expected == last + 1
}

#[tokio::test]
async fn changes_are_delivered_in_order_within_the_window() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=40).await;
    let receiver = Receiver::default();
    let running = fixture.run(&receiver, 0);
    running.until_at(40).await;
    fixture.append("s", 41..=50).await;
    running.until_at(50).await;
    assert_eq!(receiver.accepted(), (1..=50).collect::<Vec<_>>());
    receiver.with(|script| assert!(script.max_at_once <= 5 && script.max_at_once > 1, "{}", script.max_at_once));
    assert_eq!(fixture.stored_cursor().await, 50);
    let status = running.status.snapshot();
    assert_eq!((status.state, status.delivered, status.last_error), (SubscriptionState::Running, 50, None));
    assert!(matches!(running.stop().await, Exit::Stopped));
}

#[tokio::test]
async fn delivery_resumes_after_the_last_confirmed_change() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=60).await;
    for trouble in [retry(), Action::Hang, Action::Break] {
        let receiver = Receiver::default().with_actions([
            Action::Accept,
            Action::Accept,
            trouble.clone(),
            Action::Accept,
            trouble.clone(),
        ]);
        receiver.with(|script| script.refuse_to_connect = 2);
        let running = fixture.run(&receiver, 0);
        running.until_at(60).await;
        let sent = receiver.with(|script| script.sent.clone());
        assert!(is_without_gap(&sent, 60), "{trouble:?}: {sent:?}");
        let accepted = receiver.accepted();
        assert!((1..=60).all(|seq| accepted.contains(&seq)), "{trouble:?}: {accepted:?}");
        assert!(receiver.with(|script| script.connected) >= 4, "{trouble:?}");
        assert!(running.status.snapshot().last_error.is_some());
        running.stop().await;
    }
}

#[tokio::test]
async fn after_a_failure_one_message_at_a_time_is_sent() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=20).await;
    let receiver = Receiver::default().with_actions(std::iter::repeat_n(retry(), 7));
    let running = fixture.run(&receiver, 0);
    running.until_at(20).await;
    let sent = receiver.with(|script| script.sent.clone());
    let expected: Vec<u64> = (1..=5).chain([1, 1]).chain(1..=20).collect();
    assert_eq!(sent, expected, "a window, twice one alone, and all once that is taken");
    running.stop().await;
}

#[tokio::test]
async fn refused_changes_become_dead_letters_that_can_be_replayed() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=20).await;
    let receiver = Receiver::default().with_actions([Action::Accept, refuse(), Action::Accept, refuse()]);
    let running = fixture.run(&receiver, 0);
    running.until_at(20).await;
    assert_eq!(running.status.snapshot().dead_letters, 2);
    let letters = fixture.journal.dead_letters(fixture.name.clone(), None, 10).await.unwrap();
    let seqs: Vec<_> = letters.iter().map(|letter| letter.letter.seq.0).collect();
    assert_eq!((seqs, letters[0].letter.reason.as_str()), (vec![4, 2], "too large"));
    let mut expected: Vec<_> = (1..=20).collect();
    expected.retain(|seq| *seq != 2 && *seq != 4);
    assert_eq!(receiver.accepted(), expected);

    // One of them is refused again, then both are accepted.
    receiver.with(|script| script.actions.push_back(refuse()));
    fixture
        .journal
        .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(fixture.name.clone(), None)])
        .await
        .unwrap();
    running.replays.notify_one();
    running.until("one is taken", || running.status.snapshot().dead_letters == 1).await;
    let left = fixture.journal.dead_letters(fixture.name.clone(), None, 10).await.unwrap();
    assert_eq!((left.len(), left[0].attempts, left[0].replay), (1, 2, false));
    fixture
        .journal
        .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(fixture.name.clone(), Some(left[0].id))])
        .await
        .unwrap();
    running.replays.notify_one();
    running.until("the other is taken", || running.status.snapshot().dead_letters == 0).await;
    assert_eq!(receiver.accepted()[18..], [4, 2]);
    assert_eq!(fixture.stored_cursor().await, 20);
    running.stop().await;
}

#[tokio::test]
async fn engine_waits_without_room_for_a_dead_letter() {
    let mut fixture = EngineFixture::new().await;
    fixture.max_dead_letters = 1;
    fixture.append("s", 1..=5).await;
    let receiver = Receiver::default().with_actions([refuse(), refuse(), refuse(), refuse(), refuse()]);
    let running = fixture.run(&receiver, 0);
    running.until("it takes again what it refused", || receiver.accepted().contains(&5)).await;
    running.until_at(5).await;
    let error = running.status.snapshot().last_error.unwrap().1;
    assert!(error.contains("it refused change 2 (too large)") && error.contains("replay or drop some"), "{error}");
    assert_eq!(running.status.snapshot().dead_letters, 1);
    running.stop().await;
}
