//! Subscriptions: each state in its table with its buttons, and the buttons that move or delete one from the verdict.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;

use super::{OpenPage, actions::until};
use crate::support::{
    gateway::{Gateway, command},
    http_receiver::{ReceivedRequest, Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::{self, post},
    webhook_fixture::{SECRET, webhook},
};

/// Names of the subscriptions with further settings. The receiver answers each in its own way.
const SUBSCRIPTIONS: [(&str, &str); 6] = [
    ("well", ""),
    ("broken", ""),
    ("refusing", "refused_statuses = [422]"),
    ("over", ""),
    ("given-up", "pause_after_seconds = 1"),
    ("asleep", ""),
];

/// What the table shows of each: its state, a text and its buttons.
const ROWS: [(&str, &str, &str, &[&str]); 8] = [
    ("well", "✓ running", "", &["Pause well"]),
    ("broken", "▲ retrying", "it responded with 500", &["Try now broken", "Pause broken"]),
    ("refusing", "▲ running", "", &["Pause refusing"]),
    ("over", "▲ ended", "410", &["Resume over"]),
    ("given-up", "▲ paused", "by the gateway", &["Resume given-up"]),
    ("asleep", "▲ paused", "by ", &["Resume asleep"]),
    ("former", "▲ orphaned", "", &["Delete former"]),
    ("secretless", "✗ failed", "TIDINGS_SECRET_KEY is not set", &[]),
];

/// Starts a gateway with the variable that a definition names, or without it.
fn start(folder: &Path, lines: &str, has_secret: bool) -> Gateway {
    let config = configuration(folder, lines);
    let mut command = command();
    command.stderr(std::process::Stdio::null());
    if has_secret {
        command.env("TIDINGS_SECRET_KEY", SECRET);
    }
    Gateway::start_as(command, folder, &["--listen", "127.0.0.1:0", "--config", &config])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_subscriptions_are_shown_with_their_buttons_until_their_causes_end() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let answer = move |_: usize, request: &ReceivedRequest| {
        let status = match request.path.rsplit('/').next().unwrap() {
            _ if mended.load(Ordering::Relaxed) => 200,
            "broken" | "given-up" => 500,
            "refusing" => 422,
            "over" => 410,
            _ => 200,
        };
        Reply::of(status)
    };
    let receiver = Receiver::start(answer).await;
    let base: reqwest::Url = receiver.url().parse().unwrap();
    let defined = |name: &str, more: &str| webhook(name, base.join(name).unwrap().as_str(), more);
    let lines = SUBSCRIPTIONS.map(|(name, more)| defined(name, more)).concat();
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{lines}");
    let folder = tempfile::tempdir().unwrap();
    let before = start(folder.path(), &format!("{lines}{}", defined("former", "")), true);
    let definition = json!({
        "delivery": "webhook", "format": "json", "start": "beginning", "url": receiver.url(),
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }]
    });
    assert_eq!(before.ask("PUT", "/subscriptions/secretless", Some(definition)).await.0, 201);
    assert!(before.stop().success());

    let gateway = start(folder.path(), &lines, false);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.click("Pause asleep");
    until(&gateway, "/subscriptions/asleep", |shown| shown["state"] == "paused").await;
    post(&gateway, 1).await;
    for (name, state, text, buttons) in ROWS {
        page.until_row("Subscriptions", name, state, text, buttons);
    }
    for (code, name, state) in [
        ("subscription-fails", "broken", "retrying"),
        ("subscription-fails", "secretless", "failed"),
        ("subscription-ended", "over", "ended"),
        ("subscription-ended", "given-up", "paused"),
        ("subscription-orphaned", "former", "orphaned"),
        ("dead-letters", "refusing", "running"),
    ] {
        page.until_problem(code, &format!("subscription/{name}"), state);
    }
    page.until_verdict("6 things need attention");
    page.pass(61);
    page.until_row(
        "Subscriptions",
        "broken",
        "✗ retrying",
        "it responded with 500",
        &["Try now broken", "Pause broken"],
    );

    // The causes end.
    is_mended.store(true, Ordering::Relaxed);
    for button in ["Resume over", "Resume given-up", "Resume asleep", "Send all again refusing"] {
        page.click(button);
    }
    page.confirm("Delete former", "The subscription former will be deleted with its position and 0 dead letters");
    until(&gateway, "/subscriptions", |shown| !shown.to_string().contains("\"former\"")).await;
    for (name, ..) in SUBSCRIPTIONS {
        gateway.until_at(name, 1).await;
        page.until_row("Subscriptions", name, "✓ running", "", &[&format!("Pause {name}")]);
    }
    page.until_verdict("1 thing needs attention");
    page.until_problem("subscription-fails", "subscription/secretless", "failed");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_that_fell_behind_is_moved_from_the_verdict() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let names = ["early", "late"];
    let lines = names.map(|name| webhook(name, &receiver.url(), "")).concat();
    let lines = format!("[journal]\nkeep_changes = 10\n[delivery]\nallow = [\"127.0.0.1\"]\n{lines}");
    let gateway = subscription_fixture::gateway(folder.path(), &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    for name in names {
        page.click(&format!("Pause {name}"));
        until(&gateway, &format!("/subscriptions/{name}"), |shown| shown["state"] == "paused").await;
    }
    for number in 1..=40 {
        post(&gateway, number).await;
    }
    until(&gateway, "/status", |shown| shown["journal"]["first"] == 31).await;
    for name in names {
        let buttons = ["Rewind to the beginning", "Skip to now"].map(|label| format!("{label} {name}"));
        let buttons = buttons.each_ref().map(String::as_str);
        page.click(&format!("Resume {name}"));
        page.until_row("Subscriptions", name, "✗ fell-behind", "changes after 0 are no longer available", &buttons);
        page.until_problem("subscription-fails", &format!("subscription/{name}"), "fell-behind");
    }
    page.confirm("Skip to now early", "40 changes, 1 to 40, are never sent to early");
    until(&gateway, "/subscriptions/early", |shown| shown["cursor"] == 40).await;
    page.confirm("Rewind to the beginning late", "30 changes, 1 to 30, are never sent to late");
    until(&gateway, "/subscriptions/late", |shown| shown["cursor"] == 40 && shown["delivered"] == 10).await;
    for name in names {
        page.until_row("Subscriptions", name, "✓ running", "", &[&format!("Pause {name}")]);
    }
    page.until_verdict("All is well");
    page.assert_quiet();
}
