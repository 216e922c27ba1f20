//! Subscriptions move between nodes: spread, handed over on a planned stop, taken over after a crash. Every receiver
//! gets each change in order; repeats are possible only after a crash.

use std::time::Duration;

use crate::support::{
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    nodes_fixture::{LEASE, OWN_DUTIES, SharedJournal, duties, until, until_spread},
    subscription_fixture::post,
    webhook_fixture::{are_in_order, webhook},
};

const SUBSCRIPTIONS: usize = 9;

/// Returns the messages to one subscription.
fn messages_to(receiver: &Receiver, number: usize) -> Vec<ReceivedRequest> {
    let path = format!("/in/{number}");
    receiver.requests().iter().filter(|request| request.path == path).cloned().collect()
}

/// Waits until every subscriber has the changes up to `last`.
async fn until_all_have(receiver: &Receiver, last: u64) {
    let began = std::time::Instant::now();
    loop {
        let have = (0..SUBSCRIPTIONS)
            .filter(|number| messages_to(receiver, *number).iter().any(|message| message.seq() == last));
        if have.count() == SUBSCRIPTIONS {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "change {last} has not reached all");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn check_order(receiver: &Receiver, last: u64, may_repeat: bool) {
    for number in 0..SUBSCRIPTIONS {
        let messages = messages_to(receiver, number);
        are_in_order(&messages, last);
        assert!(may_repeat || messages.len() as u64 == last, "subscription {number} has {} messages", messages.len());
    }
}

async fn post_all(node: &Gateway, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        post(node, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_spread_over_nodes_and_survive_the_loss_of_any() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let lines: String = (0..SUBSCRIPTIONS)
        .map(|number| webhook(&format!("s{number}"), &format!("{}/{number}", receiver.url()), ""))
        .collect();
    let journal = SharedJournal::new(&lines);
    let count = SUBSCRIPTIONS + OWN_DUTIES;
    let a = journal.node("a");
    until_spread(&journal, count, &["a"]).await;
    post_all(&a, 1..=10).await;
    until_all_have(&receiver, 10).await;

    // Nodes that join get their share.
    let (b, mut c) = (journal.node("b"), journal.node("c"));
    until_spread(&journal, count, &["a", "b", "c"]).await;
    post_all(&b, 11..=20).await;
    until_all_have(&receiver, 20).await;
    check_order(&receiver, 20, false);
    until("a node shows all duties", async || duties(&a).await.len() == count).await;

    // A planned stop hands over within a second, and repeats nothing.
    b.signal("TERM");
    let took = until_spread(&journal, count, &["a", "c"]).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    post_all(&c, 21..=30).await;
    until_all_have(&receiver, 30).await;
    check_order(&receiver, 30, false);
    assert!(b.stop().success());

    // After a crash the others wait for the end of the lease.
    c.kill();
    let took = until_spread(&journal, count, &["a"]).await;
    assert!(took <= LEASE + Duration::from_secs(1), "{took:?}");
    post_all(&a, 31..=40).await;
    until_all_have(&receiver, 40).await;
    check_order(&receiver, 40, true);
}
