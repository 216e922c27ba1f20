//! `tidings quarantine`: many messages are listed, retried and dropped by one command.

use std::path::Path;

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::Gateway,
    journal_fixture::configuration,
    subscription_fixture::event,
};

/// Number of messages that only another dialect can read.
const MESSAGES: u64 = 30;

/// Starts a gateway whose source reads messages of a dialect.
fn start(folder: &Path, dialect: &str) -> Gateway {
    let config = configuration(folder, &format!("[sources.archive]\ntransport = \"http\"\ndialect = \"{dialect}\"\n"));
    Gateway::start_with(&folder.join("data"), &["--config", &config])
}

fn quarantine(gateway: &Gateway, arguments: &[&str]) -> CommandResult {
    let all = [&["quarantine"], arguments, &["--gateway", &gateway.url]].concat();
    ended(command(&all).spawn().unwrap())
}

#[tokio::test]
async fn quarantined_messages_are_listed_retried_in_order_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), "islandora");
    for number in 0..MESSAGES {
        let (status, answer) = gateway.post("archive", "application/json", event(number).to_string()).await;
        assert!(status == 400 || status == 422, "{status}: {answer}");
    }
    for _ in 0..3 {
        gateway.post("content-change", "application/json", "{").await;
    }
    let (code, out, error) = quarantine(&gateway, &["list", "--source", "archive", "--limit", "1000"]);
    assert_eq!((code, out.lines().count() as u64), (0, MESSAGES + 1), "{out}{error}");
    let (code, out, _) = quarantine(&gateway, &["list", "--reason", "not well-formed JSON", "--json"]);
    assert_eq!((code, out.lines().count()), (0, 3), "{out}");
    let (code, out, _) = quarantine(&gateway, &["show", "1"]);
    assert!(code == 0 && out.contains("objects/0"), "{out}");
    // Nothing has changed, so nothing is accepted.
    let (code, out, error) = quarantine(&gateway, &["retry", "--source", "archive"]);
    assert_eq!((code, out.as_str()), (1, "0 accepted, 30 left\n"), "{error}");
    assert!(error.contains("1: 422 Unprocessable") && error.ends_with("and others\n"), "{error}");
    let (code, _, error) = quarantine(&gateway, &["retry"]);
    assert!(code == 2 && error.contains("--all"), "{error}");
    assert!(gateway.stop().success());

    let gateway = start(folder.path(), "content-change");
    let (code, out, error) = quarantine(&gateway, &["retry", "--all"]);
    assert_eq!((code, out.as_str()), (1, "30 accepted, 3 left\n"), "{error}");
    let objects: Vec<_> = gateway.changes().await.iter().map(|change| change["object"].clone()).collect();
    assert_eq!(objects, (0..MESSAGES).map(|number| event(number)["object"].clone()).collect::<Vec<_>>());
    let (code, out, error) = quarantine(&gateway, &["drop", "--source", "content-change"]);
    assert_eq!((code, out.as_str()), (0, "3 dropped, 0 left\n"), "{error}");
    let (code, out, _) = quarantine(&gateway, &["list"]);
    assert_eq!((code, out.as_str()), (0, "no message is in the quarantine\n"));
    let (code, out, _) = quarantine(&gateway, &["drop", "1"]);
    assert_eq!((code, out.as_str()), (0, "0 dropped, 0 left, 1 were gone already\n"));
}
