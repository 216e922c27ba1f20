//! `/metrics` counts events. All names and labels are listed and documented, and no label has a value that a
//! client chooses.

use std::collections::BTreeSet;

use tidings::admin::metrics::METRICS;

use crate::support::{
    fixtures,
    gateway::{Gateway, PATIENCE},
};

const ATOM: &str = "application/atom+xml";

/// Returns the value of one series, which is written as in the text format.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

async fn scrape(gateway: &Gateway) -> String {
    let answer = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    answer.text().await.unwrap()
}

/// Reads of changes from memory.
const HITS: &str = r#"tidings_tail_reads_total{result="hit"}"#;

#[tokio::test]
async fn metrics_count_events() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start_with(folder.path(), &[]);
    let ingest = std::fs::read(fixtures::folder("content-change").join("seed-ingest.xml")).unwrap();
    gateway.post("content-change", ATOM, ingest.clone()).await;
    gateway.post("content-change", ATOM, ingest).await;
    let (status, refused) = gateway.post("fedora3", ATOM, "no XML").await;
    assert_eq!(status, 400);
    // The recorder of the flow reads the change once.
    wait_until(&gateway, &[(HITS, 1.0)]).await;
    gateway.json("/changes").await;
    let nowhere = gateway.http.get(format!("{}/changes/made-up-by-a-client", gateway.url)).send().await.unwrap();
    assert_eq!(nowhere.status(), 404);
    gateway.http.get(format!("{}/made-up", gateway.url)).send().await.unwrap();
    let invented = reqwest::Method::from_bytes(b"MADEUP").unwrap();
    gateway.http.request(invented, format!("{}/feed", gateway.url)).send().await.unwrap();

    let metrics = scrape(&gateway).await;
    for (series, expected) in [
        (r#"tidings_events_total{source="content-change",dialect="content-change",outcome="accepted"}"#, 1.0),
        (r#"tidings_events_total{source="content-change",dialect="content-change",outcome="duplicate"}"#, 1.0),
        (r#"tidings_events_total{source="fedora3",dialect="fedora-apim",outcome="quarantined"}"#, 1.0),
        (r#"tidings_events_total{source="fedora",dialect="fedora-events",outcome="unchanged"}"#, 0.0),
        ("tidings_append_duration_seconds_count", 2.0),
        ("tidings_append_transaction_duration_seconds_count", 2.0),
        ("tidings_append_batch_events_sum", 2.0),
        ("tidings_journal_head", 1.0),
        (HITS, 2.0),
        (r#"tidings_http_requests_total{method="POST",route="/hooks/{source}",status="201"}"#, 1.0),
        (r#"tidings_http_requests_total{method="GET",route="/changes/{id}",status="404"}"#, 1.0),
        (r#"tidings_http_requests_total{method="GET",route="none",status="404"}"#, 1.0),
        (r#"tidings_http_requests_total{method="other",route="/feed",status="405"}"#, 1.0),
        (r#"tidings_http_request_duration_seconds_count{method="POST",route="/hooks/{source}"}"#, 3.0),
    ] {
        assert_eq!(value(&metrics, series), Some(expected), "{series} in\n{metrics}");
    }
    assert!(!metrics.to_lowercase().replace('-', "").contains("madeup"), "{metrics}");

    // The response is sent before the metric of its size is updated.
    let id = refused["quarantine"].as_u64().unwrap();
    wait_until(&gateway, &[("tidings_quarantine_messages", 1.0), ("tidings_quarantine_bytes", 6.0)]).await;
    gateway.http.delete(format!("{}/quarantine/{id}", gateway.url)).send().await.unwrap();
    wait_until(&gateway, &[("tidings_quarantine_messages", 0.0), ("tidings_quarantine_bytes", 0.0)]).await;
}

async fn wait_until(gateway: &Gateway, expected: &[(&str, f64)]) {
    let began = std::time::Instant::now();
    loop {
        let metrics = scrape(gateway).await;
        if expected.iter().all(|(series, expected)| value(&metrics, series) == Some(*expected)) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{expected:?} does not come:\n{metrics}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn metrics_count_exceeded_limits() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::support::gateway::command();
    command.env("TIDINGS_LIMITS__BODY_BYTES", "1024").stderr(std::process::Stdio::null());
    let gateway = Gateway::start_as(command, folder.path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(gateway.post("fedora3", ATOM, "x".repeat(2000)).await.0, 413);
    let metrics = scrape(&gateway).await;
    assert_eq!(value(&metrics, r#"tidings_limits_hit_total{limit="body_bytes"}"#), Some(1.0), "{metrics}");
}

#[tokio::test]
async fn metrics_are_all_documented() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    gateway.post("fedora3", ATOM, "no XML").await;
    gateway.post("content-change", "application/json", r#"{"object":"http://h/1","purge":true}"#).await;
    let metrics = scrape(&gateway).await;
    for line in metrics.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let metric = METRICS.iter().find(|metric| {
            let part = name.strip_prefix(metric.name);
            part.is_some_and(|part| ["", "_bucket", "_sum", "_count"].contains(&part))
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is not listed"));
        let labels = rest.strip_prefix('{').unwrap_or_default().split("\",");
        let labels: BTreeSet<_> = labels.filter_map(|label| Some(label.split_once('=')?.0)).collect();
        let listed: BTreeSet<_> =
            metric.labels.iter().copied().chain(name.ends_with("_bucket").then_some("le")).collect();
        assert_eq!(labels, listed, "{line}");
        assert!(metrics.contains(&format!("# HELP {} {}", metric.name, metric.about)), "{name}");
    }
}
