//! The sealed segments in the copy.

use super::{WebServer, publish};
use crate::support::{
    config_loader::load,
    gateway::{Gateway, PATIENCE, client},
    journal_fixture::OpenJournal,
    views_fixture::ViewedGateway,
};

#[test]
fn segments_of_a_copy_with_a_view_are_refused() {
    let lines = |more: &str| {
        format!("[publish]\nfolder = \"/copy\"\nurl = \"http://h\"\ndocuments = [\"feed\", \"segments\"]\n{more}")
    };
    let error = load(&lines(""), &[]).unwrap_err();
    assert!(error.contains("publish.documents") && error.contains("segments have everything"), "{error}");
    assert!(load(&lines("[publish.view]\npublic = false\n"), &[]).is_ok());
    let error = load(&lines("[publish.view]\npublic = false\n[segments]\nenabled = false\n"), &[]).unwrap_err();
    assert!(error.contains("the gateway seals no segments"), "{error}");
}

#[tokio::test]
async fn segments_are_copied_with_their_bytes_and_removed_when_the_copy_narrows() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway =
        ViewedGateway::start(&server.lines("documents = [\"feed\", \"segments\"]\n[publish.view]\npublic = false\n"));
    let ViewedGateway { gateway, config, folder: data } = gateway;
    assert!(gateway.stop().success());
    let opened = OpenJournal::at(&data.path().join("data"));
    for first in (1..=10_050).step_by(500) {
        opened.append(first..(first + 500).min(10_051)).await;
    }
    opened.close();
    let start = || Gateway::start_with(&data.path().join("data"), &["--config", config.to_str().unwrap()]);
    let gateway = ViewedGateway { gateway: start(), config: config.clone(), folder: tempfile::tempdir().unwrap() };
    let began = std::time::Instant::now();
    let segment = loop {
        let list = gateway.get("/segments", Some("reader")).await.json();
        if let Some(segment) = list["segments"].as_array().unwrap().first() {
            break segment.clone();
        }
        assert!(began.elapsed() < PATIENCE, "nothing is sealed");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(publish(&gateway).0, 0);
    let get = async |url: String| client().get(url).send().await.unwrap();
    let list: serde_json::Value = get(format!("{}/segments.json", server.url)).await.json().await.unwrap();
    let copied = &list["segments"][0];
    assert_eq!((&copied["file"], &list["next"]), (&segment["file"], &segment["lastChange"]));
    let response = get(copied["url"].as_str().unwrap().to_owned()).await;
    assert_eq!(response.headers()["content-type"], "application/zstd");
    let bytes = response.bytes().await.unwrap();
    let original = gateway.request(segment["url"].as_str().unwrap(), Some("reader")).send().await.unwrap();
    assert!(bytes == original.bytes().await.unwrap());
    // A copy without segments.
    let ViewedGateway { gateway, .. } = gateway;
    assert!(gateway.stop().success());
    let text = std::fs::read_to_string(&config).unwrap().replace(", \"segments\"]", "]");
    std::fs::write(&config, text).unwrap();
    let gateway = ViewedGateway { gateway: start(), config: config.clone(), folder: tempfile::tempdir().unwrap() };
    assert_eq!(publish(&gateway).0, 0);
    let files = server.files();
    assert!(files.keys().all(|name| !name.starts_with("segments")), "{files:?}");
    assert!(files.contains_key("feed.atom"));
}
