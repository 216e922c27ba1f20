//! The content of the copy: the same changes as at the gateway, as the public sees them unless the operator says otherwise.

use std::fs;

use super::{WebServer, post, publish, seen};
use crate::support::{
    gateway::{Gateway, client},
    views_fixture::{SECRET, ViewedGateway, token},
};

const PUBLIC: &str = "view = { public = true }";

#[tokio::test]
async fn web_server_serves_the_changes_that_the_public_sees() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway = ViewedGateway::start(&server.lines(&token("public", "read", PUBLIC)));
    // The gateway publishes when it starts, too.
    assert_eq!(publish(&gateway).0, 0);
    for number in 1..=350 {
        post(&gateway, number).await;
    }
    let (code, stdout, stderr) = publish(&gateway);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.ends_with("goes up to change 350: 3 documents written, 0 files removed\n"), "{stdout}");
    let (found, documents) = server.walk().await;
    assert_eq!(found, seen(&gateway, "public").await);
    assert_eq!((found.len(), documents), (234, 3), "pages 1 and 2, and the page 3 with what follows");
    let files = server.files();
    assert!(files.keys().all(|name| !name.starts_with(".unfinished/")), "{files:?}");
    for name in files.keys() {
        let bytes = fs::read(server.folder.join(name)).unwrap();
        let text = if name.ends_with(".gz") {
            std::io::read_to_string(flate2::read::GzDecoder::new(&bytes[..])).unwrap()
        } else {
            String::from_utf8(bytes).unwrap()
        };
        assert!(!text.contains(SECRET), "{name}");
    }
    // Closed files are cached for ever, and compressed files are sent as they are.
    let closed = files.keys().find(|name| name.ends_with("/1.atom")).unwrap();
    let request = |name: &str| client().get(format!("{}/{name}", server.url)).header("accept-encoding", "gzip").send();
    let response = request(closed).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(response.bytes().await.unwrap(), fs::read(server.folder.join(format!("{closed}.gz"))).unwrap());
    let response = request("feed.atom").await.unwrap();
    assert_eq!(response.headers()["cache-control"], "no-cache");
    assert_eq!(request("feed.css").await.unwrap().headers()["content-type"], "text/css");
    let index: serde_json::Value = request("publication.json").await.unwrap().json().await.unwrap();
    assert_eq!((index["head"].as_u64(), index["faces"]["feed"]["last"].as_u64()), (Some(350), Some(2)));
    assert_eq!(index["journal"], gateway.get("/changes?limit=1", Some("reader")).await.json()["journal"]);
}

#[tokio::test]
async fn closed_documents_are_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway = ViewedGateway::start(&server.lines("[publish.view]\npublic = false\n"));
    for number in 1..=320 {
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    let before = server.files();
    let (_, stdout, _) = publish(&gateway);
    assert!(stdout.contains(": 0 documents written"), "{stdout}");
    assert_eq!(server.files(), before, "nothing is new");
    for number in 321..=530 {
        post(&gateway, number).await;
    }
    let (_, stdout, _) = publish(&gateway);
    assert!(stdout.contains("change 530: 3 documents written, 0 files removed"), "{stdout}");
    let after = server.files();
    for (name, time) in before.iter().filter(|(name, _)| name.starts_with("feed/")) {
        assert_eq!(after.get(name), Some(time), "{name}");
    }
    assert_ne!(after["feed.atom"], before["feed.atom"]);
    let (found, _) = server.walk().await;
    assert_eq!(found, seen(&gateway, "reader").await, "with users and hidden items, because the operator says so");
}

#[tokio::test]
async fn narrower_view_removes_what_is_hidden_now() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway = ViewedGateway::start(&server.lines("[publish.view]\npublic = false\n"));
    for number in 1..=220 {
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    let old: Vec<_> = server.files().into_keys().filter(|name| name.starts_with("feed/")).collect();
    assert!(!old.is_empty());
    gateway.configure(&server.lines(""));
    let ViewedGateway { gateway, config, folder: data } = gateway;
    assert!(gateway.stop().success());
    let gateway = Gateway::start_with(&data.path().join("data"), &["--config", config.to_str().unwrap()]);
    let gateway = ViewedGateway { gateway, config, folder: data };
    // The run at the start may have done it before.
    assert_eq!(publish(&gateway).0, 0);
    let now = server.files();
    assert!(old.iter().all(|name| !now.contains_key(name)), "{old:?} {now:?}");
    assert!(now.keys().any(|name| name.starts_with("feed/")));
    assert_eq!(server.walk().await.0.len(), 147);
}

#[tokio::test]
async fn without_a_table_nothing_is_published() {
    let gateway = ViewedGateway::start("");
    let (code, _, stderr) = publish(&gateway);
    assert!(code == 1 && stderr.contains("Nothing is published. Set publish.folder or publish.s3."), "{stderr}");
}
