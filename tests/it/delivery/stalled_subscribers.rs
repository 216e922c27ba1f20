//! Four subscribers stall, each in its own way, while twenty thousand changes go to a healthy one. It receives
//! all of them, and changes that wait for the others are not in memory. The bench `stalled` compares its
//! throughput with that of a gateway without stalled subscribers.

use std::{fs, net::TcpListener};

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, event},
    rabbitmq::Broker,
    subscription_fixture::{index, seq},
};

const CHANGES: u64 = 20_000;

/// Maximum growth of memory while the changes wait, in MB. The changes have more than 80 MB, and their messages
/// as much again.
const BOUND: u64 = 64;

/// Returns the resident memory of the gateway in kB.
fn resident(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until the healthy subscriber has reached `cursor`; returns the peak memory until then.
async fn until_at(gateway: &Gateway, cursor: u64) -> u64 {
    let most = std::cell::Cell::new(0);
    gateway
        .until("well", "the healthy one has all", |status_json| {
            most.set(most.get().max(resident(gateway)));
            status_json["cursor"].as_u64().unwrap() >= cursor
        })
        .await;
    most.get()
}

#[tokio::test]
async fn stalled_subscribers_delay_nobody_and_use_bounded_memory() {
    let starved = Broker::exclusive();
    let broker = Broker::shared();
    let (well, full) = (broker.vhost(), broker.vhost());
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let limit = r#"{"max-length":1,"overflow":"reject-publish"}"#;
    broker.ctl(&["set_policy", "--vhost", &full.name, "full", ".*", limit, "--apply-to", "queues"]);
    // Four full windows are well below the bound, even if all subscribers retry at the same moment.
    let window = "window_bytes = 1048576";
    let named =
        |name: &str, url: &str| index(url, window).replace("subscriptions.index", &format!("subscriptions.{name}"));
    let source = format!(
        "[sources.events]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{}\"\nexchange = \"events\"\n\
         queue = \"tidings.events\"\nqueue_type = \"classic\"\n",
        well.url()
    );
    let folder = tempfile::tempdir().unwrap();
    let silent = format!("amqp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let subscriptions = [
        named("well", &well.url()),
        named("silent", &silent),
        named("starved", &starved.vhost().url()),
        named("full", &full.url()),
    ];
    let config = configuration(folder.path(), &(source + &subscriptions.concat()));
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    gateway.until("starved", "it is connected", |status_json| status_json["state"] == "running").await;
    starved.starve();

    let client = well.client().await;
    client.exchange("events").await;
    client.queue("tidings.events", "classic").await;
    client.bind("tidings.events", "events", "#").await;
    let persistent = lapin::BasicProperties::default().with_delivery_mode(2);
    let large = |number| {
        let mut event = event(number);
        event["description"] = json!("x".repeat(4000));
        event.to_string()
    };
    let events = |numbers: std::ops::RangeInclusive<u64>| numbers.map(large);
    client.publish_all("events", "a", events(1..=CHANGES / 10), &persistent).await;
    let before = until_at(&gateway, CHANGES / 10).await;
    client.publish_all("events", "a", events(CHANGES / 10 + 1..=CHANGES), &persistent).await;
    let most = until_at(&gateway, CHANGES).await;
    assert!(most < before + BOUND * 1024, "{before} kB have become {most} kB");

    let received = client.read("index", usize::try_from(CHANGES).unwrap()).await;
    assert!(received.iter().map(seq).eq(1..=CHANGES));
    for (name, largest) in [("silent", 0), ("starved", 2000), ("full", 2000)] {
        let (_, status_json) = gateway.ask("GET", &format!("/subscriptions/{name}"), None).await;
        assert!(status_json["cursor"].as_u64().unwrap() <= largest, "{status_json:#}");
        assert!(status_json["lag"]["changes"].as_u64().unwrap() >= CHANGES - largest, "{status_json:#}");
    }
    starved.feed();
}
