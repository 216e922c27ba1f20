//! The ends of a session: what ends it, and what it leaves behind.

use serde_json::json;

use super::{Deed, End, Outcome, Receiver, Seq, World};

#[tokio::test]
async fn a_receiver_that_wants_no_more_ends_it() {
    let world = World::new().await;
    world.append(1..=5).await;
    let gone = Deed::Answer(Outcome::Gone { reason: "410".to_owned() });
    let receiver = Receiver::default().will([Deed::Take, gone]);
    let running = world.run(&receiver, 0);
    assert!(matches!(running.engine.await.unwrap(), End::Gone(reason) if reason == "410"));
    assert!(world.stored_cursor().await <= 1);
}

#[tokio::test]
async fn a_cursor_that_is_no_longer_kept_stops_it() {
    let world = World::new().await;
    world.append(1..=30).await;
    world.journal.prune(Seq(20), 100).await.unwrap();
    let receiver = Receiver::default();
    let running = world.run(&receiver, 3);
    let End::FellBehind(error) = running.engine.await.unwrap() else { panic!("it goes on") };
    assert!(error.to_string().contains("the oldest available change has the number 20"), "{error}");
    assert_eq!(receiver.taken(), [] as [u64; 0]);
}

#[tokio::test]
async fn what_the_filter_passes_over_moves_the_cursor_too() {
    let mut world = World::new().await;
    world.filter = serde_json::from_value(json!({ "sources": ["other"] })).unwrap();
    world.append(1..=600).await;
    let receiver = Receiver::default();
    let running = world.run(&receiver, 0);
    running.until_at(600).await;
    assert_eq!((receiver.taken(), world.stored_cursor().await), (vec![], 600));
    running.stop().await;
}

#[tokio::test]
async fn stopping_waits_for_what_is_on_its_way_and_sends_nothing_more() {
    let world = World::new().await;
    world.append(1..=3).await;
    let receiver = Receiver::default();
    let running = world.run(&receiver, 0);
    running.until_at(3).await;
    receiver.with(|script| script.held = true);
    world.append(4..=100).await;
    running.until("its window is full", || receiver.with(|script| script.sent.len() == 8)).await;
    // It holds no more than its window, whatever waits in the journal.
    tokio::task::yield_now().await;
    assert_eq!(receiver.with(|script| script.sent.len()), 8);
    assert!(matches!(running.stop().await, End::Stopped));
    assert_eq!(world.stored_cursor().await, 3);
}
