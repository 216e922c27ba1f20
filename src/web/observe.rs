//! What is seen of every request: a span around all that it causes, its count and its time.
//!
//! Of a request its method, the template of its route and its identifier are told. Its path, query
//! and headers are not: they may hold credentials, and as labels they would be without number.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method},
    middleware::Next,
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

/// For `middleware::from_fn`, as the outermost layer: gives the request a span with an identifier,
/// which the answer has too, and counts it.
pub async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = known_method(request.method());
    let route =
        request.extensions().get().map_or_else(|| NO_ROUTE.to_owned(), |path: &MatchedPath| path.as_str().to_owned());
    let id = request_id(request.headers());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), method, route);
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let took = began.elapsed();
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    span.in_scope(|| tracing::debug!(status, took_us, "answered"));
    metrics::histogram!(REQUEST_SECONDS, "method" => method, "route" => route.clone()).record(took);
    metrics::counter!(REQUESTS, "method" => method, "route" => route, "status" => status.to_string()).increment(1);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The client's identifier, if it can stand in a log as it is; otherwise a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(byte);
    let told =
        headers.get(REQUEST_ID).filter(|id| (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(plain));
    let minted = || HeaderValue::from_str(&Uuid::now_v7().to_string());
    // A UUID has only what a header can carry.
    told.cloned().unwrap_or_else(|| minted().unwrap_or(HeaderValue::from_static("none")))
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
    fn an_invented_method_is_no_label() {
        assert_eq!(known_method(&Method::DELETE), "DELETE");
        assert_eq!(known_method(&Method::from_bytes(b"INVENTED").unwrap()), "other");
    }
}
