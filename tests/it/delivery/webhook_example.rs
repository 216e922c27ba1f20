//! Example webhook receiver `examples/webhook_receiver.py`, which verifies with the library of Standard
//! Webhooks.

use std::{fs, path::Path};

use crate::support::{
    gateway::{Gateway, command},
    journal_fixture::configuration,
    python::Example,
    subscription_fixture::{gateway, post},
    webhook_fixture::{NEXT_SECRET, SECRET, webhook},
};

fn here(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The file in `examples/` with the Fedora messages of `docs/push.md` prints the output shown there.
#[tokio::test]
async fn example_receiver_prints_the_readme_output() {
    let folder = tempfile::tempdir().unwrap();
    let (mut receiver, port) = Example::webhook_receiver(SECRET, folder.path()).await;
    let config = here("examples/webhook.toml").replace(":9000/", &format!(":{port}/"));
    let config = configuration(folder.path(), &config.replace("[server]\nlisten = \"127.0.0.1:8082\"\n", ""));
    let mut serve = command();
    serve.env("WEBHOOK_SECRETS", SECRET);
    let arguments = ["--listen", "127.0.0.1:0", "--config", &config];
    let gateway = Gateway::start_as(serve, &folder.path().join("data"), &arguments);
    let hook = format!("{}/hooks/fedora3", gateway.url);
    let life = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/life-of-an-object");
    let replay = command().args(["replay", life.to_str().unwrap(), "--to", &hook]).output().unwrap();
    assert!(replay.status.success(), "{replay:?}");
    gateway.until_at("index", 6).await;
    receiver.until_printed(2).await;
    let page = here("docs/push.md");
    let (_, status_json) = page.split_once("\n```\nreceiving on port 9000\n").unwrap();
    let (status_json, _) = status_json.split_once("```").unwrap();
    assert_eq!(receiver.stop()[1..], status_json.lines().collect::<Vec<_>>());
}

#[tokio::test]
async fn example_receiver_accepts_either_of_two_secrets() {
    let folder = tempfile::tempdir().unwrap();
    for (number, known) in [(1, SECRET.to_owned()), (2, NEXT_SECRET.to_owned()), (3, format!("{SECRET} {NEXT_SECRET}"))]
    {
        let (mut receiver, port) = Example::webhook_receiver(&known, folder.path()).await;
        let both = format!("[\"{SECRET}\", \"{NEXT_SECRET}\"]");
        let lines = webhook("index", &format!("http://127.0.0.1:{port}/"), "");
        let gateway = gateway(folder.path(), &lines.replace(&format!("[\"{SECRET}\"]"), &both));
        post(&gateway, number).await;
        gateway.until_at("index", number).await;
        receiver.until_printed(2).await;
        let printed = receiver.stop();
        assert_eq!(printed[1..], [format!("{number} ADD http://h.example/objects/{number}/item")]);
        assert!(gateway.stop().success());
    }
    let other = "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=";
    let (receiver, port) = Example::webhook_receiver(other, folder.path()).await;
    let gateway = gateway(folder.path(), &webhook("index", &format!("http://127.0.0.1:{port}/"), ""));
    post(&gateway, 4).await;
    let status_json = gateway.until("index", "it is refused", |status_json| status_json["state"] == "retrying").await;
    assert_eq!(
        status_json["lastError"]["reason"],
        "it responded with 401 Unauthorized: does the receiver have the same secret?"
    );
    assert_eq!(receiver.stop().len(), 1);
}
