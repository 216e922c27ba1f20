//! The disk, the journal and the quarantine.

use std::fs;

use serde_json::Value;

use super::{ObservedGateway, until};
use crate::support::{
    command_line::{command, ended},
    small_disk::SmallDisk,
    subscription_fixture::event,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_a_problem_before_and_after_the_last_byte() {
    crate::support::needs_sqlite();
    let disk = SmallDisk::of(64);
    let observed = ObservedGateway::start_in(tempfile::tempdir().unwrap(), disk.path(), "");
    fs::write(disk.path().join("large"), vec![0; 58 << 20]).unwrap();
    observed.shows("disk-nearly-full", "gateway", "MB are free").await;
    let filling = disk.fill();
    // Events are still accepted while the files of the journal have free space.
    let mut number = 0;
    let (status, answer) = loop {
        number += 1;
        let body = event(number).to_string();
        let answered = observed.gateway.post("content-change", "application/json", body).await;
        if answered.0 != 201 {
            break answered;
        }
    };
    assert_eq!(status, 503, "{answer}");
    observed.shows("journal-unavailable", "gateway", "full").await;
    fs::remove_file(filling).unwrap();
    fs::remove_file(disk.path().join("large")).unwrap();
    observed.ends("journal-unavailable", "gateway").await;
    observed.ends("disk-nearly-full", "gateway").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_message_is_a_problem_until_it_is_removed() {
    let observed = ObservedGateway::start("");
    let (status, answer) = observed.gateway.post("content-change", "application/json", "{").await;
    assert_eq!(status, 400, "{answer}");
    observed.shows("quarantine", "source/content-change", "1 message, the newest from").await;
    let id = observed.gateway.json("/quarantine").await["messages"][0]["id"].as_u64().unwrap();
    let message = format!("{}/quarantine/{id}", observed.gateway.url);
    assert!(observed.gateway.http.delete(message).send().await.unwrap().status().is_success());
    observed.ends("quarantine", "source/content-change").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_quarantine_that_deletes_messages_is_a_problem_until_it_has_room() {
    let observed = ObservedGateway::start("[limits]\nquarantine_entries = 2\n");
    for body in ["{", "{{", "{{{", "{{{{"] {
        assert_eq!(observed.gateway.post("content-change", "application/json", body).await.0, 400);
    }
    observed.shows("quarantine-full", "gateway", ": 2 messages").await;
    let newest = observed.gateway.json("/quarantine").await["messages"][0]["id"].as_u64().unwrap();
    assert_eq!(observed.gateway.ask("DELETE", &format!("/quarantine/{newest}"), None).await.0, 204);
    observed.ends("quarantine-full", "gateway").await;
    observed.shows("quarantine", "source/content-change", "1 message").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_of_a_source_that_is_no_longer_configured_is_a_problem() {
    let data = tempfile::tempdir().unwrap();
    let former = "[sources.former]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let before = ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), former);
    assert_eq!(before.gateway.post("former", "application/json", "{").await.0, 400);
    assert!(before.gateway.stop().success());
    let observed = ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), "");
    observed.shows("quarantine", "source/former", "1 message").await;
}

#[tokio::test]
async fn the_last_backup_and_the_reasons_of_the_quarantine_are_shown() {
    crate::support::needs_sqlite();
    let observed = ObservedGateway::start("[journal]\nkeep_days = 30\n");
    let status = observed.status().await;
    assert_eq!((&status["journal"]["lastBackup"], &status["journal"]["keepDays"]), (&Value::Null, &Value::from(30)));
    let data = observed.folder.as_ref().unwrap().path().join("data");
    let backup = observed.folder.as_ref().unwrap().path().join("backup");
    let mut backup_command = command(&["backup", backup.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    let (code, out, error) = ended(backup_command.spawn().unwrap());
    assert_eq!(code, 0, "{out}{error}");
    let time = async || observed.status().await["journal"]["lastBackup"].as_str().map(str::to_owned);
    assert!(until("the time of the backup is known", time).await.starts_with("20"));
    for _ in 0..2 {
        observed.gateway.post("content-change", "application/json", "{").await;
    }
    let reason = async || {
        let status = observed.status().await;
        // The first of the two can be counted alone.
        status["quarantineReasons"].get(0).filter(|reason| reason["messages"] == 2).cloned()
    };
    let reason = until("both messages are counted", reason).await;
    assert_eq!(reason["source"], "content-change", "{reason}");
}
