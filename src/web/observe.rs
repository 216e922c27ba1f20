//! What is seen of every request: a span around all that it causes, its count and its time.
//!
//! Of a request its method, the template of its route and its identifier are told. Its path, query
//! and headers are not: they may hold credentials, and as labels they would be without number.

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

/// The metric of requests that were answered.
pub const REQUESTS: &str = "tidings_http_requests_total";

/// The metric of the time from a request's head to the head of its answer, in seconds.
pub const REQUEST_SECONDS: &str = "tidings_http_request_duration_seconds";

/// The header that carries a request's identifier, from the client or a proxy and back.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest identifier taken from a client, in bytes.
const LONGEST_ID: usize = 128;

/// What stands for the route where no route matched.
const NO_ROUTE: &str = "none";

/// The series of [`REQUESTS`] and [`REQUEST_SECONDS`] that have been counted in, by route. A series is
/// looked for by its labels once and held from then on: that costs more than to count.
#[derive(Default)]
pub(super) struct Series(RwLock<HashMap<String, Vec<Answers>>>);

/// The answers of a route to one method with one status.
struct Answers {
    method: &'static str,
    status: u16,
    count: metrics::Counter,
    time: metrics::Histogram,
}

impl Series {
    fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let is_it = |answers: &&Answers| answers.method == method && answers.status == status;
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = held.get(route).and_then(|of_route| of_route.iter().find(is_it)) {
            return answers.add(took);
        }
        drop(held);
        let answers = Answers::new(method, route, status);
        answers.add(took);
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let of_route = held.entry(route.to_owned()).or_default();
        // Another request may have been as quick.
        if !of_route.iter().any(|answers| is_it(&answers)) {
            of_route.push(answers);
        }
    }
}

impl Answers {
    fn new(method: &'static str, route: &str, status: u16) -> Self {
        let (route, code) = (route.to_owned(), status.to_string());
        Self {
            method,
            status,
            time: metrics::histogram!(REQUEST_SECONDS, "method" => method, "route" => route.clone()),
            count: metrics::counter!(REQUESTS, "method" => method, "route" => route, "status" => code),
        }
    }

    fn add(&self, took: Duration) {
        self.time.record(took);
        self.count.increment(1);
    }
}

/// Has `next` answer the request, in a span with an identifier, which the answer has too, and counts it.
pub(super) async fn observe(
    series: &Series,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let began = Instant::now();
    let method = known_method(request.method());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let id = request_id(request.headers());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), method, route);
    let mut response = next(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let took = began.elapsed();
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    span.in_scope(|| tracing::debug!(status, took_us, "answered"));
    series.answered(method, route, status, took);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The client's identifier, if it can stand in a log as it is; otherwise a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(byte);
    let told =
        headers.get(REQUEST_ID).filter(|id| (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(plain));
    let minted = || HeaderValue::from_str(minted_id().as_hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    // A UUID has only what a header can carry.
    told.cloned().unwrap_or_else(|| minted().unwrap_or(HeaderValue::from_static("none")))
}

/// A UUID of version 7 whose random part is drawn once a process, with a counter behind it (RFC 9562
/// section 6.2, method 1): to ask the system for chance costs more than the rest of a small answer, and
/// nobody is kept out by an identifier that cannot be guessed.
fn minted_id() -> Uuid {
    static OF_PROCESS: LazyLock<[u8; 8]> = LazyLock::new(|| RandomState::new().hash_one(0).to_be_bytes());
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let mut rest = [0; 10];
    rest[..4].copy_from_slice(&OF_PROCESS[..4]);
    rest[4..].copy_from_slice(&COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or_default(), &rest).into_uuid()
}

/// The method as a label: a client can invent others without end.
fn known_method(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, Method};

    use super::{known_method, request_id};

    #[test]
    fn an_identifier_is_taken_only_if_a_log_can_carry_it() {
        let id = |told: &[u8]| {
            let headers: HeaderMap =
                [(super::REQUEST_ID, HeaderValue::from_bytes(told).unwrap())].into_iter().collect();
            request_id(&headers)
        };
        assert_eq!(id(b"proxy-1:7"), "proxy-1:7");
        let long = "a".repeat(129);
        for unfit in [&b""[..], b"a b", b"\xff", b"a\tb", b"\"", long.as_bytes()] {
            let minted = id(unfit);
            assert!(uuid::Uuid::parse_str(minted.to_str().unwrap()).is_ok(), "{unfit:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn identifiers_that_are_made_are_all_different() {
        let made: std::collections::HashSet<_> = (0..10_000).map(|_| super::minted_id()).collect();
        assert_eq!(made.len(), 10_000);
        assert!(made.iter().all(|id| id.get_version_num() == 7));
    }

    #[test]
    fn an_invented_method_is_no_label() {
        assert_eq!(known_method(&Method::DELETE), "DELETE");
        assert_eq!(known_method(&Method::from_bytes(b"INVENTED").unwrap()), "other");
    }
}
