//! Files of the journal that are removed or replaced while the gateway has them open: nothing is acknowledged that would
//! be lost, the gateway is not ready, and it recovers when the files are back.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{event, journal_file, post, run, stderr, verify_ok},
};

async fn readiness(gateway: &Gateway) -> (u16, Value) {
    let answer = gateway.http.get(format!("{}/readyz", gateway.url)).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn assert_refused(gateway: &Gateway, number: u64, reason: &str) {
    let (status, problem) = gateway.post("content-change", "application/json", event(number).to_string()).await;
    assert_eq!(status, 503, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
    let (status, problem) = readiness(gateway).await;
    assert_eq!(status, 503);
    assert!(problem["detail"].as_str().unwrap().contains(reason), "{problem}");
}

/// Returns how often the log contains a text.
fn count(log: &Path, text: &str) -> usize {
    fs::read_to_string(log).unwrap().matches(text).count()
}

#[tokio::test]
async fn displaced_file_stops_writing_until_it_is_back() {
    crate::support::needs_sqlite();
    for name in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.lock", ""] {
        let folder = tempfile::tempdir().unwrap();
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        let gateway = Gateway::start_logging(&data, &[], &log);
        for number in 1..=5 {
            post(&gateway, number).await;
        }
        let (file, away) = (data.join(name), folder.path().join("away"));
        fs::rename(&file, &away).unwrap();
        // The difference is noticed without a write.
        let began = Instant::now();
        while count(&log, "the journal accepts no writes") == 0 {
            assert!(began.elapsed() < PATIENCE, "{name}: nothing was logged");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_refused(&gateway, 6, "was removed while the gateway has it open").await;
        if !name.is_empty() {
            fs::write(&file, "").unwrap();
            assert_refused(&gateway, 6, "was replaced while the gateway has it open").await;
            fs::remove_file(&file).unwrap();
        }
        assert_eq!(gateway.changes().await.len(), 5, "{name}: reading continues");
        assert_eq!(count(&log, "the journal accepts no writes"), 1, "{name}: it is logged once");
        fs::rename(&away, &file).unwrap();
        assert_eq!(readiness(&gateway).await.0, 200, "{name}");
        assert_eq!(post(&gateway, 6).await, 6);
        assert_eq!(count(&log, "at their paths again"), 1, "{name}");
        assert!(gateway.stop().success());
        assert_eq!(verify_ok(&journal_file(&data)).changes, 6);
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_after_the_file_was_removed() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    post(&gateway, 1).await;
    fs::remove_file(journal_file(folder.path())).unwrap();
    for number in 2..=20 {
        assert_refused(&gateway, number, "was removed").await;
    }
}

#[tokio::test]
async fn stop_leaves_the_files_of_another_journal_alone() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, other) = (folder.path().join("data"), folder.path().join("other"));
    let mut killed = Gateway::start(&other);
    post(&killed, 1).await;
    killed.kill();
    let gateway = Gateway::start(&data);
    post(&gateway, 1).await;
    fs::rename(&data, folder.path().join("away")).unwrap();
    fs::rename(&other, &data).unwrap();
    let log = fs::read(data.join("journal.sqlite-wal")).unwrap();
    assert!(gateway.stop().success());
    assert_eq!(fs::read(data.join("journal.sqlite-wal")).unwrap(), log);
    assert_eq!(Gateway::start(&data).head().await, 1);
    assert_eq!(Gateway::start(&folder.path().join("away")).head().await, 1);
}

#[tokio::test]
async fn second_gateway_after_a_removed_lock_file_writes_alone() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(folder.path());
    post(&first, 1).await;
    fs::remove_file(folder.path().join("journal.lock")).unwrap();
    let second = Gateway::start(folder.path());
    assert_eq!(post(&second, 2).await, 2);
    assert_refused(&first, 3, "journal.lock was replaced").await;
    assert_eq!(post(&second, 3).await, 3);
    assert!(first.stop().success());
    assert_eq!(post(&second, 4).await, 4);
    assert!(second.stop().success());
    let ended = run("verify", &[Path::new("--data"), folder.path()]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert_eq!(Gateway::start(folder.path()).head().await, 4);
}
