//! Every block and every command of `/connect` works, and the page shows when a first message has come.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    gateway::{Gateway, command},
    gateway_with_auth::GatewayWithAuth,
    subscription_fixture::{gateway, post},
};

async fn examples(gateway: &Gateway) -> Vec<Value> {
    gateway.json("/connect").await["examples"].as_array().unwrap().clone()
}

fn text<'v>(example: &'v Value, member: &str) -> &'v str {
    example[member].as_str().unwrap()
}

#[tokio::test]
async fn connect_blocks_are_accepted_and_their_commands_work() {
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(&folder.path().join("first"));
    let examples_of_first = examples(&first).await;
    let mut hooks = String::new();
    for example in &examples_of_first {
        let about = text(example, "title");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(text(example, "page")).exists(), "{about}");
        let config = folder.path().join("tidings.toml");
        fs::write(&config, text(example, "config")).unwrap();
        let checked = command().args(["check", "--config"]).arg(&config).output().unwrap();
        assert!(checked.status.success(), "{about}: {}", String::from_utf8_lossy(&checked.stderr));
        if text(example, "command").contains("/hooks/") {
            hooks += text(example, "config");
        }
    }
    let second = folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let gateway = gateway(&second, &hooks);
    let (mut sent, mut made) = (0, 0);
    for example in examples(&gateway).await {
        let line = text(&example, "command");
        assert!(line.contains(&gateway.url), "{line}");
        let is_sent = line.contains("/hooks/");
        // The others show the state of a source or subscription that this gateway does not have.
        if !is_sent && !line.contains("--data") {
            continue;
        }
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        // The hub answers without a body.
        let is_subscribed = line.contains("hub.mode=subscribe") && output.stdout.is_empty();
        let answer = if is_subscribed { Value::Null } else { serde_json::from_slice(&output.stdout).unwrap() };
        if is_sent {
            assert_eq!(answer["outcome"], "accepted", "{line}\n{answer:#}");
            sent += 1;
        } else {
            assert!(answer["detail"].is_null(), "{line}\n{answer:#}");
            made += 1;
        }
    }
    assert_eq!((sent, made), (7, 7));
    let deliveries: Vec<_> = examples_of_first.iter().map(|example| text(example, "config")).collect();
    for name in ["dialect = \"download\"", "dialect = \"fileset-result\"", "[hub]"] {
        assert!(deliveries.iter().any(|config| config.contains(name)), "{name}");
    }
}

#[tokio::test]
async fn connect_commands_have_a_token_where_one_is_needed() {
    let gateway = GatewayWithAuth::start();
    let answer = gateway.gateway.http.get(format!("{}/connect", gateway.gateway.url)).bearer_auth("tdg_admin");
    let examples: Value = serde_json::from_slice(&answer.send().await.unwrap().bytes().await.unwrap()).unwrap();
    for example in examples["examples"].as_array().unwrap() {
        assert!(text(example, "command").contains("-H \"Authorization: Bearer $TOKEN\""), "{example:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_part_shows_blocks_and_turns_green_with_the_first_message() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_says("main", "Nothing yet.");
    page.go("connect");
    let row = "[...document.querySelectorAll('main tbody tr')].find(row => row.textContent.includes('content-change'))";
    page.browser.until(&format!("{row}?.textContent.includes('waiting for the first message')"), &json!(true));
    let blocks = page.value("[...document.querySelectorAll('main details')].map(one => one.textContent)");
    let blocks = blocks.as_array().unwrap();
    assert_eq!(blocks.len(), examples(&gateway).await.len());
    let oai = blocks.iter().find_map(|block| block.as_str().filter(|block| block.contains("OAI-PMH"))).unwrap();
    assert!(oai.contains("[sources.theses]\n") && oai.contains(&format!("'{}/harvests'", gateway.url)), "{oai}");
    post(&gateway, 1).await;
    page.browser.until(&format!("{row}?.querySelector('.good')?.textContent"), &json!("✓ it came"));
    page.assert_quiet();
}
