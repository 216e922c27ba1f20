//! `GET /metrics`: the metrics of the gateway in the text format of Prometheus.
//!
//! Each module records its own metrics with the `metrics` crate. This module has the list of all metrics; a test
//! compares it with `docs/metrics.md`.

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

use crate::{
    broker,
    cluster::metrics as cluster,
    delivery::{metrics as delivery, xesam::metrics as xesam},
    harvest::metrics as harvest,
    intake,
    journal::metrics as journal,
    lookup,
    view::metrics as view,
    web::{self, problems},
};

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

/// All metrics.
pub const METRICS: [Metric; 48] = [
    Metric {
        name: intake::EVENTS,
        kind: Kind::Counter,
        labels: &["source", "dialect", "outcome"],
        about: "Messages received, by outcome: accepted, duplicate, unchanged or quarantined.",
    },
    Metric {
        name: broker::CONNECTION_STATE,
        kind: Kind::Gauge,
        labels: &["connection", "state"],
        about: "State of a connection to a broker: 1 for its current state, 0 for every other.",
    },
    Metric {
        name: broker::CONNECTION_FAILURES,
        kind: Kind::Counter,
        labels: &["connection"],
        about: "Failed connection attempts, broken connections, and pauses.",
    },
    Metric {
        name: broker::CONNECTION_LAG,
        kind: Kind::Gauge,
        labels: &["connection"],
        about: "Messages that wait in the broker, for sources that know it.",
    },
    Metric {
        name: broker::REDELIVERED,
        kind: Kind::Counter,
        labels: &["source"],
        about: "Messages that a broker delivered again.",
    },
    Metric {
        name: lookup::LOOKUPS,
        kind: Kind::Counter,
        labels: &["source", "outcome"],
        about: "Lookups in repositories for facts that messages lack: answered or failed.",
    },
    Metric {
        name: harvest::RUNS,
        kind: Kind::Counter,
        labels: &["source", "outcome"],
        about: "Ended runs of harvests: completed or failed.",
    },
    Metric {
        name: harvest::RECORDS,
        kind: Kind::Counter,
        labels: &["source", "outcome"],
        about: "Harvested records: changed, unchanged or quarantined.",
    },
    Metric { name: harvest::PAGES, kind: Kind::Counter, labels: &["source"], about: "Harvested pages." },
    Metric {
        name: harvest::LAST_COMPLETE,
        kind: Kind::Gauge,
        labels: &["source"],
        about: "Time of the end of the last complete run since the start of this gateway, in seconds since 1970.",
    },
    Metric {
        name: harvest::INGESTS,
        kind: Kind::Counter,
        labels: &["source", "status"],
        about: "Attempts to archive a dataset, by status.",
    },
    Metric {
        name: harvest::DOWNLOADS,
        kind: Kind::Counter,
        labels: &["source", "outcome"],
        about: "Attempts to copy a file: stored, known (the store had its bytes) or failed.",
    },
    Metric {
        name: harvest::DOWNLOADED_BYTES,
        kind: Kind::Counter,
        labels: &["source"],
        about: "Size of the files that were stored for the first time, in bytes.",
    },
    Metric {
        name: intake::INCOMPLETE,
        kind: Kind::Gauge,
        labels: &["source"],
        about: "Incomplete changes whose lookup is repeated.",
    },
    Metric {
        name: intake::WAITING,
        kind: Kind::Gauge,
        labels: &["source"],
        about: "Unacknowledged events that wait for a failed lookup to succeed.",
    },
    Metric {
        name: journal::APPEND_SECONDS,
        kind: Kind::Histogram,
        labels: &[],
        about: "Duration of an append, from its request until it is on disk.",
    },
    Metric {
        name: journal::TRANSACTION_SECONDS,
        kind: Kind::Histogram,
        labels: &[],
        about: "Duration of one transaction of the journal's writer.",
    },
    Metric {
        name: journal::BATCH,
        kind: Kind::Histogram,
        labels: &[],
        about: "Number of messages in one transaction.",
    },
    Metric { name: journal::HEAD, kind: Kind::Gauge, labels: &[], about: "Number of the newest change." },
    Metric {
        name: journal::TAIL_READS,
        kind: Kind::Counter,
        labels: &["result"],
        about: "Reads of changes by number: a hit is served from memory, a miss from disk.",
    },
    Metric {
        name: journal::FAILURES,
        kind: Kind::Counter,
        labels: &["reason"],
        about: "Failed reads and writes of the journal: full, read-only, io, unavailable, duty-lost, damaged, refused, busy or closed.",
    },
    Metric {
        name: journal::QUARANTINE_MESSAGES,
        kind: Kind::Gauge,
        labels: &[],
        about: "Number of messages in the quarantine.",
    },
    Metric {
        name: journal::QUARANTINE_BYTES,
        kind: Kind::Gauge,
        labels: &[],
        about: "Size of the messages in the quarantine.",
    },
    Metric {
        name: journal::QUARANTINE_DROPPED,
        kind: Kind::Counter,
        labels: &[],
        about: "Messages deleted from the quarantine to make room for newer ones.",
    },
    Metric {
        name: delivery::DELIVERIES,
        kind: Kind::Counter,
        labels: &["subscription", "outcome"],
        about: "Messages to subscribers, by outcome: delivered, unroutable or refused; retried counts failed attempts.",
    },
    Metric {
        name: delivery::LAG,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "Number of changes that a subscription has not processed yet.",
    },
    Metric {
        name: delivery::UP,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "1 while a subscription delivers or waits for changes, else 0, for example while its receiver fails.",
    },
    Metric {
        name: delivery::PAUSED,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "1 while a subscription is paused, by an administrator or because its receiver failed for too long, else 0.",
    },
    Metric {
        name: delivery::DEAD_LETTERS,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "Number of messages that a subscription's receiver has refused permanently.",
    },
    Metric {
        name: view::OPEN_STREAMS,
        kind: Kind::Gauge,
        labels: &["kind"],
        about: "Readers that wait for changes, on a stream or in a long poll.",
    },
    Metric {
        name: view::STREAMED,
        kind: Kind::Counter,
        labels: &["format"],
        about: "Changes sent on streams, counted for each stream.",
    },
    Metric {
        name: delivery::SUBSCRIBERS,
        kind: Kind::Gauge,
        labels: &[],
        about: "Number of subscriptions of the WebSub hub; their deliveries count for the subscription websub.",
    },
    Metric {
        name: delivery::VERIFICATIONS,
        kind: Kind::Counter,
        labels: &["outcome"],
        about: "Requests of WebSub subscribers, by outcome: verified, failed or denied.",
    },
    Metric {
        name: xesam::CRAWLERS,
        kind: Kind::Gauge,
        labels: &["state"],
        about: "Crawlers on D-Bus, by state: installed, cleaning-up, full-dump, behind or current.",
    },
    Metric {
        name: xesam::UNANSWERED,
        kind: Kind::Gauge,
        labels: &[],
        about: "Crawlers on D-Bus that have not answered a call for a second or longer.",
    },
    Metric {
        name: xesam::REQUESTS,
        kind: Kind::Counter,
        labels: &["outcome"],
        about: "Requests of crawlers on D-Bus, by outcome: incremental, full or refused.",
    },
    Metric {
        name: xesam::BATCHES,
        kind: Kind::Counter,
        labels: &[],
        about: "Batches of records that crawlers on D-Bus have accepted.",
    },
    Metric {
        name: xesam::RECORDS,
        kind: Kind::Counter,
        labels: &[],
        about: "Records that crawlers on D-Bus have accepted.",
    },
    Metric {
        name: xesam::PAGES,
        kind: Kind::Counter,
        labels: &["of"],
        about: "Pages of records that were read for crawlers on D-Bus, of the journal or the registry. Crawlers share pages.",
    },
    Metric {
        name: web::REQUESTS,
        kind: Kind::Counter,
        labels: &["method", "route", "status"],
        about: "Answered requests, by route template.",
    },
    Metric {
        name: web::REQUEST_SECONDS,
        kind: Kind::Histogram,
        labels: &["method", "route"],
        about: "Time between the headers of a request and those of its response.",
    },
    Metric {
        name: web::LIMITS_HIT,
        kind: Kind::Counter,
        labels: &["limit"],
        about: "Requests that reached a limit, by its key in the configuration.",
    },
    Metric {
        name: cluster::DUTIES,
        kind: Kind::Gauge,
        labels: &[],
        about: "Number of duties that this node has; absent if the journal is for one node.",
    },
    Metric { name: cluster::TAKEOVERS, kind: Kind::Counter, labels: &[], about: "Duties that this node has taken." },
    Metric {
        name: cluster::LOSSES,
        kind: Kind::Counter,
        labels: &[],
        about: "Duties that this node has lost without handing them over, for example because its lease ended.",
    },
    Metric {
        name: cluster::LAG,
        kind: Kind::Gauge,
        labels: &[],
        about: "Number of changes of other nodes that this node has not read yet.",
    },
    Metric { name: BUILD_INFO, kind: Kind::Gauge, labels: &["version"], about: "Always 1; its label is the version." },
    Metric {
        name: START_TIME,
        kind: Kind::Gauge,
        labels: &[],
        about: "Start time of the gateway, in seconds since 1970-01-01T00:00:00Z.",
    },
];

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
                "_changes",
                "_streams",
                "_subscriptions",
                "_crawlers",
                "_duties",
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
