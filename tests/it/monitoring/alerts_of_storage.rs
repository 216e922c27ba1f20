//! Alert rules about the disk, the journal and the quarantine.

use std::fs;

use super::alerts::{until, until_problem};
use crate::support::{
    gateway::{Gateway, command},
    promtool::Recording,
    small_disk::SmallDisk,
    subscription_fixture::event,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_is_reported_before_it_is_full_and_the_journal_when_it_is() {
    let disk = SmallDisk::of(64);
    let gateway = Gateway::start(&disk.path().join("data"));
    let mut recording = Recording::every(1800);
    for (megabytes, times) in [(1_u64, 2), (30, 2), (50, 4)] {
        fs::write(disk.path().join("large"), vec![0; usize::try_from(megabytes << 20).unwrap()]).unwrap();
        let free = (64 - megabytes) << 20;
        until(&gateway, |line| {
            let value = line.strip_prefix("tidings_disk_free_bytes ").and_then(|value| value.parse::<u64>().ok());
            value.is_some_and(|value| value <= free && value + (8 << 20) > free)
        })
        .await;
        recording.scrape(&gateway, times).await;
    }
    recording.fires(&["TidingsDiskFillsUp"]);
    let filling = disk.fill();
    assert_eq!(gateway.post("content-change", "application/json", event(1).to_string()).await.0, 503);
    until_problem(&gateway, "journal-unavailable", 1).await;
    until_problem(&gateway, "disk-nearly-full", 1).await;
    // The counter grows with each message.
    let mut recording = Recording::every(60);
    recording.scrape(&gateway, 8).await;
    assert_eq!(gateway.post("content-change", "application/json", event(2).to_string()).await.0, 503);
    recording.scrape(&gateway, 8).await;
    recording.fires(&[
        "TidingsJournalFails reason=full",
        "TidingsProblem code=journal-unavailable",
        "TidingsWarning code=disk-nearly-full",
    ]);
    fs::remove_file(filling).unwrap();
}

#[tokio::test]
async fn quarantine_that_drops_messages_is_reported() {
    let data = tempfile::tempdir().unwrap();
    let mut serve = command();
    serve.env("TIDINGS_LIMITS__QUARANTINE_ENTRIES", "1").stderr(std::process::Stdio::null());
    let gateway = Gateway::start_as(serve, data.path(), &["--listen", "127.0.0.1:0"]);
    let mut recording = Recording::every(60);
    recording.scrape(&gateway, 10).await;
    for body in ["{", "{{"] {
        assert_eq!(gateway.post("content-change", "application/json", body).await.0, 400);
    }
    until(&gateway, |line| line == "tidings_quarantine_dropped_total 1").await;
    until_problem(&gateway, "quarantine", 1).await;
    until_problem(&gateway, "quarantine-full", 1).await;
    recording.scrape(&gateway, 20).await;
    recording.fires(&[
        "TidingsProblem code=quarantine-full",
        "TidingsQuarantineDrops",
        "TidingsWarning code=quarantine",
    ]);
}

#[tokio::test]
async fn size_of_the_journal_is_that_of_its_files() {
    crate::support::needs_sqlite();
    let data = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(data.path());
    assert_eq!(gateway.post("content-change", "application/json", event(1).to_string()).await.0, 201);
    let size = |name: &str| fs::metadata(data.path().join(name)).map_or(0, |file| file.len());
    let size = || size("journal.sqlite") + size("journal.sqlite-wal");
    until(&gateway, |line| line == format!("tidings_journal_size_bytes {}", size())).await;
    assert_eq!(gateway.json("/status").await["journal"]["bytes"], size());
}
