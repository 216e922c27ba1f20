//! Copies of journals that were restored, or have few changes left.

use tidings::journal::store::sqlite::{backup::back_up, restore::restore};

use super::{WebServer, post, publish, seen};
use crate::support::{
    gateway::{Gateway, PATIENCE},
    views_fixture::ViewedGateway,
};

/// Starts the gateway again, with the same folder.
fn start(config: std::path::PathBuf, folder: tempfile::TempDir) -> ViewedGateway {
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
    ViewedGateway { gateway, config, folder }
}

/// A restore skips the numbers of lost changes, and therefore pages.
#[tokio::test]
async fn restored_journal_is_published_from_its_oldest_to_its_newest_change() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway = ViewedGateway::start(&server.lines("[publish.view]\npublic = false\n"));
    for number in 1..=230 {
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    let ViewedGateway { gateway, config, folder: data } = gateway;
    let backup = data.path().join("backup");
    back_up(&data.path().join("data"), &backup, &mut |_, _| {}).unwrap();
    assert!(gateway.stop().success());
    restore(&backup, &data.path().join("data"), true, &mut |_, _| {}).unwrap();
    let gateway = start(config, data);
    for number in 1001..=1250 {
        let (code, _, stderr) = if number % 50 == 1 { publish(&gateway) } else { (0, String::new(), String::new()) };
        assert_eq!(code, 0, "{number}: {stderr}");
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    let expected = seen(&gateway, "reader").await;
    assert!(expected.len() == 480 && *expected.keys().last().unwrap() > 1000, "numbers are skipped");
    assert_eq!(server.walk().await.0, expected);
}

#[tokio::test]
async fn journal_with_few_changes_left_is_published() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let lines = server.lines("[publish.view]\npublic = false\n");
    let gateway = ViewedGateway::start(&lines);
    for number in 1..=350 {
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    gateway.configure(&format!("{lines}[journal]\nkeep_changes = 3\n"));
    let ViewedGateway { gateway, config, folder: data } = gateway;
    assert!(gateway.stop().success());
    let gateway = start(config, data);
    let began = std::time::Instant::now();
    while gateway.get("/changes?limit=1", Some("reader")).await.json()["changes"][0]["seq"] != 348 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (code, _, stderr) = publish(&gateway);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(server.walk().await.0, seen(&gateway, "reader").await);
    assert!(server.files().keys().all(|name| !name.starts_with("feed/")), "{:?}", server.files());
}
