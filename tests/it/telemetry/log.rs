//! JSON log: a message can be traced from its request to the commit, and no log line contains a possible
//! credential.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{
    fixtures,
    gateway::{Gateway, command},
    subscription_fixture::event,
};

fn start(folder: &Path, format: &str, log: &Path) -> Gateway {
    let mut command = command();
    command.env("TIDINGS_LOG__FORMAT", format).env("TIDINGS_LOG__FILTER", "tidings=trace");
    command.stderr(fs::File::create(log).unwrap());
    Gateway::start_as(command, &folder.join("data"), &["--listen", "127.0.0.1:0"])
}

fn line<'l>(lines: &'l [Value], message: &str) -> &'l Value {
    lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("no line {message:?} in {lines:#?}"))
}

#[tokio::test]
async fn log_traces_a_message_from_request_to_commit() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let gateway = start(folder.path(), "json", &log);
    let message = fs::read(fixtures::folder("content-change").join("seed-ingest.xml")).unwrap();
    let hook = format!("{}/hooks/content-change", gateway.url);
    let sent = gateway.http.post(hook).header("x-request-id", "proxy-7").body(message).send().await.unwrap();
    assert_eq!((sent.status().as_u16(), &sent.headers()["x-request-id"]), (201, &"proxy-7".parse().unwrap()));
    let response: Value = serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap();
    let alive = gateway.http.get(format!("{}/healthz", gateway.url)).send().await.unwrap();
    assert_eq!(alive.headers()["x-request-id"].len(), 36);
    gateway.post("fedora3", "text/xml", "no XML").await;
    assert!(gateway.stop().success());

    let text = fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accepted = line(&lines, "change appended to the journal");
    assert_eq!((&accepted["change"], &accepted["seq"]), (&response["changes"][0]["id"], &json!(1)));
    assert_eq!((&accepted["source"], &accepted["level"]), (&json!("content-change"), &json!("DEBUG")));
    let spans = json!([
        { "name": "request", "id": "proxy-7", "method": "POST", "route": "/hooks/{source}" },
        { "name": "intake", "source": "content-change" },
    ]);
    assert_eq!(accepted["spans"], spans);
    let batch = line(&lines, "a batch is on disk");
    assert_eq!((&batch["first_seq"], &batch["last_seq"], &batch["changes"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(line(&lines, "answered")["status"], 201);
    let refused = line(&lines, "message quarantined");
    assert_eq!((&refused["level"], &refused["source"]), (&json!("WARN"), &json!("fedora3")));
}

#[tokio::test]
async fn log_contains_no_credentials() {
    for format in ["json", "text"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let gateway = start(folder.path(), format, &log);
        for path in [
            "/feed?since=hush-hush",
            "/changes?after=hush-hush",
            "/changes/hush-hush",
            "/hush-hush",
            "/hush-hush?hush-hush=1",
            "/objects?uri=hush-hush",
            "/quarantine/hush-hush",
        ] {
            let request = gateway.http.get(format!("{}{path}", gateway.url)).bearer_auth("hush-hush");
            let request = request.header("cookie", "hush-hush").header("x-request-id", "hush hush");
            assert!(request.send().await.unwrap().status().is_client_error(), "{path}");
        }
        for path in ["/hooks/hush-hush", "/hooks/fedora3?token=hush-hush"] {
            let posted = gateway.http.post(format!("{}{path}", gateway.url)).basic_auth("hush-hush", Some("hush-hush"));
            assert!(posted.body("no XML").send().await.unwrap().status().is_client_error(), "{path}");
        }
        assert!(gateway.stop().success());
        let text = fs::read_to_string(log).unwrap();
        assert!(text.contains("answered") && text.contains("message quarantined"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}

#[tokio::test]
async fn gateway_works_although_its_log_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    // Each write to this device fails as on a full disk.
    let gateway = Gateway::start_logging(folder.path(), &[], Path::new("/dev/full"));
    let (status, answer) = gateway.post("content-change", "application/json", event(1).to_string()).await;
    assert_eq!(status, 201, "{answer}");
    assert!(gateway.stop().success());
}
