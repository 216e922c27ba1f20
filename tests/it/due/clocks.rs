//! Dates come once, whatever the clock does and whenever the gateway is killed.

use std::{path::Path, process::Stdio};

use serde_json::json;

use super::{added, change, due_changes, in_millis, moved, send};
use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::{journal_file, verify_ok},
    nodes_fixture::until,
    shifted_clock::{set_clock, shift_clock, shift_clock_by_file},
};

const HOUR: i64 = 3600;

fn start(folder: &Path, seconds: i64) -> Gateway {
    let mut serve = command();
    serve.stderr(Stdio::null());
    shift_clock(&mut serve, seconds);
    Gateway::start_as(serve, folder, &["--listen", "127.0.0.1:0"])
}

/// Waits until the gateway has looked at the dates since now: that of a new item comes. Its clock is ahead by so many
/// seconds.
async fn until_looked(gateway: &Gateway, name: &str, seconds: i64) {
    let date = in_millis(seconds * 1000 + 2500);
    send(gateway, &change(name, added(json!({ "visibleFrom": date })))).await;
    let come = moved(name, "EMBARGOED", "ACTIVE");
    until("a new date has come", async || due_changes(gateway).await.contains(&come)).await;
}

#[tokio::test]
async fn date_comes_once_after_kills_and_steps_of_the_clock() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = start(folder.path(), 0);
    for name in ["a", "b"] {
        send(&gateway, &change(name, added(json!({ "visibleFrom": in_millis(HOUR * 1000) })))).await;
    }
    send(&gateway, &change("c", added(json!({ "visibleFrom": in_millis(20 * HOUR * 1000) })))).await;
    gateway.kill();
    // Nothing is due an hour earlier, and everything but one item two hours later.
    let mut gateway = start(folder.path(), -HOUR);
    assert_eq!(gateway.json("/due").await["due"].as_array().unwrap().len(), 3);
    gateway.kill();
    let expected = [moved("a", "EMBARGOED", "ACTIVE"), moved("b", "EMBARGOED", "ACTIVE")];
    let mut gateway = start(folder.path(), 2 * HOUR);
    until("the dates have come", async || due_changes(&gateway).await == expected).await;
    gateway.kill();
    for (number, seconds) in [2 * HOUR, 0, -HOUR, 3 * HOUR].into_iter().enumerate() {
        let mut gateway = start(folder.path(), seconds);
        until_looked(&gateway, &format!("look-{number}"), seconds).await;
        let again = due_changes(&gateway).await.into_iter().filter(|change| expected.contains(change)).count();
        assert_eq!((again, gateway.json("/due").await["due"].as_array().unwrap().len()), (2, 1));
        gateway.kill();
    }
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn clock_that_is_set_while_the_gateway_runs_is_noticed() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    let mut serve = command();
    serve.stderr(Stdio::null());
    shift_clock_by_file(&mut serve, &clock, 0);
    let gateway = Gateway::start_as(serve, &folder.path().join("data"), &["--listen", "127.0.0.1:0"]);
    send(&gateway, &change("a", added(json!({ "visibleFrom": in_millis(HOUR * 1000) })))).await;
    set_clock(&clock, 2 * HOUR);
    let expected = [moved("a", "EMBARGOED", "ACTIVE")];
    until("the date has come", async || due_changes(&gateway).await == expected).await;
    set_clock(&clock, 0);
    until_looked(&gateway, "b", 0).await;
    assert_eq!(due_changes(&gateway).await, [moved("a", "EMBARGOED", "ACTIVE"), moved("b", "EMBARGOED", "ACTIVE")]);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(&folder.path().join("data")));
}
