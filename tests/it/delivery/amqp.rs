//! AMQP delivery through the real program and a real broker: changes arrive in a queue as
//! content-change-message 0.1, in order, across failures of the broker and the gateway.

use std::collections::BTreeMap;

use lapin::message::Delivery;
use serde_json::json;

use crate::support::{
    rabbitmq::Broker,
    subscription_fixture::{event, gateway, index, post, post_event, seq, text},
    xmllint,
};

/// Panics unless the messages are complete and in order, apart from repeats.
fn is_in_order(messages: &[Delivery], last: u64) {
    let mut newest = 0;
    let mut ids = BTreeMap::new();
    for message in messages {
        let (seq, id) = (seq(message), text(message.properties.message_id().as_ref()).to_owned());
        assert_eq!(ids.entry(seq).or_insert_with(|| id.clone()), &id, "a repeat has the same identifier");
        assert!(seq <= newest + 1, "{seq} comes after {newest}");
        newest = newest.max(seq);
    }
    assert_eq!(newest, last);
    let mut unique: Vec<_> = ids.values().collect();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "each change has an identifier of its own");
}

/// Consumes messages until the one with that number has arrived.
async fn read_up_to(client: &crate::support::rabbitmq::Client, queue: &str, last: u64) -> Vec<Delivery> {
    let mut messages: Vec<Delivery> = Vec::new();
    while messages.iter().all(|message| seq(message) != last) {
        let waiting = client.waiting(queue).await;
        messages.extend(client.read(queue, waiting as usize).await);
    }
    messages
}

#[tokio::test]
async fn messages_arrive_in_order_with_the_documented_properties() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&vhost.url(), ""));
    for number in 1..=30 {
        post(&gateway, number).await;
    }
    let mixed = json!({
        "object": "http://h.example/objects/1",
        "items": [{ "uri": "http://h.example/objects/1/item", "change": "DELETE" },
                  { "uri": "http://h.example/objects/1/other", "change": "ADD", "stateAfter": "INACTIVE" }]
    });
    post_event(&gateway, &mixed).await;
    gateway.until_at("index", 31).await;

    let client = vhost.client().await;
    let messages = client.read("index", 31).await;
    is_in_order(&messages, 31);
    for (message, change) in messages.iter().zip(gateway.changes().await) {
        let properties = &message.properties;
        assert_eq!(text(properties.message_id().as_ref()), change["id"].as_str().unwrap());
        assert_eq!(text(properties.content_type().as_ref()), "application/atom+xml;type=feed");
        assert_eq!(text(properties.kind().as_ref()), "content-change");
        assert_eq!(text(properties.app_id().as_ref()), "tidings");
        assert_eq!(properties.delivery_mode(), &Some(2));
        assert!(properties.timestamp().is_some());
        let headers = properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers["object"].as_long_string().unwrap().to_string(), change["object"].as_str().unwrap());
        assert_eq!(headers["source"].as_long_string().unwrap().to_string(), "content-change");
        let key = if seq(message) == 31 { "content.mixed.content-change" } else { "content.add.content-change" };
        assert_eq!(message.routing_key.as_str(), key);
    }
    let file = |(number, message): (usize, &Delivery)| {
        let path = folder.path().join(format!("{number}.xml"));
        std::fs::write(&path, &message.data).unwrap();
        path
    };
    let files: Vec<_> = messages.iter().enumerate().map(file).collect();
    xmllint::assert_valid("content-change-message-0.1.xsd", &files);
    let status_json = gateway.until("index", "it is idle", |status_json| status_json["lag"]["changes"] == 0).await;
    assert_eq!(
        (&status_json["state"], &status_json["delivered"], &status_json["deadLetters"]),
        (&json!("running"), &json!(31), &json!(0))
    );
    let url = status_json["definition"]["url"].as_str().unwrap();
    assert!(
        url.starts_with("amqp://guest@127.0.0.1:") && !status_json.to_string().contains("guest:guest"),
        "{status_json:#}"
    );
}

#[tokio::test]
async fn broker_kill_loses_nothing() {
    let mut broker = Broker::exclusive();
    let vhost = broker.vhost();
    let (url, name) = (vhost.url(), vhost.name.clone());
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&url, ""));
    let mut posted = 0;
    for round in 0..2 {
        for _ in 0..60 {
            posted += 1;
            post(&gateway, posted).await;
            if posted % 60 == 30 {
                broker.kill();
            }
        }
        let status_json = gateway.until("index", "it notices", |status_json| status_json["state"] == "retrying").await;
        assert!(
            status_json["lastError"]["reason"].is_string() && status_json["nextAttempt"].is_string(),
            "{round}: {status_json:#}"
        );
        broker.start_again();
        gateway.until_at("index", posted).await;
    }
    let client =
        crate::support::rabbitmq::Client::connect(&format!("amqp://guest:guest@127.0.0.1:{}/{name}", broker.port))
            .await;
    is_in_order(&read_up_to(&client, "index", posted).await, posted);
}

#[tokio::test]
async fn gateway_kill_repeats_messages_under_the_same_ids() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = index(&vhost.url(), "");
    let mut posted = 0;
    for _ in 0..3 {
        let mut gateway = gateway(folder.path(), &lines);
        for _ in 0..40 {
            posted += 1;
            post(&gateway, posted).await;
        }
        gateway.kill();
    }
    let gateway = gateway(folder.path(), &lines);
    gateway.until_at("index", posted).await;
    let client = vhost.client().await;
    is_in_order(&read_up_to(&client, "index", posted).await, posted);
    assert!(gateway.stop().success());

    // A clean stop stores the cursor, so no message is repeated.
    let left = client.waiting("index").await;
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &lines);
    post(&gateway, posted + 1).await;
    gateway.until_at("index", posted + 1).await;
    assert_eq!(seq(&client.read("index", 1 + left as usize).await[left as usize]), posted + 1);
}

#[tokio::test]
async fn unroutable_messages_wait_or_are_counted() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let unbound = |name: &str, unroutable: &str| {
        format!(
            "[subscriptions.{name}]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{}\"\nexchange = \"{name}\"\n\
             unroutable = \"{unroutable}\"\n",
            vhost.url()
        )
    };
    let gateway = gateway(folder.path(), &(unbound("holds", "hold") + &unbound("counts", "count")));
    for number in 1..=5 {
        post(&gateway, number).await;
    }
    let counts = gateway.until_at("counts", 5).await;
    assert_eq!((&counts["unroutable"], &counts["delivered"]), (&json!(5), &json!(0)));
    let holds = gateway.until("holds", "it waits", |status_json| status_json["state"] == "retrying").await;
    let reason = holds["lastError"]["reason"].as_str().unwrap();
    assert!(reason.contains("it reached no queue") && reason.contains("unroutable = \"count\""), "{reason}");
    assert_eq!(holds["cursor"], 0);

    let client = vhost.client().await;
    client.queue("late", "quorum").await;
    client.bind("late", "holds", "#").await;
    gateway.until_at("holds", 5).await;
    is_in_order(&client.read("late", 5).await, 5);
}

#[tokio::test]
async fn message_refused_by_the_broker_becomes_a_dead_letter() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let more = "max_message_bytes = 20000";
    let gateway = gateway(folder.path(), &index(&vhost.url(), more));
    let large = |number: u64| {
        let mut event = event(number);
        let item = |at: u64| json!({ "uri": format!("http://h.example/{number}/{at}"), "change": "ADD" });
        event["items"] = (0..100).map(item).collect();
        event
    };
    post(&gateway, 1).await;
    post_event(&gateway, &large(2)).await;
    post(&gateway, 3).await;
    let status_json = gateway.until_at("index", 3).await;
    assert_eq!(status_json["deadLetters"], 1);
    let client = vhost.client().await;
    assert_eq!(client.read("index", 2).await.iter().map(seq).collect::<Vec<_>>(), [1, 3]);

    let path = "/subscriptions/index/dead-letters";
    let (_, page) = gateway.ask("GET", path, None).await;
    let letter = &page["deadLetters"][0];
    assert_eq!((&letter["seq"], &letter["attempts"]), (&json!(2), &json!(1)));
    assert!(letter["reason"].as_str().unwrap().contains("the maximum is 20000"), "{letter}");
    let one = format!("{path}/{}", letter["id"]);
    let (_, letter) = gateway.ask("GET", &one, None).await;
    assert_eq!(letter["change"]["items"].as_array().unwrap().len(), 100);

    // A replay under the same limit is refused again.
    assert_eq!(gateway.ask("POST", &format!("{one}/replay"), None).await.0, 202);
    let began = std::time::Instant::now();
    while gateway.ask("GET", &one, None).await.1["attempts"] != 2 {
        assert!(began.elapsed() < crate::support::gateway::PATIENCE, "it is not tried again");
    }
    // With a larger limit the dead letter is accepted; later changes are not repeated.
    assert!(gateway.stop().success());
    let gateway = crate::support::subscription_fixture::gateway(folder.path(), &index(&vhost.url(), ""));
    assert_eq!(gateway.ask("POST", &format!("{path}/replay"), None).await, (202, json!({ "affected": 1 })));
    gateway.until("index", "the dead letter is accepted", |status_json| status_json["deadLetters"] == 0).await;
    let replayed = client.read("index", 1).await;
    assert_eq!(seq(&replayed[0]), 2);
    assert_eq!(client.waiting("index").await, 0);
    assert_eq!(gateway.ask("GET", &one, None).await.0, 404);
}

#[tokio::test]
async fn message_size_limit_of_the_broker_is_learned() {
    let broker = Broker::exclusive();
    let usual = broker.ctl(&["eval", "element(2, application:get_env(rabbit, max_message_size))."]);
    broker.ctl(&["eval", "application:set_env(rabbit, max_message_size, 20000)."]);
    let vhost = broker.vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&vhost.url(), ""));
    let mut large = event(2);
    let item = |at: u64| json!({ "uri": format!("http://h.example/2/{at}"), "change": "ADD" });
    large["items"] = (0..100).map(item).collect();
    post(&gateway, 1).await;
    post_event(&gateway, &large).await;
    post(&gateway, 3).await;
    let status_json = gateway.until_at("index", 3).await;
    assert_eq!(status_json["deadLetters"], 1, "{status_json:#}");
    let client = vhost.client().await;
    let seqs: Vec<_> = read_up_to(&client, "index", 3).await.iter().map(seq).collect();
    assert!(!seqs.contains(&2) && seqs.contains(&1), "{seqs:?}");
    // The next test gets the broker.
    broker.ctl(&["eval", &format!("application:set_env(rabbit, max_message_size, {}).", usual.trim())]);
}

#[tokio::test]
async fn stalled_broker_delays_no_other_subscription() {
    let broker = Broker::exclusive();
    let starved = broker.vhost();
    let well = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let second = index(&well.url(), "").replace("subscriptions.index", "subscriptions.well");
    let first = index(&starved.url(), "confirm_seconds = 2");
    let gateway = gateway(folder.path(), &(first + &second));
    post(&gateway, 1).await;
    gateway.until_at("index", 1).await;
    gateway.until_at("well", 1).await;
    broker.starve();
    for number in 2..=400 {
        post(&gateway, number).await;
    }
    gateway.until_at("well", 400).await;
    let stalled = gateway.until("index", "it notices", |status_json| status_json["state"] == "retrying").await;
    assert!(stalled["cursor"].as_u64().unwrap() < 400, "{stalled:#}");
    assert!(stalled["lag"]["changes"].as_u64().unwrap() > 0 && stalled["lag"]["seconds"].as_f64().unwrap() > 0.0);
    broker.feed();
    gateway.until_at("index", 400).await;
    is_in_order(&read_up_to(&starved.client().await, "index", 400).await, 400);
}

#[tokio::test]
async fn visibility_lets_an_indexer_work_without_state() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let lines = index(&vhost.url(), "format = \"json\"\nfilter = { visibility = true, media_types = [\"image/*\"] }");
    let gateway = gateway(folder.path(), &lines);
    let event_with = |fields: serde_json::Value| {
        let mut item = json!({ "uri": "http://h.example/objects/1/item" });
        item.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "object": "http://h.example/objects/1", "items": [item] })
    };
    let content = json!({ "url": "http://h.example/objects/1/item?v=1", "mediaType": "image/png" });
    for fields in [
        json!({ "change": "ADD", "stateAfter": "INACTIVE", "content": content }),
        json!({ "stateAfter": "ACTIVE" }),
        json!({ "stateAfter": "INACTIVE" }),
        json!({ "stateAfter": "DELETED" }),
        json!({ "change": "DELETE" }),
    ] {
        post_event(&gateway, &event_with(fields)).await;
    }
    gateway.until_at("index", 5).await;
    let client = vhost.client().await;
    let messages = client.read("index", 2).await;
    assert_eq!(client.waiting("index").await, 0);
    let items: Vec<serde_json::Value> = messages
        .iter()
        .map(|message| serde_json::from_slice::<serde_json::Value>(&message.data).unwrap()["items"][0].clone())
        .collect();
    assert_eq!((&items[0]["change"], &items[0]["content"]), (&json!("ADD"), &content));
    assert_eq!((&items[1]["change"], &items[1]["stateAfter"]), (&json!("DELETE"), &json!("INACTIVE")));
    let keys: Vec<_> = messages.iter().map(|message| message.routing_key.to_string()).collect();
    assert_eq!(keys, ["content.add.content-change", "content.delete.content-change"]);

    // The feed with the same filter has the same changes.
    let feed = gateway.http.get(format!("{}/feed?visibility=true", gateway.url)).send().await.unwrap();
    let feed = feed.text().await.unwrap();
    assert_eq!(feed.matches("<entry>").count(), 2, "{feed}");
    assert_eq!(feed.matches("term=\"ADD\"").count(), 1);
    assert_eq!(feed.matches("term=\"DELETE\"").count(), 1);
}
