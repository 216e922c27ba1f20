//! Every button does what its name says, as the interface shows afterwards; what cannot be undone asks first.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    scripted_repository::ScriptedRepository,
    subscription_fixture::{gateway, post},
    webhook_fixture::SECRET,
};

/// Waits until a document of the interface satisfies a condition.
pub(super) async fn until(gateway: &Gateway, path: &str, holds: impl Fn(&Value) -> bool) {
    let began = std::time::Instant::now();
    loop {
        let shown = gateway.json(path).await;
        if holds(&shown) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{path}: {shown:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buttons_of_a_subscription_control_it() {
    let reply = Arc::new(AtomicU16::new(200));
    let replies = Arc::clone(&reply);
    let receiver = Receiver::start(move |_, _| Reply::of(replies.load(Ordering::Relaxed))).await;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "[delivery]\nallow = [\"127.0.0.1\"]\n");
    let mut command = command();
    command.env("TIDINGS_SECRET_KEY", SECRET).stderr(std::process::Stdio::null());
    let gateway = Gateway::start_as(command, folder.path(), &["--listen", "127.0.0.1:0", "--config", &config]);
    let definition = json!({
        "delivery": "webhook", "format": "json", "start": "beginning", "url": receiver.url(),
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }], "refused_statuses": [422],
    });
    assert_eq!(gateway.ask("PUT", "/subscriptions/index", Some(definition)).await.0, 201);
    for number in 1..=4 {
        post(&gateway, number).await;
    }
    let path = "/subscriptions/index";
    let is = |name: &'static str, value: Value| move |shown: &Value| shown[name] == value;
    until(&gateway, path, is("cursor", json!(4))).await;
    let mut page = OpenPage::open(&format!("{}/#/subscriptions/index", gateway.url));
    page.click("Pause index");
    until(&gateway, path, is("state", json!("paused"))).await;
    page.click("Resume index");
    until(&gateway, path, is("state", json!("running"))).await;
    page.click("Send a test index");
    page.until_says("#notice", "outcome delivered");
    page.until_says("#notice code", &format!("curl -X POST -d '{{}}' '{}/subscriptions/index/send'", gateway.url));
    page.confirm("Rewind to the beginning index", "4 changes, 1 to 4, are sent to index again");
    page.until_says("#notice", "repeated 4, skipped 0");
    assert!(receiver.requests().len() >= 5);
    until(&gateway, path, is("cursor", json!(4))).await;

    // One change is refused, and one is never accepted.
    reply.store(422, Ordering::Relaxed);
    post(&gateway, 5).await;
    until(&gateway, path, is("deadLetters", json!(1))).await;
    reply.store(500, Ordering::Relaxed);
    post(&gateway, 6).await;
    until(&gateway, path, is("stuckAt", json!(6))).await;
    page.click("Try now index");
    page.confirm("Skip this change 6 of index", "1 change, 6, becomes a dead letter");
    until(&gateway, path, is("deadLetters", json!(2))).await;
    let letters = format!("{path}/dead-letters");
    let first = gateway.json(&letters).await["deadLetters"][1]["id"].clone();
    page.confirm(&format!("Drop dead letter {first}"), "1 message, change 5, will be deleted for good");
    until(&gateway, path, is("deadLetters", json!(1))).await;
    reply.store(200, Ordering::Relaxed);
    page.click("Send all again index");
    until(&gateway, path, is("deadLetters", json!(0))).await;

    // Dead letters one by one, and all of them.
    reply.store(422, Ordering::Relaxed);
    for number in 7..=9 {
        post(&gateway, number).await;
    }
    until(&gateway, path, is("deadLetters", json!(3))).await;
    reply.store(200, Ordering::Relaxed);
    let first = gateway.json(&letters).await["deadLetters"][2]["id"].clone();
    page.click(&format!("Send again dead letter {first}"));
    until(&gateway, path, is("deadLetters", json!(2))).await;
    page.confirm(
        "Drop all dead letters of index",
        "2 messages and all changes that wait to be sent again will be deleted for good, and not be sent to index.",
    );
    until(&gateway, path, is("deadLetters", json!(0))).await;

    // A range of changes.
    let before = receiver.requests().len();
    let fields = "[...document.querySelectorAll('[type=number]')]";
    page.browser.until(&format!("{fields}.length"), &json!(2));
    page.value(&format!(
        "{fields}.forEach((field, at) => {{ field.value = at + 2; field.oninput({{ target: field }}) }})"
    ));
    page.confirm("Send again index", "2 changes, 2 to 3, are sent to index again");
    page.until_says("#notice", "changes 2");
    until(&gateway, path, is("deadLetters", json!(0))).await;
    assert!(receiver.requests().len() > before);
    page.click("Pause index");
    until(&gateway, path, is("state", json!("paused"))).await;
    page.confirm("Continue there index", "8 changes, 2 to 9, are sent to index again");
    until(&gateway, path, is("cursor", json!(1))).await;
    page.confirm("Skip to now index", "8 changes, 2 to 9, are never sent to index");
    until(&gateway, path, is("cursor", json!(9))).await;
    page.confirm("Delete index", "The subscription index will be deleted with its position and 0 dead letters");
    until(&gateway, "/subscriptions", |shown| shown["subscriptions"] == json!([])).await;
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buttons_of_the_quarantine_read_again_and_drop() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 0..3 {
        assert_eq!(gateway.post("content-change", "application/json", format!("{{\"no\": {number}}}")).await.0, 422);
    }
    let mut page = OpenPage::open(&format!("{}/#/quarantine", gateway.url));
    page.until_says("nav", "Quarantine (3)");
    page.click("Read it again message 1");
    page.until_says("#notice", "remains in the quarantine");
    page.click_text("Close");
    page.browser.until("document.querySelector('#notice').textContent", &json!(""));
    page.go("quarantine/1");
    page.until_says("main pre", "{\"no\": 0}");
    page.click("Drop message 1");
    page.click_text("Cancel");
    page.browser.until("document.querySelector('dialog').open", &json!(false));
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().unwrap().len(), 3);
    page.confirm("Drop message 1", "1 message of content-change, 9 B, will be deleted for good");
    until(&gateway, "/quarantine", |shown| shown["messages"].as_array().unwrap().len() == 2).await;
    page.until_says("nav", "Quarantine (2)");
    page.go("quarantine?source=content-change");
    page.click("Read all again content-change");
    page.until_says("#notice", "0 of 2 messages");
    page.confirm("Drop all content-change", "2 messages of content-change will be deleted for good");
    until(&gateway, "/quarantine", |shown| shown["messages"] == json!([])).await;
    page.until_says("main", "Empty: every message could be read.");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buttons_of_a_harvest_and_of_its_audit_request_runs() {
    let repository = ScriptedRepository::start(3).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"127.0.0.1\"]\n");
    let harvest =
        json!({ "name": "upm", "transport": "oai-pmh", "dialect": "oai-pmh", "url": repository.url(), "every": "1h" });
    assert_eq!(gateway.ask("POST", "/harvests", Some(harvest)).await.0, 201);
    let runs = |least: usize| {
        move |shown: &Value| {
            shown["runs"].as_array().is_some_and(|runs| runs.len() >= least && runs[0]["state"] == "completed")
        }
    };
    until(&gateway, "/harvests/upm", runs(1)).await;
    let mut page = OpenPage::open(&format!("{}/#/sources/upm", gateway.url));
    page.click("Run now upm");
    until(&gateway, "/harvests/upm", runs(2)).await;
    page.click("List all records upm");
    until(&gateway, "/harvests/upm", runs(3)).await;
    page.until_says("[aria-label=Runs] tbody", "completed");
    page.click("Pause upm");
    until(&gateway, "/harvests/upm", |shown| shown["state"] == "paused").await;
    page.click("Resume upm");
    until(&gateway, "/harvests/upm", |shown| shown["state"] == "waiting").await;
    page.confirm("Retire former records upm", "3 records exist now");
    until(&gateway, "/harvests/upm", runs(4)).await;
    page.click("Compare all upm");
    let is_complete = |shown: &Value| shown["audit"]["state"] == "complete";
    until(&gateway, "/sources/upm/audit", is_complete).await;
    let lost = repository.script().records.keys().next().unwrap().clone();
    repository.lose(&lost);
    page.confirm("Correct upm", "Each difference becomes a change: the last audit found 0 items");
    until(&gateway, "/sources/upm/audit", |shown| is_complete(shown) && shown["audit"]["repair"] == true).await;
    page.until_says("main", "Extra");
    page.confirm("Remove upm", "The harvest is removed with its position and the history of");
    until(&gateway, "/harvests", |shown| shown["harvests"] == json!([])).await;
    page.assert_quiet();
}
