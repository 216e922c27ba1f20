//! Webhook subscriptions created over HTTP: allowed destinations, allowed references to the environment, and no
//! secret in any output.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, command},
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    subscription_fixture::post,
    webhook_fixture::{NEXT_SECRET, SECRET},
};

const PASSWORD: &str = "hush-hush-1";
const QUERY: &str = "key=hush-hush-2";

/// Starts a gateway with secrets and an unreachable proxy in its environment. Its complete log is in
/// `folder/log`.
fn gateway(folder: &Path, lines: &str, url: &str) -> Gateway {
    let mut serve = command();
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        serve.env(proxy, "http://127.0.0.1:1");
    }
    serve.env_remove("no_proxy").env_remove("NO_PROXY");
    serve.env("TIDINGS_LOG__FILTER", "trace").env("TIDINGS_SECRET_KEY", SECRET).env("TIDINGS_SECRET_URL", url);
    serve.env("ELSEWHERE", SECRET);
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    serve.stderr(log);
    let config = configuration(folder, lines);
    Gateway::start_as(serve, &folder.join("data"), &["--listen", "127.0.0.1:0", "--config", &config])
}

fn definition(url: &Value) -> Value {
    json!({ "delivery": "webhook", "format": "json", "start": "beginning", "url": url,
        "secrets": [{ "env": "TIDINGS_SECRET_KEY" }] })
}

#[tokio::test]
async fn webhook_created_over_http_is_limited_to_allowed_destinations() {
    let inside = Receiver::start(|_, _| Reply::of(200)).await;
    let port = inside.address.port();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "", "");
    post(&gateway, 1).await;
    for (url, text) in [
        (format!("http://127.0.0.1:{port}/"), "a loopback address"),
        (format!("https://127.0.0.1:{port}/"), "a loopback address"),
        (format!("https://127.1:{port}/"), "a loopback address"),
        (format!("https://2130706433:{port}/"), "a loopback address"),
        (format!("https://[::ffff:127.0.0.1]:{port}/"), "a loopback address"),
        (format!("https://[64:ff9b::127.0.0.1]:{port}/"), "a loopback address"),
        (format!("https://localhost:{port}/"), "the host of the gateway itself"),
        ("https://169.254.169.254/latest/".to_owned(), "link-local"),
        ("https://10.0.0.1/".to_owned(), "private"),
        ("https://[fd00::1]/".to_owned(), "unique local"),
        ("http://indexer.example.org/".to_owned(), "not encrypted"),
        ("ftp://indexer.example.org/".to_owned(), "neither"),
        (format!("https://me:{PASSWORD}@indexer.example.org/"), "it has a password"),
    ] {
        let (status, problem) = gateway.ask("PUT", "/subscriptions/new", Some(definition(&json!(url)))).await;
        assert_eq!((status, &problem["key"]), (422, &json!("url")), "{url}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(text) && !detail.contains(PASSWORD), "{url}: {detail}");
    }
    for (secrets, text) in [
        (json!([SECRET]), "it would be stored in the journal"),
        (json!([{ "env": "ELSEWHERE" }]), "only variables whose names begin with TIDINGS_SECRET_"),
        (json!([{ "file": "/etc/hostname" }]), "only the configuration file may name a file"),
        (json!([{ "env": "TIDINGS_SECRET_NONE" }]), "is not set"),
        (json!(SECRET), "give a list"),
    ] {
        let mut wrong = definition(&json!("https://indexer.example.org/"));
        wrong["secrets"] = secrets;
        let (status, problem) = gateway.ask("PUT", "/subscriptions/new", Some(wrong)).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 422 && detail.contains(text) && !detail.contains(SECRET), "{problem}");
    }
    let mut batches = definition(&json!("https://indexer.example.org/"));
    (batches["format"], batches["max_batch"]) = (json!("atom"), json!(5));
    let (status, problem) = gateway.ask("PUT", "/subscriptions/new", Some(batches)).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        status == 422 && detail.contains("the format atom cannot join changes; give 1, or the format json"),
        "{problem}"
    );
    assert_eq!(inside.connections(), 0);
    assert!(gateway.stop().success());

    // A destination on the allow list is reached without the proxy.
    let lines = "[delivery]\nallow = [\"127.0.0.1\"]\n";
    let gateway = self::gateway(folder.path(), lines, "");
    let made = gateway.ask("PUT", "/subscriptions/new", Some(definition(&json!(inside.url())))).await;
    assert_eq!(made.0, 201, "{}", made.1);
    gateway.until_at("new", 1).await;
    assert!(inside.requests()[0].is_signed_with(SECRET));
    assert!(gateway.stop().success());

    // After its destination is removed from the allow list, the subscription remains and reports the reason for
    // its failure.
    let gateway = self::gateway(folder.path(), "", "");
    let status_json = gateway.json("/subscriptions/new").await;
    let reason = status_json["lastError"]["reason"].as_str().unwrap();
    assert!(status_json["state"] == "failed" && reason.contains("a loopback address"), "{status_json:#}");
}

#[tokio::test]
async fn webhook_secrets_appear_in_no_output() {
    crate::support::needs_sqlite();
    // The receiver repeats the request in its response, as some servers do.
    let echoes = |nth, request: &crate::support::http_receiver::ReceivedRequest| {
        let value = QUERY.split_once('=').unwrap().1;
        let (path, signature) = (&request.path, request.header("webhook-signature"));
        let text = format!("{path} {} {signature}; unknown key {value}", request.header("authorization"));
        match nth {
            0 => Reply::Answer(500, vec![("location", request.path.clone())], text),
            1 => Reply::Close,
            _ => Reply::Answer(200, Vec::new(), text),
        }
    };
    let receiver = Receiver::start(echoes).await;
    let url = format!("http://me:{PASSWORD}@{}/in?{QUERY}", receiver.address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    fs::write(&file, NEXT_SECRET).unwrap();
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.0/8\"]\n[subscriptions.config]\ndelivery = \"webhook\"\nformat = \"json\"\n\
         start = \"beginning\"\nurl = \"{url}\"\nsecrets = [\"{SECRET}\", {{ file = \"{}\" }}]\n",
        file.display()
    );
    let gateway = gateway(folder.path(), &lines, &url);
    let (status, made) =
        gateway.ask("PUT", "/subscriptions/api", Some(definition(&json!({ "env": "TIDINGS_SECRET_URL" })))).await;
    assert_eq!(status, 201, "{made}");
    let mut answers = made.to_string();
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    gateway.until_at("config", 3).await;
    gateway.until_at("api", 3).await;
    for path in [
        "/subscriptions",
        "/subscriptions/config",
        "/subscriptions/api",
        "/subscriptions/config/attempts",
        "/subscriptions/api/attempts",
        "/subscriptions/api/dead-letters",
        "/openapi.json",
    ] {
        answers += &gateway.json(path).await.to_string();
    }
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap();
    answers += &metrics.text().await.unwrap();
    let credentials = STANDARD.encode(format!("me:{PASSWORD}"));
    assert_eq!(receiver.requests()[0].header("authorization"), format!("Basic {credentials}"));
    assert_eq!(receiver.requests()[0].path, format!("/in?{QUERY}"));
    let status_json = format!("http://{}/in?(hidden)", receiver.address);
    assert!(answers.contains(&status_json) && answers.contains("/in?(secret) Basic (secret)"), "{answers}");
    assert!(gateway.stop().success());
    // `tidings check` prints no secret either, whether the configuration is valid or not.
    for (from, to, code) in [("", "", 0), ("format = \"json\"", "window = 7", 2), (SECRET, "hush-hush-2", 2)] {
        let changed = folder.path().join("changed.toml");
        fs::write(&changed, lines.replacen(from, to, 1)).unwrap();
        let checked = command().args(["check", "--config", changed.to_str().unwrap()]).output().unwrap();
        assert_eq!(checked.status.code(), Some(code), "{checked:?}");
        answers += &String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat());
    }
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("TRACE") && log.contains("delivery failed; retrying"), "the log is not what it should be");
    let journal: Vec<u8> = fs::read_dir(folder.path().join("data"))
        .unwrap()
        .flat_map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default())
        .collect();
    assert!(journal.windows(10).any(|part| part == b"TIDINGS_SE"), "the journal has lost a change");
    let key = |secret: &str| secret.trim_start_matches("whsec_").to_owned();
    let raw = |secret: &str| format!("{:?}", STANDARD.decode(key(secret)).unwrap());
    for secret in
        [PASSWORD, QUERY, "hush-hush-2", &credentials, &key(SECRET), &key(NEXT_SECRET), &raw(SECRET), &raw(NEXT_SECRET)]
    {
        for (what, text) in [("an answer", answers.as_bytes()), ("the log", log.as_bytes()), ("the journal", &journal)]
        {
            let at = text.windows(secret.len()).position(|part| part == secret.as_bytes());
            let around = at
                .map(|at| String::from_utf8_lossy(&text[at.saturating_sub(300)..text.len().min(at + 80)]).into_owned());
            assert_eq!(around, None, "{secret} is in {what}");
        }
    }
}
