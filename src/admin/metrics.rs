//! `GET /metrics`: what the gateway counts and measures, in the text format of Prometheus.
//!
//! Each part counts what it does by the facade of the `metrics` crate, under names of its own. Here
//! is the one list of them all; `docs/metrics.md` is held to it by a test.

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
    delivery::metrics as delivery,
    intake,
    journal::metrics as journal,
    lookup,
    view::metrics as view,
    web::{self, problems},
};

/// The media type of the text format, version 0.0.4.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The version of the program that runs.
const BUILD_INFO: &str = "tidings_build_info";

/// When the process began to count; the name is the one that Prometheus clients share.
const START_TIME: &str = "process_start_time_seconds";

/// The bounds of the buckets of what is measured in seconds: an append from memory takes a tenth of
/// a millisecond, a request may take as long as its limit.
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The bounds of the buckets of a batch: up to the default of `journal.batch`, and beyond.
const EVENTS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 4096.0];

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, with the unit at its end.
    pub name: &'static str,
    /// Of what kind it is.
    pub kind: Kind,
    /// The labels that tell its series apart.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub about: &'static str,
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often values lay under which bounds.
    Histogram,
}

impl Kind {
    /// Its name in the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Every metric there is.
pub const METRICS: [Metric; 30] = [
    Metric {
        name: intake::EVENTS,
        kind: Kind::Counter,
        labels: &["source", "dialect", "outcome"],
        about: "Messages taken in, by outcome: accepted, duplicate, unchanged or quarantined.",
    },
    Metric {
        name: broker::CONNECTION_STATE,
        kind: Kind::Gauge,
        labels: &["connection", "state"],
        about: "What a connection to a broker is doing: 1 for its state, 0 for every other.",
    },
    Metric {
        name: broker::CONNECTION_FAILURES,
        kind: Kind::Counter,
        labels: &["connection"],
        about: "Attempts to connect that failed, connections that broke, and pauses.",
    },
    Metric {
        name: broker::REDELIVERED,
        kind: Kind::Counter,
        labels: &["source"],
        about: "Messages that a broker delivered although it had delivered them before.",
    },
    Metric {
        name: lookup::LOOKUPS,
        kind: Kind::Counter,
        labels: &["source", "outcome"],
        about: "Requests to repositories about what messages do not say: answered or failed.",
    },
    Metric {
        name: intake::INCOMPLETE,
        kind: Kind::Gauge,
        labels: &["source"],
        about: "Changes about which a repository did not answer everything, and is asked again.",
    },
    Metric {
        name: intake::WAITING,
        kind: Kind::Gauge,
        labels: &["source"],
        about: "Events that wait, unacknowledged, for an answer of their repository that has failed to come.",
    },
    Metric {
        name: journal::APPEND_SECONDS,
        kind: Kind::Histogram,
        labels: &[],
        about: "The time of an append from its order until it was on disk.",
    },
    Metric {
        name: journal::TRANSACTION_SECONDS,
        kind: Kind::Histogram,
        labels: &[],
        about: "The time of one transaction of the journal's writer.",
    },
    Metric {
        name: journal::BATCH,
        kind: Kind::Histogram,
        labels: &[],
        about: "How many messages went into one transaction.",
    },
    Metric { name: journal::HEAD, kind: Kind::Gauge, labels: &[], about: "The number of the newest change." },
    Metric {
        name: journal::TAIL_READS,
        kind: Kind::Counter,
        labels: &["result"],
        about: "Reads of changes by number: a hit is answered from memory, a miss from disk.",
    },
    Metric {
        name: journal::FAILURES,
        kind: Kind::Counter,
        labels: &["reason"],
        about: "What the journal could not write or read: full, read-only, io, damaged, refused, busy or closed.",
    },
    Metric {
        name: journal::QUARANTINE_MESSAGES,
        kind: Kind::Gauge,
        labels: &[],
        about: "How many messages the quarantine holds.",
    },
    Metric {
        name: journal::QUARANTINE_BYTES,
        kind: Kind::Gauge,
        labels: &[],
        about: "How many bytes of messages the quarantine holds.",
    },
    Metric {
        name: journal::QUARANTINE_DROPPED,
        kind: Kind::Counter,
        labels: &[],
        about: "Messages that the quarantine dropped to make room for newer ones.",
    },
    Metric {
        name: delivery::DELIVERIES,
        kind: Kind::Counter,
        labels: &["subscription", "outcome"],
        about: "What became of messages to subscribers: delivered, unroutable or refused; retried counts failed attempts.",
    },
    Metric {
        name: delivery::LAG,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "By how many changes of the journal a subscription is behind.",
    },
    Metric {
        name: delivery::UP,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "1 while a subscription delivers or waits for changes, else 0: also while its receiver fails and has taken nothing since.",
    },
    Metric {
        name: delivery::PAUSED,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "1 while a subscription is paused, by somebody or since its receiver has failed for too long, else 0.",
    },
    Metric {
        name: delivery::DEAD_LETTERS,
        kind: Kind::Gauge,
        labels: &["subscription"],
        about: "How many messages a subscription's receiver has refused for good.",
    },
    Metric {
        name: view::OPEN_STREAMS,
        kind: Kind::Gauge,
        labels: &["kind"],
        about: "Readers that wait for changes: on a stream, or in a poll that waits.",
    },
    Metric {
        name: view::STREAMED,
        kind: Kind::Counter,
        labels: &["format"],
        about: "Changes that were sent on streams, counted for each stream.",
    },
    Metric {
        name: delivery::SUBSCRIBERS,
        kind: Kind::Gauge,
        labels: &[],
        about: "How many subscriptions the WebSub hub has; what is delivered to all of them counts for the subscription websub.",
    },
    Metric {
        name: delivery::VERIFICATIONS,
        kind: Kind::Counter,
        labels: &["outcome"],
        about: "What became of requests of WebSub subscribers: verified, failed or denied.",
    },
    Metric {
        name: web::REQUESTS,
        kind: Kind::Counter,
        labels: &["method", "route", "status"],
        about: "Requests that were answered, by the template of their route.",
    },
    Metric {
        name: web::REQUEST_SECONDS,
        kind: Kind::Histogram,
        labels: &["method", "route"],
        about: "The time from the head of a request to the head of its answer.",
    },
    Metric {
        name: web::LIMITS_HIT,
        kind: Kind::Counter,
        labels: &["limit"],
        about: "Requests that met a limit, by its key in the configuration.",
    },
    Metric { name: BUILD_INFO, kind: Kind::Gauge, labels: &["version"], about: "Always 1; its label is the version." },
    Metric {
        name: START_TIME,
        kind: Kind::Gauge,
        labels: &[],
        about: "When the gateway started, in seconds since 1970-01-01T00:00:00Z.",
    },
];

/// What has been counted and measured in this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// The facade sends what is counted to one place a process, however many gateways run in it.
static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Begins to count, if that has not begun. What was counted before is lost.
    ///
    /// # Errors
    /// When something else in this process receives what is counted.
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

    /// Sorts what was measured into its buckets. Somebody must call this every few seconds: until
    /// then each measurement is kept by itself, and nothing else bounds their number.
    pub fn settle(&self) {
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

/// Everything that has been counted and measured since the gateway started.
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
    fn the_documented_metrics_are_the_metrics() {
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
    fn names_are_as_prometheus_asks() {
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
                "_paused",
                "_head",
                "_up",
                "_info",
                "_total",
            ];
            assert!(unit.iter().any(|unit| metric.name.ends_with(unit)), "{} tells no unit", metric.name);
        }
    }

    #[test]
    fn a_second_gateway_in_the_process_counts_in_the_same_place() {
        Metrics::install().unwrap();
        let again = Metrics::install().unwrap();
        assert!(again.0.render().contains("tidings_build_info{version="));
    }
}
