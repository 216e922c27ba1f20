//! A change that the receiver refuses permanently delays nothing: it becomes a dead letter that is listed,
//! replayed or dropped over HTTP.

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    rabbitmq::Broker,
    subscription_fixture::{event, gateway, post, post_event, seq, text},
};

const ONE: &str = "/subscriptions/index";
const LETTERS: &str = "/subscriptions/index/dead-letters";

/// Posts an event that is too large for the receiver.
async fn post_large(gateway: &Gateway, number: u64) {
    let mut large = event(number);
    let item = |at: u64| json!({ "uri": format!("http://h.example/{number}/{at}"), "change": "ADD" });
    large["items"] = (0..100).map(item).collect();
    post_event(gateway, &large).await;
}

async fn put(gateway: &Gateway, url: &str, largest: u64) -> u16 {
    let definition = json!({
        "delivery": "amqp", "url": url, "exchange": "content", "start": "beginning",
        "max_message_bytes": largest, "queues": [{ "name": "index", "type": "classic" }],
    });
    gateway.ask("PUT", ONE, Some(definition)).await.0
}

async fn letters(gateway: &Gateway) -> Vec<Value> {
    gateway.json(LETTERS).await["deadLetters"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_dropped() {
    let vhost = Broker::shared().vhost();
    let url = vhost.url().replace("guest:guest@", "");
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"127.0.0.1\"]\n");
    assert_eq!(put(&gateway, &url, 20_000).await, 201);
    for number in 1..=5 {
        if number % 2 == 0 {
            post_large(&gateway, number).await;
        } else {
            post(&gateway, number).await;
        }
    }
    let status_json = gateway.until_at("index", 5).await;
    assert_eq!((&status_json["deadLetters"], &status_json["state"]), (&json!(2), &json!("running")));
    let client = vhost.client().await;
    assert_eq!(client.read("index", 3).await.iter().map(seq).collect::<Vec<_>>(), [1, 3, 5]);

    let refused = letters(&gateway).await;
    assert_eq!(refused.iter().map(|letter| letter["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [4, 2]);
    assert!(refused.iter().all(|letter| letter["reason"].as_str().unwrap().contains("the maximum is 20000")));
    let change = gateway.json(&format!("{LETTERS}/{}", refused[1]["id"])).await["change"].clone();
    assert_eq!(change, gateway.changes().await[1]);

    let fourth = format!("{LETTERS}/{}", refused[0]["id"]);
    assert_eq!(gateway.ask("DELETE", &fourth, None).await.0, 204);
    assert_eq!(gateway.ask("DELETE", &fourth, None).await.0, 404);
    assert_eq!(gateway.ask("POST", &format!("{fourth}/replay"), None).await.0, 404);
    assert_eq!(letters(&gateway).await.len(), 1);

    // The receiver accepts larger messages now: the remaining dead letter is sent again, and nothing else.
    assert_eq!(put(&gateway, &url, 1_000_000).await, 200);
    let second = format!("{LETTERS}/{}", refused[1]["id"]);
    assert_eq!(gateway.ask("POST", &format!("{second}/replay"), None).await, (202, json!({ "affected": 1 })));
    gateway.until("index", "the dead letter is accepted", |status_json| status_json["deadLetters"] == 0).await;
    let replayed = client.read("index", 1).await;
    assert_eq!(seq(&replayed[0]), 2);
    assert_eq!(text(replayed[0].properties.message_id().as_ref()), change["id"].as_str().unwrap());
    post(&gateway, 6).await;
    gateway.until_at("index", 6).await;
    assert_eq!(client.read("index", 1).await.iter().map(seq).collect::<Vec<_>>(), [6]);

    assert_eq!(put(&gateway, &url, 20_000).await, 200);
    for number in [7, 8] {
        post_large(&gateway, number).await;
    }
    gateway.until_at("index", 8).await;
    // Dead letters survive a restart.
    assert!(gateway.stop().success());
    let gateway = Gateway::start(folder.path());
    assert_eq!(letters(&gateway).await.len(), 2);
    assert_eq!(gateway.ask("DELETE", LETTERS, None).await, (200, json!({ "affected": 2 })));
    assert_eq!(gateway.json(ONE).await["deadLetters"], 0);
    assert_eq!((letters(&gateway).await, client.waiting("index").await), (Vec::new(), 0));
}
