//! Pictures of the page, of real states with real causes, for people who look at its design. They are in the folder that
//! the environment variable `TIDINGS_TEST_SCREENSHOTS` names, otherwise in `target/screenshots`. `docs/page.png` is the first.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    breakable_proxy::{BreakableProxy, Link},
    browser::Browser,
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    scripted_repository::ScriptedRepository,
    subscription_fixture::{gateway, post_event},
    webhook_fixture::webhook,
};

/// Name under which the browser knows the gateway, so that the pictures do not depend on its port.
const HOST: &str = "tidings.example.org";

fn folder() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::var_os("TIDINGS_TEST_SCREENSHOTS").map_or(root.join("target/screenshots"), PathBuf::from);
    fs::create_dir_all(&folder).unwrap();
    folder
}

impl OpenPage {
    /// Opens a part, waits until it says a text, and stores its picture.
    fn picture(&mut self, name: &str, route: &str, text: &str) {
        self.go(route);
        self.until_loaded();
        self.until_says("main > div", text);
        // What the last operation said is gone.
        self.value("[...document.querySelectorAll('#notice button')].forEach(button => button.click())");
        let picture = self.browser.picture(name != "overview");
        assert!(picture.starts_with(b"\x89PNG"));
        fs::write(folder().join(format!("{name}.png")), picture).unwrap();
    }
}

/// Posts the events of a library: maps whose sheets are digitised, corrected and withdrawn.
async fn work(gateway: &Gateway) {
    for number in 1700..1740 {
        let object = format!("https://archive.example.org/maps/{number}");
        let sheet = format!("{object}/sheet.tif");
        let steps: &[&str] = if number % 4 == 0 { &["ADD", "UPDATE", "DELETE"] } else { &["ADD"] };
        for change in steps {
            let content = json!({ "url": sheet, "mediaType": "image/tiff", "size": 48_211_032 });
            let mut items = vec![json!({ "uri": sheet, "change": change })];
            if *change == "ADD" {
                items[0]["content"] = content;
                items.push(json!({ "uri": format!("{object}/text.pdf"), "change": "ADD" }));
            }
            post_event(gateway, &json!({ "object": object, "user": { "name": "Ann" }, "items": items })).await;
        }
    }
    let unreadable: [Value; 2] = [
        json!({ "object": "https://archive.example.org/maps/1", "items": [{ "uri": "https://archive.example.org/maps/1/sheet.tif", "change": "NEW" }] }),
        json!({ "objekt": "https://archive.example.org/maps/2" }),
    ];
    for body in unreadable.iter().cycle().take(7) {
        assert_eq!(gateway.post("content-change", "application/json", body.to_string()).await.0, 422);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_the_page() {
    let repository = ScriptedRepository::start(2000).await;
    repository.script().response_time = Duration::from_millis(400);
    let away = BreakableProxy::start(1);
    away.set_link(Link::Refusing);
    let (solr, index, mirror) = (
        Receiver::start(|_, _| Reply::of(503)).await,
        Receiver::start(|_, _| Reply::of(200)).await,
        Receiver::start(|_, _| Reply::of(422)).await,
    );
    let lines = format!(
        "[server]\npublic_url = \"http://{HOST}/\"\n[delivery]\nallow = [\"127.0.0.1\"]\n\
         [sources.fedora]\ntransport = \"stomp\"\ndialect = \"fedora-events\"\nurl = \"stomp://127.0.0.1:{}\"\n\
         destination = \"/topic/fedora\"\ndurable = \"tidings\"\n[sources.fedora3]\nenabled = false\n\
         [sources.theses]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\nevery = \"1h\"\n{}{}{}",
        away.port,
        repository.url(),
        webhook("solr", &solr.url(), ""),
        webhook("index", &index.url(), ""),
        webhook("mirror", &mirror.url(), "refused_statuses = [422]\nfilter = { changes = [\"DELETE\"] }"),
    );
    let data = tempfile::tempdir().unwrap();
    let gateway = gateway(data.path(), &lines);
    work(&gateway).await;
    let port = gateway.url.rsplit(':').next().unwrap();
    let mut browser = Browser::start_with(&[&format!("--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{port}")]);
    browser.watch();
    browser.resize(1120, 900);
    let url = format!("http://{HOST}/");
    browser.go(&url);
    let mut page = OpenPage { browser, url };
    for text in ["fedora is not read", "solr does not deliver", "mirror has messages", "in the quarantine"] {
        page.until_verdict(text);
    }
    gateway.until("mirror", "it has refused all", |shown| shown["lag"]["changes"] == 0).await;
    page.until_says("svg", "✗ waiting");
    page.until_says("svg", "s ago");
    page.picture("overview", "", "Newest changes");
    page.picture("failing", "subscriptions/solr", "it responded with 503");
    page.picture("quarantine", "quarantine", "NEW");
    page.picture("harvest", "sources/theses", "records");
    page.picture("life", "objects?uri=https%3A%2F%2Farchive.example.org%2Fmaps%2F1704", "UPDATE");
    page.browser.emulate("prefers-color-scheme", "dark");
    page.picture("dark", "", "Newest changes");
    page.browser.emulate("prefers-color-scheme", "light");
    page.browser.resize(360, 800);
    page.picture("narrow", "", "Newest changes");
    page.picture("narrow-quarantine", "quarantine", "Messages");
    // A browser first tries the name over https, which nobody answers.
    assert_eq!(page.browser.complaints(), Vec::<String>::new());
}
