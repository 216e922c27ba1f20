//! How an engine ends, and the cursor that it leaves.

use serde_json::json;

use super::{Action, DeliveryOutcome, EngineFixture, Exit, Receiver};
use crate::model::Seq;

#[tokio::test]
async fn gone_receiver_ends_the_engine() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=5).await;
    let gone = Action::Respond(DeliveryOutcome::Gone { reason: "410".to_owned() });
    let receiver = Receiver::default().with_actions([Action::Accept, gone]);
    let running = fixture.run(&receiver, 0);
    assert!(matches!(running.engine.await.unwrap(), Exit::Gone(reason) if reason == "410"));
    assert!(fixture.stored_cursor().await <= 1);
}

#[tokio::test]
async fn pruned_cursor_ends_the_engine() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=30).await;
    fixture.journal.prune(Seq(20), 100).await.unwrap();
    let receiver = Receiver::default();
    let running = fixture.run(&receiver, 3);
    let Exit::FellBehind(error) = running.engine.await.unwrap() else { panic!("it goes on") };
    assert!(error.to_string().contains("the oldest available change has the number 20"), "{error}");
    assert_eq!(receiver.accepted(), [] as [u64; 0]);
}

#[tokio::test]
async fn filtered_changes_move_the_cursor() {
    let mut fixture = EngineFixture::new().await;
    fixture.filter = serde_json::from_value(json!({ "sources": ["other"] })).unwrap();
    fixture.append("s", 1..=600).await;
    let receiver = Receiver::default();
    let running = fixture.run(&receiver, 0);
    running.until_at(600).await;
    assert_eq!((receiver.accepted(), fixture.stored_cursor().await), (vec![], 600));
    running.stop().await;
}

#[tokio::test]
async fn stopping_drains_in_flight_messages() {
    let fixture = EngineFixture::new().await;
    fixture.append("s", 1..=3).await;
    let receiver = Receiver::default();
    let running = fixture.run(&receiver, 0);
    running.until_at(3).await;
    receiver.with(|script| script.hangs = true);
    fixture.append("s", 4..=100).await;
    running.until("its window is full", || receiver.with(|script| script.sent.len() == 8)).await;
    // The window stays full, whatever the journal contains.
    tokio::task::yield_now().await;
    assert_eq!(receiver.with(|script| script.sent.len()), 8);
    assert!(matches!(running.stop().await, Exit::Stopped));
    assert_eq!(fixture.stored_cursor().await, 3);
}
