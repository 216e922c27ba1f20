//! Batches: their sizes, and how the engine splits those that a receiver does not accept.

use super::{DeliveryOutcome, EngineFixture, Receiver, is_without_gap};

fn batching(changes: usize, bytes: usize) -> Receiver {
    let receiver = Receiver::default();
    receiver.with(|script| script.batch = Some((changes, bytes)));
    receiver
}

#[tokio::test]
async fn batches_are_filled_to_the_change_limit() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=2500).await;
    let receiver = batching(1000, usize::MAX);
    let running = fixture.run(&receiver, 0);
    running.until_at(2500).await;
    let counts: Vec<_> = receiver.with(|script| script.sizes.iter().map(|(changes, _)| *changes).collect());
    assert_eq!(counts, [1000, 1000, 500]);
    running.stop().await;
}

#[tokio::test]
async fn batches_respect_the_byte_limit() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=300).await;
    let receiver = batching(1000, 20_000);
    let running = fixture.run(&receiver, 0);
    running.until_at(300).await;
    let sizes = receiver.with(|script| script.sizes.clone());
    assert!(sizes.iter().all(|(_, bytes)| *bytes <= 20_000), "{sizes:?}");
    assert!(sizes.iter().any(|(_, bytes)| *bytes > 18_000), "{sizes:?}");
    assert_eq!(receiver.accepted(), (1..=300).collect::<Vec<_>>());
    running.stop().await;

    // A change above the limit is sent alone.
    let receiver = batching(1000, 10);
    let running = fixture.run(&receiver, 0);
    running.until_at(300).await;
    assert!(receiver.with(|script| script.sizes.iter().all(|(changes, _)| *changes == 1)));
    running.stop().await;
}

#[tokio::test]
async fn batches_shrink_until_the_receiver_accepts_them() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=300).await;
    let receiver = batching(1000, usize::MAX);
    let too_large = DeliveryOutcome::TooLarge { reason: "413".to_owned() };
    receiver.with(|script| script.limit = Some((5000, too_large)));
    let running = fixture.run(&receiver, 0);
    running.until_at(300).await;
    let accepted = receiver.accepted();
    assert!(is_without_gap(&accepted, 300), "{accepted:?}");
    let sizes = receiver.with(|script| script.sizes.clone());
    let refused = sizes.iter().filter(|(_, bytes)| *bytes > 5000).count();
    assert!((1..=8).contains(&refused), "{sizes:?}");
    assert!(sizes.iter().any(|(changes, bytes)| *changes > 1 && *bytes <= 5000), "{sizes:?}");
    let status = running.status.snapshot();
    assert_eq!((status.dead_letters, status.last_error), (0, None), "no failure is told");
    running.stop().await;
}

#[tokio::test]
async fn changes_of_a_failed_batch_are_sent_one_by_one() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=40).await;
    let receiver = batching(20, usize::MAX);
    let bad_request = DeliveryOutcome::Retry { reason: "400".to_owned(), after: None };
    receiver.with(|script| script.limit = Some((1000, bad_request)));
    let running = fixture.run(&receiver, 0);
    running.until_at(40).await;
    let accepted = receiver.accepted();
    assert!(is_without_gap(&accepted, 40), "{accepted:?}");
    let counts: Vec<_> = receiver.with(|script| script.sizes.iter().map(|(changes, _)| *changes).collect());
    assert_eq!(counts[0], 20);
    let batches = counts.iter().filter(|changes| **changes == 20).count();
    assert_eq!(batches, 2, "a batch that failed is not tried again unchanged: {counts:?}");
    running.stop().await;
}
