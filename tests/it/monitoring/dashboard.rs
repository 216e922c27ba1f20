//! The dashboard: each query returns something of the metrics of real gateways, and names only labels that they have.
//!
//! The queries are no language of ours, so `promtool` evaluates them. Of their text the test reads the names of metrics and
//! the labels behind `by`, which are all that the dashboard groups with.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use tidings::admin::metrics::{METRICS, Metric};

use super::every_part::CompleteGateway;
use crate::support::promtool::Recording;

/// Metrics that exist only while a broker or a repository answers. Their queries are only read.
const OF_PARTNERS: [&str; 2] = ["tidings_connection_lag_messages", "tidings_harvest_differing_records"];

fn dashboard() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana/tidings.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Returns each query with its legend.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    targets.map(|target| (text(&target["expr"]), text(&target["legendFormat"]))).collect()
}

/// Replaces the variables of Grafana.
fn interpolated(query: &str) -> String {
    query.replace("$__rate_interval", "5m").replace("$job", "tidings").replace("$instance", ".*")
}

/// Lets comparisons keep what they would remove, because nothing may be wrong while the test looks.
fn unfiltered(query: &str) -> String {
    query.replace(" > 0", " > bool 0").replace(" == 0", " == bool 0").replace(" == 1", " == bool 1")
}

/// Returns the words of a text that can be names of metrics.
fn named_metrics(query: &str) -> Vec<&'static Metric> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = words.filter(|word| word.starts_with("tidings_") || word.starts_with("process_"));
    let metric = |word: &str| {
        let is_named =
            |metric: &&Metric| word.strip_prefix(metric.name).is_some_and(|end| end.is_empty() || end == "_bucket");
        METRICS.iter().find(is_named).unwrap_or_else(|| panic!("{word} is no metric"))
    };
    words.map(metric).collect()
}

/// Returns the labels of each list that is between these two texts.
fn lists<'a>(query: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    query.split(start).skip(1).flat_map(move |rest| rest.split(end).next().unwrap().split(", ")).map(str::trim)
}

#[test]
fn queries_and_legends_name_labels_of_their_metrics() {
    let queries = queries(&dashboard());
    assert!(queries.len() > 30, "{}", queries.len());
    for (query, legend) in queries {
        let metrics = named_metrics(&query);
        assert!(!metrics.is_empty(), "{query}");
        let mut labels: BTreeSet<&str> = metrics.iter().flat_map(|metric| metric.labels).copied().collect();
        labels.extend(["instance", "job"]);
        let grouped: BTreeSet<&str> = lists(&query, "by (", ")").collect();
        let missing: Vec<_> = grouped.iter().filter(|label| **label != "le" && !labels.contains(**label)).collect();
        assert!(missing.is_empty(), "{query}: no metric has {missing:?}");
        let remaining = if grouped.is_empty() { labels } else { grouped };
        let unknown: Vec<_> = lists(&legend, "{{", "}}").filter(|label| !remaining.contains(label)).collect();
        assert!(unknown.is_empty(), "{query}: the legend has {unknown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_return_something_of_real_metrics() {
    let (alone, node) = (CompleteGateway::start(), CompleteGateway::start_node());
    let late =
        ["tidings_disk_free_bytes", "tidings_subscription_up{subscription=\"index\"}", "tidings_harvest_last_complete"];
    let alone = alone.metrics_with(&[&late[..], &["tidings_journal_size_bytes "]].concat()).await;
    let node = node.metrics_with(&[&late[..], &["tidings_node_duties "]].concat()).await;
    let mut recording = Recording::every(60);
    recording.append(&[("alone", &alone), ("node", &node)], 5);
    let mut queries: Vec<_> = queries(&dashboard()).iter().map(|(query, _)| unfiltered(&interpolated(query))).collect();
    queries.retain(|query| !OF_PARTNERS.iter().any(|metric| query.contains(metric)));
    recording.answers(&queries);
}

#[test]
fn variables_are_declared() {
    let dashboard = dashboard();
    let declared = dashboard["templating"]["list"].as_array().unwrap().iter();
    let declared: BTreeSet<_> = declared.map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(declared, ["datasource", "instance", "job"].into());
    let identifiers: Vec<_> = dashboard["panels"].as_array().unwrap().iter().map(|panel| &panel["id"]).collect();
    assert_eq!(identifiers.iter().map(|id| id.as_u64()).collect::<BTreeSet<_>>().len(), identifiers.len());
}
