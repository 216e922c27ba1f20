//! Messages of several changes: how large they are, and what becomes of those that the receiver finds too large.

use super::{Outcome, Receiver, World, is_without_gap};

fn batching(changes: usize, bytes: usize) -> Receiver {
    let receiver = Receiver::default();
    receiver.with(|script| script.batch = Some((changes, bytes)));
    receiver
}

#[tokio::test]
async fn batches_have_as_many_changes_as_they_may() {
    let world = World::new().await;
    world.append(1..=2500).await;
    let receiver = batching(1000, usize::MAX);
    let running = world.run(&receiver, 0);
    running.until_at(2500).await;
    let counts: Vec<_> = receiver.with(|script| script.sizes.iter().map(|(changes, _)| *changes).collect());
    assert_eq!(counts, [1000, 1000, 500]);
    running.stop().await;
}

#[tokio::test]
async fn batches_end_before_they_have_too_many_bytes() {
    let world = World::new().await;
    world.append(1..=300).await;
    let receiver = batching(1000, 20_000);
    let running = world.run(&receiver, 0);
    running.until_at(300).await;
    let sizes = receiver.with(|script| script.sizes.clone());
    assert!(sizes.iter().all(|(_, bytes)| *bytes <= 20_000), "{sizes:?}");
    assert!(sizes.iter().any(|(_, bytes)| *bytes > 18_000), "{sizes:?}");
    assert_eq!(receiver.taken(), (1..=300).collect::<Vec<_>>());
    running.stop().await;

    // One that is larger by itself goes alone.
    let receiver = batching(1000, 10);
    let running = world.run(&receiver, 0);
    running.until_at(300).await;
    assert!(receiver.with(|script| script.sizes.iter().all(|(changes, _)| *changes == 1)));
    running.stop().await;
}

#[tokio::test]
async fn batches_become_smaller_until_the_receiver_accepts_them() {
    let world = World::new().await;
    world.append(1..=300).await;
    let receiver = batching(1000, usize::MAX);
    let too_large = Outcome::TooLarge { reason: "413".to_owned() };
    receiver.with(|script| script.limit = Some((5000, too_large)));
    let running = world.run(&receiver, 0);
    running.until_at(300).await;
    let taken = receiver.taken();
    assert!(is_without_gap(&taken, 300), "{taken:?}");
    let sizes = receiver.with(|script| script.sizes.clone());
    let refused = sizes.iter().filter(|(_, bytes)| *bytes > 5000).count();
    assert!((1..=8).contains(&refused), "{sizes:?}");
    assert!(sizes.iter().any(|(changes, bytes)| *changes > 1 && *bytes <= 5000), "{sizes:?}");
    let shown = running.status.snapshot();
    assert_eq!((shown.dead_letters, shown.last_error), (0, None), "no failure is told");
    running.stop().await;
}

#[tokio::test]
async fn changes_of_a_batch_that_failed_go_alone() {
    let world = World::new().await;
    world.append(1..=40).await;
    let receiver = batching(20, usize::MAX);
    let bad_request = Outcome::Retry { reason: "400".to_owned(), after: None };
    receiver.with(|script| script.limit = Some((1000, bad_request)));
    let running = world.run(&receiver, 0);
    running.until_at(40).await;
    let taken = receiver.taken();
    assert!(is_without_gap(&taken, 40), "{taken:?}");
    let counts: Vec<_> = receiver.with(|script| script.sizes.iter().map(|(changes, _)| *changes).collect());
    assert_eq!(counts[0], 20);
    let batches = counts.iter().filter(|changes| **changes == 20).count();
    assert_eq!(batches, 2, "a batch that failed is not tried again unchanged: {counts:?}");
    running.stop().await;
}
