//! Failures: how long they count, and what is shown meanwhile.

use std::time::Duration;

use super::{Deed, Outcome, Receiver, Running, State, SubscriptionWrite, World, refuse, retry};

#[tokio::test]
async fn a_receiver_that_hangs_is_not_shown_as_running() {
    let world = World::new().await;
    world.append(1..=3).await;
    let receiver = Receiver::default().will(std::iter::repeat_n(Deed::Hang, 8));
    let running = world.run(&receiver, 0);
    running.until("it has failed", || running.status.snapshot().last_error.is_some()).await;
    running
        .until("it has taken something", || {
            let shown = running.status.snapshot();
            let has_taken = !receiver.taken().is_empty();
            assert!(has_taken || shown.state != State::Running, "{shown:?}");
            has_taken
        })
        .await;
    running.until("it runs", || running.status.snapshot().state == State::Running).await;
    running.until_at(3).await;
    running.stop().await;
}

#[tokio::test]
async fn a_connection_that_stands_makes_failures_forgotten() {
    let mut world = World::new().await;
    world.stable = Duration::from_millis(50);
    let receiver = Receiver::default();
    receiver.with(|script| script.refuse_to_connect = 4);
    let running = world.run(&receiver, 0);
    running.until("it runs", || running.status.snapshot().state == State::Running).await;
    running.until("failures are forgotten", || running.status.snapshot().failures == 0).await;
    assert!(running.status.snapshot().last_error.is_some());
    running.stop().await;
}

/// Waits until a receiver has failed once and then given this answer; gives the failures that are shown then.
async fn failures_after(world: &World, answer: Outcome, holds: impl Fn(&Running) -> bool) -> u32 {
    let receiver = Receiver::default().will([retry(), retry(), retry(), retry(), retry(), Deed::Answer(answer)]);
    receiver.clone().will(std::iter::repeat_n(Deed::Hang, 1000));
    let running = world.run(&receiver, 0);
    running.until("it has answered", || holds(&running)).await;
    let failures = running.status.snapshot().failures;
    running.stop.cancel();
    running.engine.abort();
    failures
}

#[tokio::test]
async fn any_answer_that_settles_a_message_ends_a_time_of_failures() {
    let world = World::new().await;
    world.append(1..=1).await;
    let refused = Outcome::Refused { reason: "422".to_owned() };
    let failures = failures_after(&world, refused, |running| running.status.snapshot().dead_letters == 1).await;
    assert_eq!(failures, 0, "a dead letter");
    let counted = |running: &Running| running.status.snapshot().unroutable == 1;
    assert_eq!(failures_after(&world, Outcome::Unroutable, counted).await, 0, "a counted message");
}

#[tokio::test]
async fn a_replayed_letter_that_is_not_taken_holds_nothing_up() {
    let world = World::new().await;
    world.append(1..=3).await;
    for trouble in [retry(), Deed::Hang, Deed::Answer(Outcome::TooLarge { reason: "busy".to_owned() })] {
        let hangs = matches!(trouble, Deed::Hang);
        let receiver = Receiver::default().will([Deed::Take, refuse()]);
        let running = world.run(&receiver, 0);
        let head = world.journal.head().0;
        running.until_at(head).await;

        receiver.with(|script| script.deeds.push_back(trouble));
        world
            .journal
            .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(world.name.clone(), None)])
            .await
            .unwrap();
        running.replays.notify_one();
        running.until("the letter is sent", || receiver.with(|script| script.sent.last() == Some(&2))).await;
        world.append(head + 1..=head + 5).await;
        running.until_at(head + 5).await;
        let shown = running.status.snapshot();
        assert_eq!((shown.failures, shown.last_error, shown.dead_letters), (0, None, 1));
        let letters = world.journal.dead_letters(world.name.clone(), None, 10).await.unwrap();
        assert_eq!((letters.len(), letters[0].attempts, letters[0].replay), (1, 2, false));
        let reason = if hangs { "confirmed nothing" } else { "busy" };
        assert!(letters[0].letter.reason.contains(reason), "{}", letters[0].letter.reason);
        running.stop().await;
        world
            .journal
            .write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(world.name.clone(), None)])
            .await
            .unwrap();
    }
}
