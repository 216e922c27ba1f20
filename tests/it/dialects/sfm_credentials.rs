//! The start message of a harvest contains the credentials for a platform. These tests search everything that
//! the gateway writes and returns for them.

use std::{fs, io::Write, path::Path, process::Stdio};

use serde_json::json;

use crate::support::{
    gateway::command,
    hoarder_sfm_fixture::{gateway, send},
};

const START: &str = "harvest.start.twitter.twitter_filter";

/// Text that is in every secret and nowhere else.
const SECRET: &str = "hush-hush";

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let whole = json!({
        "id": "1", "type": "twitter_filter", "options": {"credentials": {"token": "hush-hush-1"}},
        "credentials": {"consumer_key": "hush-hush-2", "more": [{"secret": "\"}hush-hush-3"}]},
        "collection": {"id": "c"}, "seeds": [],
    });
    let text = whole.to_string();
    let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    vec![
        ("whole", text.clone().into_bytes()),
        ("escaped", text.replace("\"credentials\"", "\"\\u0063redentials\"").into_bytes()),
        ("without an id", text.replace("\"id\":\"1\"", "\"name\":\"1\"").into_bytes()),
        ("of another type", text.replace("\"id\":\"1\"", "\"id\":1").into_bytes()),
        ("cut short", text.as_bytes()[..text.find("hush-hush-3").unwrap() + 11].to_vec()),
        ("with a comma too many", text.replace("\"seeds\":", ",\"seeds\":").into_bytes()),
        ("with a bracket too many", text.replace("hush-hush-2\"", "hush-hush-2\"}").into_bytes()),
        ("without quotation marks", text.replace('"', "").into_bytes()),
        ("not in UTF-8", [text.as_bytes(), b"\xff"].concat()),
        ("in UTF-16", utf_16(&text)),
        ("in a text", json!(text).to_string().into_bytes()),
        ("in a list", format!("[{text}]").into_bytes()),
    ]
}

/// Returns true if the bytes contain the secret, in any encoding of the messages or as a list of bytes in a
/// log.
pub(crate) fn contains_secret(bytes: &[u8]) -> bool {
    let utf_16: Vec<u8> = SECRET.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let hex: String = utf_16.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex_8: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let numbers = format!("{:?}", SECRET.as_bytes());
    let numbers = numbers.trim_matches(['[', ']']);
    [SECRET.as_bytes(), &utf_16, hex.as_bytes(), hex_8.as_bytes(), numbers.as_bytes()]
        .iter()
        .any(|needle| bytes.windows(needle.len()).any(|window| window == *needle))
}

/// Panics if any file in the folder contains the secret.
pub(crate) fn assert_no_secret(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            assert_no_secret(&entry);
        } else {
            assert!(!contains_secret(&fs::read(&entry).unwrap()), "{}", entry.display());
        }
    }
}

#[tokio::test]
async fn credentials_appear_in_no_file_and_no_response() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let mut quarantined = 0;
    for (name, body) in messages() {
        for key in [START, "harvest.lost.a.b", "warc_created"] {
            let (status, answer) = send(&gateway, "sfm", key, body.clone()).await;
            assert!(!contains_secret(answer.to_string().as_bytes()), "{name} {key}: {answer}");
            if status != 201 && status != 200 {
                quarantined += 1;
                let path = answer["instance"].as_str().unwrap_or_else(|| panic!("{name} {key}: {answer}"));
                let quarantined = gateway.json(path).await;
                assert!(!contains_secret(quarantined.to_string().as_bytes()), "{name} {key}: {quarantined}");
                let retried = gateway.http.post(format!("{}{path}/retry", gateway.url)).send().await.unwrap();
                assert!(!contains_secret(&retried.bytes().await.unwrap()), "{name} {key}");
            }
        }
    }
    assert!(quarantined > 20, "{quarantined}");
    assert_eq!(gateway.changes().await.len(), 1);
    for path in ["/changes", "/feed", "/quarantine", "/sources", "/snapshot", "/metrics"] {
        let answer = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        assert!(!contains_secret(&answer.bytes().await.unwrap()), "{path}");
    }
    // The newest message is in the write-ahead log while the gateway runs, and in the journal afterwards.
    assert!(
        fs::read_dir(folder.path().join("data"))
            .unwrap()
            .any(|file| { file.unwrap().file_name().to_string_lossy().ends_with("-wal") })
    );
    assert_no_secret(folder.path());
    assert!(gateway.stop().success());
    assert_no_secret(folder.path());
    assert!(fs::read_to_string(folder.path().join("log")).unwrap().contains("message quarantined"));
}

#[test]
fn credentials_appear_in_no_convert_output() {
    for (name, body) in messages() {
        for key in [START, "warc_created"] {
            for format in ["atom", "json"] {
                let mut convert = command();
                convert.args(["convert", "--dialect", "sfm", "--format", format, "--header"]);
                convert.arg(format!("Routing-Key: {key}")).arg("--settings").arg(r#"{"base_url":"https://h"}"#);
                let mut child =
                    convert.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                child.stdin.take().unwrap().write_all(&body).unwrap();
                let done = child.wait_with_output().unwrap();
                assert!(!contains_secret(&done.stdout) && !contains_secret(&done.stderr), "{name} {key} {format}");
                assert_eq!(done.status.success(), key == START && matches!(name, "whole" | "escaped"), "{name} {key}");
            }
        }
    }
}

#[tokio::test]
async fn credentials_appear_in_no_replay_output() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let bodies = folder.path().join("bodies");
    fs::create_dir(&bodies).unwrap();
    for (number, (_, body)) in messages().into_iter().enumerate() {
        fs::write(bodies.join(format!("{number:02}.json")), body).unwrap();
        fs::write(bodies.join(format!("{number:02}.headers")), format!("Routing-Key: {START}\n")).unwrap();
    }
    let mut replay = command();
    replay.args(["replay", "--to", &format!("{}/hooks/sfm", gateway.url)]).arg(&bodies);
    let done = tokio::task::spawn_blocking(move || replay.output().unwrap()).await.unwrap();
    assert!(!contains_secret(&done.stdout) && !contains_secret(&done.stderr), "{done:?}");
    assert_eq!(gateway.changes().await.len(), 1, "{done:?}");
    fs::remove_dir_all(&bodies).unwrap();
    assert_no_secret(folder.path());
}
