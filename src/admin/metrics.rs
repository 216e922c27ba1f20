//! `GET /metrics`: the metrics of the gateway in the text format of Prometheus.
//!
//! Each module records its own metrics with the `metrics` crate. This module has the list of all metrics; a test
//! compares it with `docs/metrics.md`.

mod list;

use std::{
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use metrics::{describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub use self::list::METRICS;
use crate::{journal::metrics as journal, web::problems};

/// Media type of the text format, version 0.0.4.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name of the metric with the version of the program.
const BUILD_INFO: &str = "tidings_build_info";

/// Name of the metric with the start time of the process, as all Prometheus clients call it.
const START_TIME: &str = "process_start_time_seconds";

/// Upper bounds of the buckets of durations, in seconds. An append from memory takes a tenth of a millisecond; a
/// request may take as long as its limit.
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Upper bounds of the buckets of batch sizes: up to the default of `journal.batch`, and beyond.
const EVENTS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 4096.0];

/// Description of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name, with the unit as a suffix.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: Kind,
    /// Labels that distinguish the series of the metric.
    pub labels: &'static [&'static str],
    /// Explanation for people.
    pub about: &'static str,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Value that only increases.
    Counter,
    /// Value that increases and decreases.
    Gauge,
    /// Numbers of values below upper bounds.
    Histogram,
}

impl Kind {
    /// Returns the name of the type in the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Metrics recorded in this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// The recorder of this process. The `metrics` crate supports one recorder per process, however many gateways run in
/// it.
static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Installs the recorder unless it is installed. Values recorded before are lost.
    ///
    /// # Errors
    /// When another recorder is installed in this process.
    pub fn install() -> Result<Self, BuildError> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = &*installed {
            return Ok(metrics.clone());
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(journal::BATCH.to_owned()), &EVENTS)?
            .build_recorder();
        let metrics = Self(recorder.handle());
        metrics::set_global_recorder(recorder).map_err(BuildError::FailedToSetGlobalRecorder)?;
        describe();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge!(START_TIME).set(since.as_secs_f64());
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        *installed = Some(metrics.clone());
        Ok(metrics)
    }

    /// Aggregates recorded durations into histograms. It must be called every few seconds, because until then each
    /// value is stored separately and their number is not limited.
    pub fn aggregate(&self) {
        self.0.run_upkeep();
    }
}

fn describe() {
    for Metric { name, kind, about, .. } in METRICS {
        match kind {
            Kind::Counter => describe_counter!(name, about),
            Kind::Gauge => describe_gauge!(name, about),
            Kind::Histogram => describe_histogram!(name, about),
        }
    }
}

problems!(Problems:);

/// All metrics since the gateway started.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "administration",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain"), Problems),
)]
pub async fn scrape(State(Metrics(metrics)): State<Metrics>) -> Response {
    let headers = [(header::CONTENT_TYPE, MEDIA_TYPE), (header::CACHE_CONTROL, "no-cache")];
    (headers, metrics.render()).into_response()
}

#[cfg(test)]
mod tests {
    use super::{Kind, METRICS, Metrics};

    #[test]
    fn documented_metrics_match_metrics() {
        let page = include_str!("../../docs/metrics.md");
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let rows: Vec<String> = METRICS
            .iter()
            .map(|metric| {
                let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
                format!("| `{}` | {} | {} | {} |", metric.name, metric.kind.name(), labels.join(", "), metric.about)
            })
            .collect();
        assert_eq!(documented, rows);
    }

    #[test]
    fn names_follow_prometheus_conventions() {
        for metric in METRICS {
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            let unit = [
                "_seconds",
                "_bytes",
                "_events",
                "_messages",
                "_records",
                "_changes",
                "_streams",
                "_subscriptions",
                "_crawlers",
                "_differences",
                "_duties",
                "_problems",
                "_paused",
                "_head",
                "_up",
                "_info",
                "_total",
            ];
            assert!(unit.iter().any(|unit| metric.name.ends_with(unit)), "{} has no unit", metric.name);
        }
    }

    #[test]
    fn second_gateway_shares_the_recorder() {
        Metrics::install().unwrap();
        let again = Metrics::install().unwrap();
        assert!(again.0.render().contains("tidings_build_info{version="));
    }
}
