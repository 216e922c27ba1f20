//! Failures: how long they count, and the status shown meanwhile.

use std::time::Duration;

use super::{
    Action, DeliveryOutcome, EngineFixture, Receiver, SubscriptionState, SubscriptionWrite, fixture::RunningEngine,
    refuse, retry,
};

#[tokio::test]
async fn hanging_receiver_is_not_shown_as_running() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=3).await;
    let receiver = Receiver::default().with_actions(std::iter::repeat_n(Action::Hang, 8));
    let running = fixture.run(&receiver, 0);
    running.until("it has failed", || running.status.snapshot().last_error.is_some()).await;
    running
        .until("it has taken something", || {
            let status = running.status.snapshot();
            let has_accepted = !receiver.accepted().is_empty();
            assert!(has_accepted || status.state != SubscriptionState::Running, "{status:?}");
            has_accepted
        })
        .await;
    running.until("it runs", || running.status.snapshot().state == SubscriptionState::Running).await;
    running.until_at(3).await;
    running.stop().await;
}

#[tokio::test]
async fn stable_connection_resets_failures() {
    let mut fixture = EngineFixture::new().await;
    fixture.stable_after = Duration::from_millis(50);
    let receiver = Receiver::default();
    receiver.with(|script| script.refuse_to_connect = 4);
    let running = fixture.run(&receiver, 0);
    running.until("it runs", || running.status.snapshot().state == SubscriptionState::Running).await;
    running.until("failures are forgotten", || running.status.snapshot().failures == 0).await;
    assert!(running.status.snapshot().last_error.is_some());
    running.stop().await;
}

/// Waits until a receiver has failed and then given this outcome; returns the failure count shown then.
async fn failures_after(
    fixture: &EngineFixture,
    answer: DeliveryOutcome,
    holds: impl Fn(&RunningEngine) -> bool,
) -> u32 {
    let receiver =
        Receiver::default().with_actions([retry(), retry(), retry(), retry(), retry(), Action::Respond(answer)]);
    receiver.clone().with_actions(std::iter::repeat_n(Action::Hang, 1000));
    let running = fixture.run(&receiver, 0);
    running.until("it has answered", || holds(&running)).await;
    let failures = running.status.snapshot().failures;
    running.stop.cancel();
    running.engine.abort();
    failures
}

#[tokio::test]
async fn settled_message_resets_failures() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=1).await;
    let refused = DeliveryOutcome::Refused { reason: "422".to_owned() };
    let failures = failures_after(&fixture, refused, |running| running.status.snapshot().dead_letters == 1).await;
    assert_eq!(failures, 0, "a dead letter");
    let counted = |running: &RunningEngine| running.status.snapshot().unroutable == 1;
    assert_eq!(failures_after(&fixture, DeliveryOutcome::Unroutable, counted).await, 0, "a counted message");
}

#[tokio::test]
async fn failed_replay_does_not_delay_changes() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=3).await;
    for trouble in [retry(), Action::Hang, Action::Respond(DeliveryOutcome::TooLarge { reason: "busy".to_owned() })] {
        let hangs = matches!(trouble, Action::Hang);
        let receiver = Receiver::default().with_actions([Action::Accept, refuse()]);
        let running = fixture.run(&receiver, 0);
        let head = fixture.journal.head().0;
        running.until_at(head).await;

        receiver.with(|script| script.actions.push_back(trouble));
        fixture
            .journal
            .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(fixture.name.clone(), None)])
            .await
            .unwrap();
        running.replays.notify_one();
        running.until("the letter is sent", || receiver.with(|script| script.sent.last() == Some(&2))).await;
        fixture.append("s", head + 1..=head + 5).await;
        running.until_at(head + 5).await;
        let status = running.status.snapshot();
        assert_eq!((status.failures, status.last_error, status.dead_letters), (0, None, 1));
        let letters = fixture.journal.dead_letters(fixture.name.clone(), None, 10).await.unwrap();
        assert_eq!((letters.len(), letters[0].attempts, letters[0].replay), (1, 2, false));
        let reason = if hangs { "confirmed nothing" } else { "busy" };
        assert!(letters[0].letter.reason.contains(reason), "{}", letters[0].letter.reason);
        running.stop().await;
        fixture
            .journal
            .write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(fixture.name.clone(), None)])
            .await
            .unwrap();
    }
}
