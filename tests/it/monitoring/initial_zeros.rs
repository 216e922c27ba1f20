//! Counters exist from the start with 0, because `rate()` and `increase()` miss the first event otherwise.

use std::collections::{BTreeMap, BTreeSet};

use tidings::{
    admin::metrics::{Kind, METRICS},
    format::{FORMATS, fileset::status::IngestStatus},
    web::Limit,
};

use super::every_part::CompleteGateway;

/// Counters whose labels have values that only a request has: the route, the method and the status.
const WITHOUT: [&str; 1] = ["tidings_http_requests_total"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_counter_is_there_before_its_first_event() {
    let node = CompleteGateway::start_node();
    let counters: Vec<_> = METRICS.iter().filter(|metric| metric.kind == Kind::Counter).collect();
    let names: Vec<_> = counters.iter().map(|metric| metric.name).filter(|name| !WITHOUT.contains(name)).collect();
    // A subscription and a harvest of a node begin when the node has their duties.
    let of_duties =
        [r#"tidings_deliveries_total{subscription="index""#, r#"tidings_harvest_runs_total{source="share""#];
    let lines: Vec<_> = names.iter().map(|name| format!("\n{name}")).collect();
    let texts: Vec<_> = lines.iter().map(String::as_str).chain(of_duties).collect();
    let metrics = node.metrics_with(&texts).await;
    let mut values: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        for label in labels.split_once('}').unwrap().0.split(',') {
            let (label, value) = label.split_once('=').unwrap();
            values.entry((name, label)).or_default().insert(value.trim_matches('"'));
        }
    }
    // The labels with closed sets of values. The others name things of the configuration.
    let formats: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    let limits: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
    let statuses: Vec<_> = IngestStatus::KNOWN.iter().map(ToString::to_string).collect();
    let statuses: Vec<_> = statuses.iter().map(String::as_str).chain(["other"]).collect();
    let closed = [
        ("tidings_events_total", "outcome", &["accepted", "duplicate", "unchanged", "quarantined"][..]),
        ("tidings_dropped_parts_total", "part", &["time", "uri", "visibility-date"]),
        ("tidings_lookups_total", "outcome", &["answered", "failed"]),
        ("tidings_harvest_runs_total", "outcome", &["completed", "failed"]),
        ("tidings_harvest_records_total", "outcome", &["changed", "unchanged", "quarantined"]),
        ("tidings_ingests_total", "status", &statuses),
        ("tidings_downloads_total", "outcome", &["stored", "known", "failed"]),
        ("tidings_tail_reads_total", "result", &["hit", "miss"]),
        (
            "tidings_journal_failures_total",
            "reason",
            &[
                "full",
                "read-only",
                "io",
                "displaced",
                "unavailable",
                "duty-lost",
                "missing",
                "damaged",
                "refused",
                "busy",
                "closed",
            ],
        ),
        ("tidings_deliveries_total", "outcome", &["delivered", "unroutable", "refused", "retried"]),
        ("tidings_deliveries_total", "subscription", &["index", "websub"]),
        ("tidings_streamed_changes_total", "format", &formats),
        ("tidings_websub_verifications_total", "outcome", &["verified", "failed", "denied"]),
        ("tidings_xesam_requests_total", "outcome", &["incremental", "full", "refused"]),
        ("tidings_xesam_pages_total", "of", &["journal", "registry"]),
        ("tidings_limits_hit_total", "limit", &limits),
    ];
    for (name, label, expected) in closed {
        assert_eq!(values[&(name, label)], expected.iter().copied().collect(), "{name} {label}");
    }
    let is_open = |label: &str| ["source", "dialect", "connection", "subscription"].contains(&label);
    for metric in counters.iter().filter(|metric| !WITHOUT.contains(&metric.name)) {
        for label in metric.labels.iter().filter(|label| !is_open(label)) {
            let is_checked = closed.iter().any(|(name, checked, _)| (*name, *checked) == (metric.name, label));
            assert!(is_checked, "the values of {label} of {} have no line in this test", metric.name);
        }
    }
}
