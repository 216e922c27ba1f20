//! Harvests by the program.

use std::time::{Duration, Instant};

use chrono::Timelike;
use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    harvest_fixture::{configuration, expected},
    journal_fixture::{journal_file, verify_ok},
    scripted_repository::{Misbehaviour, ScriptedRepository, identifier},
};

/// Waits until the newest run meets a condition, and returns it.
async fn wait_for_run(gateway: &Gateway, condition: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let harvest = gateway.json("/harvests/scripted").await;
        if condition(&harvest) {
            return harvest;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_finished(harvest: &Value) -> bool {
    harvest["state"] == "finished"
}

#[tokio::test]
async fn harvest_is_listed_run_and_counted() {
    crate::support::needs_sqlite();
    let repository = ScriptedRepository::start(25).await;
    let folder = tempfile::tempdir().unwrap();
    let url = repository.url().replace("http://", "http://user:hush-hush@");
    let config = configuration(folder.path(), &url, "");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let harvest = wait_for_run(&gateway, is_finished).await;
    assert_eq!(harvest["run"]["changes"], 25, "{harvest}");
    let list = gateway.json("/harvests").await;
    assert_eq!(list["harvests"][0]["source"], "scripted");
    let place = format!("oai_dc of {}", repository.url());
    assert_eq!(list["harvests"][0]["place"], place.as_str());
    assert!(!harvest.to_string().contains("hush-hush") && !list.to_string().contains("hush-hush"));
    repository.put_now(&identifier(1), "Changed");
    let run = command().args(["harvests", "run", "scripted", "--gateway", &gateway.url]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let second =
        wait_for_run(&gateway, |harvest| is_finished(harvest) && harvest["runs"][1]["state"] == "completed").await;
    assert_eq!(second["run"]["changes"], 1, "{second}");
    let table = |action: &[&str]| {
        let output = command().arg("harvests").args(action).args(["--gateway", &gateway.url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(table(&["list"]).contains("scripted  finished"), "{}", table(&["list"]));
    assert_eq!(table(&["history", "scripted"]).lines().count(), 3);
    let unknown = command().args(["harvests", "run", "other", "--gateway", &gateway.url]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    for line in [
        "tidings_harvest_runs_total{source=\"scripted\",outcome=\"completed\"} 2",
        "tidings_harvest_records_total{source=\"scripted\",outcome=\"changed\"} 26",
        "tidings_harvest_pages_total{source=\"scripted\"} ",
        "tidings_harvest_last_complete_timestamp_seconds{source=\"scripted\"} ",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    // The time of the last complete run survives a restart.
    let last_complete = |metrics: &str| {
        let name = "tidings_harvest_last_complete_timestamp_seconds{source=\"scripted\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap()
    };
    let before = last_complete(&metrics);
    assert!(before > 1e9, "{before}");
    drop(gateway);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    wait_for_run(&gateway, is_finished).await;
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!((last_complete(&metrics) - before).abs() < 0.001, "{metrics}");
    // A harvested source has no hook.
    let (status, _) = gateway.post("scripted", "text/xml", "<record/>").await;
    assert_eq!(status, 404);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn killed_harvest_continues_without_losing_or_repeating_a_record() {
    crate::support::needs_sqlite();
    let repository = ScriptedRepository::start(3000).await;
    repository.script().page_size = 50;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "");
    let mut pages = 0;
    for _ in 0..4 {
        let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
        let harvest = wait_for_run(&gateway, |harvest| {
            is_finished(harvest) || harvest["run"]["pages"].as_u64().is_some_and(|now| now >= pages + 5)
        })
        .await;
        pages = harvest["run"]["pages"].as_u64().unwrap();
        gateway.kill();
    }
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let harvest = wait_for_run(&gateway, is_finished).await;
    let runs = harvest["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["pages"], &runs[0]["changes"]), (1, &60.into(), &3000.into()), "{harvest}");
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 3000);
    assert_eq!(repository.first_pages().len(), 1);
    let mut objects: Vec<_> = changes.iter().map(|change| change["object"].as_str().unwrap().to_owned()).collect();
    objects.sort();
    let all: Vec<_> = expected(&repository).into_keys().collect();
    assert_eq!(objects, all);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn failed_harvest_is_logged_and_shown() {
    let repository = ScriptedRepository::start(5).await;
    repository.misbehave(&[Misbehaviour::Busy(403, 1000)]);
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "");
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(folder.path(), &["--config", &config], &log);
    let harvest = wait_for_run(&gateway, |harvest| harvest["runs"][0]["state"] == "failed").await;
    assert!(harvest["lastError"]["reason"].as_str().unwrap().contains("refuses access (403"), "{harvest}");
    assert!(gateway.stop().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("harvest has failed"), "{log}");
}

#[tokio::test]
async fn run_begins_in_its_hours_or_on_request() {
    let repository = ScriptedRepository::start(3).await;
    let folder = tempfile::tempdir().unwrap();
    // Six hours from now, so that the test does not depend on the time of the day.
    let hour = (chrono::Utc::now() + chrono::TimeDelta::hours(6)).hour();
    let hours = format!("hours = [\"{hour:02}:00-{hour:02}:30\"]\n");
    let config = configuration(folder.path(), &repository.url(), &hours);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let harvest = wait_for_run(&gateway, |harvest| harvest["state"] == "waiting").await;
    let next = harvest["next"].as_str().unwrap();
    assert!(next.contains(&format!("T{hour:02}:00:00")), "{harvest}");
    assert_eq!(harvest["runs"].as_array().unwrap().len(), 0, "{harvest}");
    let run = command().args(["harvests", "run", "scripted", "--gateway", &gateway.url]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    wait_for_run(&gateway, |harvest| harvest["run"]["state"] == "completed").await;
}
