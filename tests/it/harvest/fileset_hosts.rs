//! Slow hosts of datasets: each has one place among the jobs, whichever URL leads to it, and nothing waits for it for long.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidings::filesets::{RetryRule, WaybackSettings};
use url::Url;

use super::fileset_wayback::{capture_at, index};
use crate::support::{
    dripping_server::DrippingServer,
    gateway::{Gateway, PATIENCE},
    ingest_fixture::{IngestFixture, table},
    journal_fixture::configuration,
    scripted_dataset::DatasetServer,
    scripted_platform::{Answer, PlatformServer},
};

const SOURCES: &str = "[delivery]\nallow = [\"127.0.0.0/8\"]\n\
     [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
     [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n";

fn start(folder: &tempfile::TempDir, platform: &str, jobs: usize) -> Gateway {
    let lines = format!("{SOURCES}jobs = {jobs}\n[filesets.platforms]\nzenodo = [\"{platform}\"]\n");
    Gateway::start_with(folder.path(), &["--config", &configuration(folder.path(), &lines)])
}

async fn request(gateway: &Gateway, dataset: &str) {
    let request = json!({ "ingest_type": "dataset", "base_url": dataset, "link_source": "doi",
        "ext_ids": { "doi": "10.5072/x.1" } });
    let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}

/// Waits until the jobs, with their datasets, states and statuses, meet a condition.
async fn until_jobs(gateway: &Gateway, condition: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let jobs = gateway.json("/filesets?limit=1000").await["filesets"].as_array().unwrap().clone();
        if condition(&jobs) {
            return jobs;
        }
        assert!(began.elapsed() < PATIENCE, "{jobs:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_archived(jobs: &[Value], dataset: &str) -> bool {
    jobs.iter().any(|job| job["dataset"] == dataset && job["state"] == "archived")
}

#[tokio::test]
async fn fileset_publishers_that_lead_to_one_slow_host_take_one_place_of_jobs() {
    let (folder, honest) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    honest.put("a.csv", "a");
    let slow = DrippingServer::start_at("127.0.0.20", &[]).await;
    let gateway = start(&folder, &honest.url, 4);
    for number in 11..=14 {
        let publisher = PlatformServer::start_at(&format!("127.0.0.{number}")).await;
        publisher.put("/d", Answer::redirect(format!("{}/{number}", slow.url)));
        request(&gateway, &format!("{}/d", publisher.url)).await;
    }
    until_jobs(&gateway, |jobs| jobs.iter().any(|job| job["state"] == "running")).await;
    request(&gateway, &honest.dataset()).await;
    let jobs = until_jobs(&gateway, |jobs| is_archived(jobs, &honest.dataset())).await;
    assert_eq!(slow.dripping(), 1);
    // The others have not failed: nothing was attempted, and they begin when the host has a place.
    let waiting: Vec<_> = jobs.iter().filter(|job| job["state"] == "waiting").collect();
    assert_eq!(waiting.len(), 3, "{jobs:?}");
    assert!(waiting.iter().all(|job| job["attempts"] == 0 && job["status"].is_null()), "{jobs:?}");
    let running = jobs.iter().find(|job| job["state"] == "running").unwrap();
    let (status, _) = gateway.ask("DELETE", &format!("/filesets/{}", running["id"].as_str().unwrap()), None).await;
    assert!((200..300).contains(&status), "{status}");
    until_jobs(&gateway, |jobs| {
        let has = |state| jobs.iter().filter(|job| job["state"] == state).count();
        has("cancelled") == 1 && has("running") == 1 && slow.dripping() == 1
    })
    .await;
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn fileset_host_with_more_due_jobs_than_a_page_does_not_hide_another() {
    let (folder, honest) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    honest.put("a.csv", "a");
    let slow = DrippingServer::start_at("127.0.0.20", &[]).await;
    let gateway = start(&folder, &honest.url, 2);
    for number in 0..300 {
        request(&gateway, &format!("{}/{number}", slow.url)).await;
    }
    request(&gateway, &honest.dataset()).await;
    until_jobs(&gateway, |jobs| is_archived(jobs, &honest.dataset())).await;
    assert!(gateway.stop().success());
}

/// Replaces a place of a web archive with one that never ends its answers.
type Replace = fn(&mut WaybackSettings, Url);

#[tokio::test]
async fn fileset_exchange_with_a_web_archive_has_a_time() {
    let drip = DrippingServer::start_at("127.0.0.1", &[]).await;
    let places: [(Replace, &str); 2] =
        [(|wayback, url| wayback.cdx = url, "cdx-error"), (|wayback, url| wayback.save = url, "spn2-error")];
    for (replace, status) in places {
        let fixture = IngestFixture::start(|settings, server| {
            capture_at(server, settings);
            replace(settings.wayback.as_mut().unwrap(), Url::parse(&drip.url).unwrap());
            settings.client.exchange = Duration::from_millis(500);
        })
        .await;
        fixture.server.put("/cdx", index(&[]));
        let ingested = fixture.ingest(&[("a.csv", table("a"), json!({}))]).await;
        assert_eq!(ingested.result.status.to_string(), status, "{:?}", ingested.result.error_message);
        assert!(ingested.result.error_message.unwrap().contains("has not answered within"));
        assert_eq!(ingested.retry, Some(RetryRule::Backoff(None)));
    }
}
