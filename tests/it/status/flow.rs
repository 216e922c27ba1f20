//! The flow: `/flow` counts what came and what went, also over a restart.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::until;
use crate::support::{
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

fn sum(slots: &Value) -> u64 {
    slots.as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}

/// Returns what the flow has in all: the changes, those of the source of the messages, and those that were delivered.
fn sums(flow: &Value) -> [u64; 3] {
    let named = |list: &str, name: &str, member: &str| {
        let found = flow[list].as_array().unwrap().iter().find(|thing| thing["name"] == name);
        found.map_or(0, |thing| sum(&thing[member]))
    };
    [sum(&flow["changes"]), named("sources", "content-change", "changes"), named("subscriptions", "index", "delivered")]
}

async fn until_sums(gateway: &Gateway, expected: [u64; 3]) {
    for span in ["hour", "day", "week"] {
        until(&format!("the flow of the {span} is {expected:?}"), async || {
            (sums(&gateway.json(&format!("/flow?span={span}")).await) == expected).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_counts_changes_over_a_restart_and_a_kill() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("index", &receiver.url(), "");
    let running = gateway(folder.path(), &lines);
    for number in 1..=3 {
        post(&running, number).await;
    }
    until_sums(&running, [3, 3, 3]).await;
    let flow = running.json("/flow").await;
    assert_eq!((&flow["span"], &flow["slotSeconds"]), (&json!("hour"), &json!(60)));
    assert!(flow["end"].as_str().unwrap().ends_with(":00.000Z"), "{flow}");
    for (span, slots) in [("hour", 60), ("day", 144), ("week", 168)] {
        let flow = running.json(&format!("/flow?span={span}")).await;
        let index = &flow["subscriptions"][0];
        for list in [&flow["changes"], &flow["sources"][0]["changes"], &index["delivered"], &index["cursors"]] {
            assert_eq!(list.as_array().unwrap().len(), slots, "{span}");
        }
        assert_eq!(flow["changes"][0], Value::Null, "the gateway did not run");
    }
    let refused = running.http.get(format!("{}/flow?span=year", running.url)).send().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert!(running.stop().success());

    let mut running = gateway(folder.path(), &lines);
    post(&running, 4).await;
    until_sums(&running, [4, 4, 4]).await;
    let cursors = running.json("/flow").await["subscriptions"][0]["cursors"].clone();
    assert_eq!(cursors.as_array().unwrap().last(), Some(&json!(4)));
    // The file does not have the last change.
    running.kill();
    let running = gateway(folder.path(), &lines);
    // Nobody knows how many were delivered before the kill.
    until("the changes are counted once more", async || {
        (sums(&running.json("/flow").await)[..2] == [4, 4]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_drops_what_is_removed() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let running = gateway(folder.path(), &webhook("index", &receiver.url(), ""));
    post(&running, 1).await;
    until_sums(&running, [1, 1, 1]).await;
    assert!(running.stop().success());
    // Without its definition, the subscription stays until somebody deletes it.
    let running = gateway(folder.path(), "[sources.content-change]\nenabled = false\n");
    until_sums(&running, [1, 0, 1]).await;
    assert_eq!(running.ask("DELETE", "/subscriptions/index", None).await.0, 204);
    until_sums(&running, [1, 0, 0]).await;
    assert_eq!(running.json("/flow").await["subscriptions"], json!([]));
}

fn start(folder: &Path, log: &Path) -> Gateway {
    let config = configuration(folder, "");
    Gateway::start_logging(folder, &["--config", &config], log)
}

#[tokio::test]
async fn flow_begins_anew_with_a_damaged_or_foreign_file() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        let running = gateway(folder.path(), "");
        post(&running, 1).await;
        until_sums(&running, [1, 1, 0]).await;
        assert!(running.stop().success());
    }
    let files = folders.each_ref().map(|folder| folder.path().join("flow.json"));
    fs::copy(&files[1], &files[0]).unwrap();
    let written = fs::read(&files[1]).unwrap();
    fs::write(&files[1], &written[..written.len() / 2]).unwrap();
    for (folder, reason) in folders.iter().zip(["it is of another journal", "it is damaged"]) {
        let log = folder.path().join("log");
        let running = start(folder.path(), &log);
        until(&format!("the log has {reason}"), async || {
            let logged = fs::read_to_string(&log).unwrap();
            (logged.contains("the record of the flow is not used") && logged.contains(reason)).then_some(())
        })
        .await;
        post(&running, 2).await;
        until_sums(&running, [1, 1, 0]).await;
    }
}
