//! `/changes/{id}/deliveries`: what each subscription has done with a change, as far as it is known.

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

/// Returns the outcome for a subscription.
async fn of(gateway: &Gateway, change: &str, name: &str) -> Value {
    let answer = gateway.json(&format!("/changes/{change}/deliveries")).await;
    let found = answer["deliveries"].as_array().unwrap().iter().find(|delivery| delivery["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {answer:#}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_of_a_change_are_told_apart() {
    let receiver = Receiver::start(|_, request| {
        let status = match request.path.rsplit('/').next() {
            Some("good") => 200,
            Some("strict") => 422,
            _ => 503,
        };
        Reply::of(status)
    })
    .await;
    let url = |path: &str| format!("{}{path}", receiver.url().trim_end_matches('/'));
    let lines = [
        webhook("good", &url("/good"), ""),
        webhook("picky", &url("/good"), "filter = { changes = [\"DELETE\"] }"),
        webhook("strict", &url("/strict"), "refused_statuses = [422]"),
        webhook("stuck", &url("/stuck"), ""),
    ]
    .concat();
    let folder = tempfile::tempdir().unwrap();
    let running = gateway(folder.path(), &lines);
    for number in 1..=2 {
        post(&running, number).await;
    }
    for name in ["good", "picky", "strict"] {
        running.until_at(name, 2).await;
    }
    running.until("stuck", "it is stuck", |status| status["stuckAt"] == 1).await;
    let good = of(&running, "1", "good").await;
    assert_eq!(
        (&good["selected"], &good["outcome"], &good["from"]),
        (&json!(true), &json!("delivered"), &json!("config"))
    );
    assert!(good["at"].is_string() && good["between"].is_null(), "an attempt of the webhook has its time: {good:#}");
    assert_eq!(
        of(&running, "1", "picky").await,
        json!({
            "name": "picky", "from": "config", "selected": false, "outcome": "not-selected"
        })
    );
    let strict = of(&running, "2", "strict").await;
    let letters = running.json("/subscriptions/strict/dead-letters").await["deadLetters"].clone();
    assert_eq!((&strict["outcome"], &strict["deadLetter"]), (&json!("dead-letter"), &letters[0]["id"]), "{strict:#}");
    assert_eq!((&strict["at"], &strict["reason"]), (&letters[0]["refused"], &letters[0]["reason"]));
    let stuck = of(&running, "1", "stuck").await;
    assert_eq!(stuck, json!({ "name": "stuck", "from": "config", "selected": true, "outcome": "waiting" }));
    assert_eq!(running.ask("POST", "/subscriptions/stuck/skip", Some(json!({ "change": 1 }))).await.0, 200);
    assert_eq!(of(&running, "1", "stuck").await["outcome"], "skipped");
    assert_eq!(of(&running, "2", "stuck").await["outcome"], "waiting");

    assert_eq!(running.ask("DELETE", "/subscriptions/strict/dead-letters", None).await.0, 200);
    assert_eq!(of(&running, "2", "strict").await["outcome"], "passed", "no receiver has accepted it");

    let id = running.changes().await[1]["id"].as_str().unwrap().to_owned();
    let (by_id, by_number) =
        (running.json(&format!("/changes/{id}/deliveries")).await, running.json("/changes/2/deliveries").await);
    assert_eq!((&by_id, &by_id["seq"], &by_id["id"]), (&by_number, &json!(2), &json!(id)));
    let (status, problem) = running.ask("GET", "/changes/9/deliveries", None).await;
    assert_eq!((status, &problem["status"]), (404, &json!(404)));
    assert!(running.stop().success());

    // After a restart nobody knows whether the cursor was moved, and the filter decides by its present definition.
    let running = gateway(folder.path(), &lines.replace("DELETE", "ADD"));
    let good = of(&running, "1", "good").await;
    assert_eq!((&good["outcome"], &good["at"]), (&json!("passed"), &Value::Null), "{good:#}");
    assert!(good["between"]["before"].is_string(), "the flow has recorded the cursor: {good:#}");
    assert_eq!(of(&running, "1", "picky").await["outcome"], "passed");
    post(&running, 3).await;
    running.until_at("good", 3).await;
    assert_eq!(of(&running, "3", "good").await["outcome"], "delivered");
    assert_eq!(running.ask("POST", "/subscriptions/good/rewind", Some(json!({ "to": 2 }))).await.0, 200);
    running.until_at("good", 3).await;
    let (status, answer) = running.ask("POST", "/subscriptions/strict/rewind", Some(json!({ "to": "now" }))).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(of(&running, "3", "strict").await["outcome"], "dead-letter", "its dead letter stays");
}
