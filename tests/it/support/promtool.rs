//! Samples that Prometheus would have of real gateways, and rules and queries that `promtool` evaluates over them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::gateway::Gateway;

/// Number of seconds before the first sample. Prometheus has been running for a while, and times before the first sample
/// are after 1970, where the clock of `promtool` begins.
const LEAD: u64 = 86_400;

/// Samples of all series at regular intervals.
pub(crate) struct Recording {
    /// Seconds between two samples.
    interval: u64,
    /// Number of intervals that have samples.
    length: u64,
    /// Time of the first scrape, in seconds since 1970.
    began: Option<f64>,
    /// Samples of each series, in the notation of `promtool`.
    series: BTreeMap<String, Samples>,
}

#[derive(Default)]
struct Samples {
    text: String,
    length: u64,
}

impl Samples {
    /// Appends the same sample several times, after missing ones up to `from`.
    fn append(&mut self, from: u64, value: &str, times: u64) {
        if self.length < from {
            self.text += &format!("_x{} ", from - self.length);
        }
        self.text += &format!("{value}+0x{} ", times - 1);
        self.length = from + times;
    }
}

impl Recording {
    /// Creates a recording with this number of seconds between two samples.
    pub(crate) fn every(interval: u64) -> Self {
        Self { interval, length: 0, began: None, series: BTreeMap::new() }
    }

    /// Appends the metrics of a gateway, which stay the same for a number of samples.
    pub(crate) async fn scrape(&mut self, gateway: &Gateway, times: u64) {
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap();
        let metrics = metrics.error_for_status().unwrap().text().await.unwrap();
        self.append(&[("gateway", &metrics)], times);
    }

    /// Appends the metrics of gateways, each with its instance, which stay the same for a number of samples.
    pub(crate) fn append(&mut self, instances: &[(&str, &str)], times: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let began = *self.began.get_or_insert(now);
        for (instance, metrics) in instances {
            self.sample(instance, "up", 1.0, times);
            for line in metrics.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let mut value: f64 = value.parse().unwrap();
                // The clock of promtool begins in 1970.
                if series.contains("_timestamp_seconds") || series.starts_with("process_start_time_seconds") {
                    value = if value == 0.0 { 0.0 } else { value - began + LEAD as f64 };
                }
                self.sample(instance, series, value, times);
            }
        }
        self.length += times;
    }

    /// Appends scrapes that fail.
    pub(crate) fn fail(&mut self, times: u64) {
        self.sample("gateway", "up", 0.0, times);
        self.length += times;
    }

    /// Appends nothing, as if no target were configured.
    pub(crate) fn miss(&mut self, times: u64) {
        self.length += times;
    }

    fn sample(&mut self, instance: &str, series: &str, value: f64, times: u64) {
        let labels = format!("{{instance=\"{instance}\",job=\"tidings\"");
        let name = match series.split_once('{') {
            Some((name, others)) => format!("{name}{labels},{others}"),
            None => format!("{series}{labels}}}"),
        };
        let lead = LEAD / self.interval;
        self.series.entry(name).or_default().append(lead + self.length, &value.to_string(), times);
    }

    /// Returns the time of the last sample, in seconds.
    fn end(&self) -> u64 {
        LEAD + (self.length - 1) * self.interval
    }

    /// Panics unless exactly these alerts fire now: each with its name and further labels, such as `Name code=x`.
    pub(crate) fn fires(&self, alerts: &[&str]) {
        let samples: Vec<_> = alerts
            .iter()
            .map(|alert| {
                let mut words = alert.split(' ');
                let labels = words.by_ref().skip(1).map(|label| label.split_once('=').unwrap());
                let labels: String = labels.map(|(name, value)| format!(",{name}=\"{value}\"")).collect();
                let name = alert.split(' ').next().unwrap();
                json!({ "labels": format!("{{alertname=\"{name}\"{labels}}}"), "value": 1 })
            })
            .collect();
        let firing = "group by (alertname, code, limit, reason, source, subscription) (ALERTS{alertstate=\"firing\"})";
        self.evaluate(&json!([{ "expr": firing, "eval_time": self.now(), "exp_samples": samples }]), &json!([]));
    }

    /// Panics unless one alert with this name fires now, with these labels and annotations.
    pub(crate) fn notifies(&self, name: &str, labels: &Value, annotations: &Value) {
        let alert = json!({ "exp_labels": labels, "exp_annotations": annotations });
        self.evaluate(&json!([]), &json!([{ "eval_time": self.now(), "alertname": name, "exp_alerts": [alert] }]));
    }

    /// Panics unless each query returns something now.
    pub(crate) fn answers(&self, queries: &[String]) {
        let something = json!([{ "labels": "{}", "value": 1 }]);
        let tests = queries.iter().map(|query| {
            json!({ "expr": format!("count({query}) > bool 0"), "eval_time": self.now(), "exp_samples": something })
        });
        self.evaluate(&tests.collect(), &json!([]));
    }

    fn now(&self) -> String {
        format!("{}s", self.end())
    }

    fn evaluate(&self, queries: &Value, alerts: &Value) {
        let series = self.series.iter().map(|(name, samples)| json!({ "series": name, "values": samples.text.trim() }));
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus/alerts.yml");
        let test = json!({
            "rule_files": [rules],
            "evaluation_interval": format!("{}s", self.interval),
            "tests": [{
                "interval": format!("{}s", self.interval),
                "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": queries,
                "alert_rule_test": alerts
            }]
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        // JSON is YAML.
        fs::write(&file, serde_json::to_vec(&test).unwrap()).unwrap();
        let output = Command::new("promtool").args(["test", "rules"]).arg(file.path()).output();
        let output = output.unwrap_or_else(|error| panic!("promtool cannot be run ({error}); install prometheus"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}
