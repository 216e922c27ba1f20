//! Nodes whose clocks are an hour ahead and an hour behind: they keep their duties, give correct numbers, and show the
//! time of the database.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::support::{
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    journal_fixture::post,
    nodes_fixture::{LEASE, OWN_DUTIES, SharedJournal, until, until_spread},
    webhook_fixture::{are_in_order, webhook},
};

const SUBSCRIPTIONS: usize = 6;

const HOUR: i64 = 3600;

/// Returns how many seconds the clock of a node is ahead of the clock of the test.
async fn seconds_ahead(node: &Gateway) -> i64 {
    let response = node.http.get(format!("{}/readyz", node.url)).send().await.unwrap();
    let date = DateTime::parse_from_rfc2822(response.headers()["date"].to_str().unwrap()).unwrap();
    (date.to_utc() - Utc::now()).num_seconds()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_clocks_are_an_hour_off_keep_their_duties_and_agree() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let subscription = |number| webhook(&format!("s{number}"), &format!("{}/{number}", receiver.url()), "");
    let journal = SharedJournal::new(&(0..SUBSCRIPTIONS).map(subscription).collect::<String>());
    let duties = SUBSCRIPTIONS + OWN_DUTIES;
    let right = journal.node("right");
    let mut ahead = journal.node_with_clock("ahead", HOUR);
    let behind = journal.node_with_clock("behind", -HOUR);
    for (node, expected) in [(&right, 0), (&ahead, HOUR), (&behind, -HOUR)] {
        let seconds = seconds_ahead(node).await;
        assert!((seconds - expected).abs() < 30, "{seconds} instead of {expected}");
    }

    // Each node renews its lease, and keeps its duties beyond it.
    until_spread(&journal, duties, &["right", "ahead", "behind"]).await;
    let terms = || journal.query("SELECT string_agg(name || term, ' ' ORDER BY name) FROM duties");
    let (taken, since) = (terms(), journal.query("SELECT clock_timestamp()"));
    let mut numbers = Vec::new();
    for number in 0..30 {
        numbers.push(post([&right, &ahead, &behind][number % 3], number as u64).await);
    }
    let renewed =
        format!("SELECT bool_and(renewed > '{since}'::timestamptz + interval '{} s') FROM nodes", 2 * LEASE.as_secs());
    until("all leases are renewed", async || journal.query(&renewed) == "t").await;
    assert_eq!(terms(), taken, "no duty has moved");
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>());

    // All nodes show the same, with the time of the database.
    let changes = right.changes().await;
    for node in [&ahead, &behind] {
        until("the node has every change", async || node.changes().await == changes).await;
    }
    let received: Vec<DateTime<Utc>> =
        changes.iter().map(|change| change["received"].as_str().unwrap().parse().unwrap()).collect();
    assert!(received.is_sorted(), "{received:?}");
    assert!(received.iter().all(|at| (Utc::now() - at).abs() < TimeDelta::minutes(5)), "{received:?}");

    // The lease of a killed node ends in time for the others.
    ahead.kill();
    let took = until_spread(&journal, duties, &["right", "behind"]).await;
    assert!(took <= LEASE + Duration::from_secs(1), "{took:?}");
    for number in 30..40 {
        assert_eq!(post([&right, &behind][number % 2], number as u64).await, number as u64 + 1);
    }
    for number in 0..SUBSCRIPTIONS {
        let path = format!("/in/{number}");
        let messages = || {
            let requests = receiver.requests();
            requests.iter().filter(|request| request.path == path).cloned().collect::<Vec<_>>()
        };
        until("every change is delivered", async || messages().iter().any(|message| message.seq() == 40)).await;
        are_in_order(&messages(), 40);
    }
    assert!(right.stop().success() && behind.stop().success());
}
