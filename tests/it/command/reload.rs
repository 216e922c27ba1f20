//! A reload of the configuration: every setting takes effect, no request is lost, and a wrong configuration changes nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    subscription_fixture::event,
    webhook_fixture::webhook,
};

struct Reloaded {
    gateway: Gateway,
    config: PathBuf,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Reloaded {
    fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (config, log) = (folder.path().join("tidings.toml"), folder.path().join("log"));
        fs::write(&config, lines).unwrap();
        let mut gateway =
            Gateway::start_logging(&folder.path().join("data"), &["--config", config.to_str().unwrap()], &log);
        // A client that sends over an open connection while the gateway closes it has to send again, as at every server.
        gateway.http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Self { gateway, config, log, _folder: folder }
    }

    fn config(&self) -> &Path {
        &self.config
    }

    async fn until_logged(&self, text: &str) {
        let began = Instant::now();
        while !fs::read_to_string(&self.log).unwrap().contains(text) {
            assert!(began.elapsed() < PATIENCE, "the log lacks {text:?}: {}", fs::read_to_string(&self.log).unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn reload(&self) -> (u16, Value) {
        self.gateway.ask("POST", "/reload", None).await
    }

    async fn post(&self, source: &str, number: u64) -> u16 {
        self.gateway.post(source, "application/json", event(number).to_string()).await.0
    }
}

fn source(name: &str) -> String {
    format!("[sources.{name}]\ntransport = \"http\"\ndialect = \"content-change\"\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_subscriptions_and_limits_change_without_a_lost_message() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let allowed = "[delivery]\nallow = [\"127.0.0.1\"]\n";
    let running = Reloaded::start(&(allowed.to_owned() + &source("old")));
    assert_eq!(running.post("old", 1).await, 201);
    assert_eq!(running.reload().await, (200, json!({ "changed": [] })));

    let (is_done, posted) = (AtomicBool::new(false), AtomicU64::new(0));
    let posting = async {
        // A message is accepted whenever it is sent: connections wait while the gateway begins again.
        while !is_done.load(Ordering::Relaxed) {
            assert_eq!(running.post("content-change", 100 + posted.load(Ordering::Relaxed)).await, 201);
            posted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let changing = async {
        let lines = allowed.to_owned()
            + &source("new")
            + "[limits]\nbody_bytes = 70000\n"
            + &webhook("index", &receiver.url(), "");
        fs::write(running.config(), lines).unwrap();
        assert_eq!(running.reload().await, (200, json!({ "changed": ["limits", "sources", "subscriptions"] })));
        running.until_logged("the gateway has begun again").await;
        assert_eq!(running.post("new", 2).await, 201);
        assert_eq!(running.post("old", 3).await, 404);
        receiver.until(2).await;
        let large = running.gateway.post("new", "application/json", " ".repeat(80_000)).await;
        assert_eq!(large.0, 413, "{}", large.1);
        is_done.store(true, Ordering::Relaxed);
    };
    tokio::join!(posting, changing);
    let head = running.gateway.head().await;
    assert_eq!(head, 2 + posted.load(Ordering::Relaxed));
    running.gateway.until_at("index", head).await;
    assert!(running.gateway.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_configuration_changes_nothing_and_a_revoked_token_opens_nothing() {
    let token = |name: &str, token: &str| {
        let digest = tidings::web::Secret::new(token);
        let sha256 = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(digest.expose()));
        format!("[access.tokens.{name}]\nsha256 = \"{sha256}\"\nscopes = [\"admin\"]\n")
    };
    let (first, second) = ("tdg_first_token_of_the_test", "tdg_second_token_of_the_test");
    let running = Reloaded::start(&(token("first", first) + &token("second", second)));
    let ask = async |path: &str, token: &str, method: reqwest::Method| {
        let request = running.gateway.http.request(method, format!("{}{path}", running.gateway.url));
        let response = request.bearer_auth(token).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    fs::write(running.config(), "[server]\ngrace = \"x\"\n[log]\nfiltr = 1\n").unwrap();
    let (status, problem) = ask("/reload", first, reqwest::Method::POST).await;
    assert!(status == 422 && problem.contains("invalid-configuration"), "{problem}");
    assert!(problem.contains("filtr") && problem.contains("line 2"), "all errors, with lines: {problem}");
    running.gateway.signal("HUP");
    running.until_logged("cannot reload the configuration; continuing with the former one").await;
    assert_eq!(ask("/changes", second, reqwest::Method::GET).await.0, 200);

    // The certificate exists only when the gateway begins, so the configuration is right.
    let missing = "[server.tls]\ncertificate = \"/no/such/file\"\nkey = \"/no/such/file\"\n";
    fs::write(running.config(), token("first", first) + missing).unwrap();
    assert_eq!(ask("/reload", first, reqwest::Method::POST).await.0, 200);
    running.until_logged("cannot begin with the new configuration; beginning again with the former one").await;
    running.until_logged("the gateway has begun again").await;
    assert_eq!(ask("/changes", second, reqwest::Method::GET).await.0, 200);

    // A reader that was admitted by the token is cut off.
    let stream = running.gateway.http.get(format!("{}/stream", running.gateway.url)).bearer_auth(second);
    let mut stream = stream.send().await.unwrap();
    fs::write(running.config(), token("first", first)).unwrap();
    running.gateway.signal("HUP");
    let cut = tokio::time::timeout(PATIENCE, async { while let Ok(Some(_)) = stream.chunk().await {} }).await;
    assert!(cut.is_ok(), "the stream of a revoked token ends");
    let began = Instant::now();
    while ask("/changes", second, reqwest::Method::GET).await.0 != 401 {
        assert!(began.elapsed() < PATIENCE, "the token is revoked");
    }
    assert_eq!(ask("/changes", first, reqwest::Method::GET).await.0, 200);
}
