//! Tracing and metrics of requests: a span around each request, its count and its duration.
//!
//! The span and the labels contain the method, the route template and the request identifier. They never contain the
//! path, the query or headers, because these may hold credentials and would make an unbounded number of labels.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method},
    response::Response,
};
use tracing::Instrument;
use uuid::Uuid;

/// Name of the counter of answered requests.
pub const REQUESTS: &str = "tidings_http_requests_total";

/// Name of the histogram of the time between the headers of a request and those of its response, in seconds.
pub const REQUEST_SECONDS: &str = "tidings_http_request_duration_seconds";

/// Header with the identifier of a request, which a client or a proxy can set and the response repeats.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a client's request identifier, in bytes.
const MAX_ID_LENGTH: usize = 128;

/// Value of the label `route` if no route matched.
const NO_ROUTE: &str = "none";

/// Handles to the series of [`REQUESTS`] and [`REQUEST_SECONDS`], by route. A series is looked up by its labels only
/// once, because the lookup costs more than the increment.
#[derive(Default)]
pub(super) struct RequestMetrics(RwLock<HashMap<String, Vec<ResponseSeries>>>);

/// Series of the responses of a route to one method with one status.
struct ResponseSeries {
    method: &'static str,
    status: u16,
    count: metrics::Counter,
    time: metrics::Histogram,
}

impl RequestMetrics {
    fn record(&self, method: &'static str, route: &str, status: u16, elapsed: Duration) {
        let matches = |series: &&ResponseSeries| series.method == method && series.status == status;
        let routes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = routes.get(route).and_then(|of_route| of_route.iter().find(matches)) {
            return series.record(elapsed);
        }
        drop(routes);
        let series = ResponseSeries::new(method, route, status);
        series.record(elapsed);
        let mut routes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of_route = routes.entry(route.to_owned()).or_default();
        // A concurrent request may have added the series meanwhile.
        if !of_route.iter().any(|series| matches(&series)) {
            of_route.push(series);
        }
    }
}

impl ResponseSeries {
    fn new(method: &'static str, route: &str, status: u16) -> Self {
        let (route, code) = (route.to_owned(), status.to_string());
        Self {
            method,
            status,
            time: metrics::histogram!(REQUEST_SECONDS, "method" => method, "route" => route.clone()),
            count: metrics::counter!(REQUESTS, "method" => method, "route" => route, "status" => code),
        }
    }

    fn record(&self, elapsed: Duration) {
        self.time.record(elapsed);
        self.count.increment(1);
    }
}

/// Runs `next` in a span with the request identifier, adds the identifier to the response, and records the metrics.
pub(super) async fn instrument(
    metrics: &RequestMetrics,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let start = Instant::now();
    let method = method_label(request.method());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let id = request_id(request.headers());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), method, route);
    let mut response = next(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let elapsed = start.elapsed();
    let took_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    span.in_scope(|| tracing::debug!(status, took_us, "answered"));
    metrics.record(method, route, status, elapsed);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Returns the client's identifier if it is safe to log, and a new one otherwise.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(byte);
    let from_client =
        headers.get(REQUEST_ID).filter(|id| (1..=MAX_ID_LENGTH).contains(&id.len()) && id.as_bytes().iter().all(plain));
    let generated = || HeaderValue::from_str(generate_id().as_hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    // A UUID is always a valid header value.
    from_client.cloned().unwrap_or_else(|| generated().unwrap_or(HeaderValue::from_static("none")))
}

/// Returns a UUID of version 7 whose random part is drawn once per process and followed by a counter (RFC 9562
/// section 6.2, method 1). A system call for random bytes would cost more than the rest of a small response, and
/// identifiers need not be unpredictable.
fn generate_id() -> Uuid {
    static PROCESS_RANDOM: LazyLock<[u8; 8]> = LazyLock::new(|| RandomState::new().hash_one(0).to_be_bytes());
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let mut rest = [0; 10];
    rest[..4].copy_from_slice(&PROCESS_RANDOM[..4]);
    rest[4..].copy_from_slice(&COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or_default(), &rest).into_uuid()
}

/// Returns the method as a label, or `other`, because clients can send any number of invented methods.
fn method_label(method: &Method) -> &'static str {
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, Method};

    use super::{method_label, request_id};

    #[test]
    fn client_identifier_is_used_only_if_safe_to_log() {
        let id = |from_client: &[u8]| {
            let headers: HeaderMap =
                [(super::REQUEST_ID, HeaderValue::from_bytes(from_client).unwrap())].into_iter().collect();
            request_id(&headers)
        };
        assert_eq!(id(b"proxy-1:7"), "proxy-1:7");
        let long = "a".repeat(129);
        for unfit in [&b""[..], b"a b", b"\xff", b"a\tb", b"\"", long.as_bytes()] {
            let generated = id(unfit);
            assert!(uuid::Uuid::parse_str(generated.to_str().unwrap()).is_ok(), "{unfit:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn generated_identifiers_are_unique() {
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| super::generate_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
    }

    #[test]
    fn unknown_method_has_label_other() {
        assert_eq!(method_label(&Method::DELETE), "DELETE");
        assert_eq!(method_label(&Method::from_bytes(b"INVENTED").unwrap()), "other");
    }
}
