//! The middleware of all routes: request limits, the check for foreign sites, logging and metrics, response headers,
//! and conversion of every error to a problem document.
//!
//! This is one layer instead of several, because an axum layer clones all layers inside it for each request. Split
//! into small layers, this took longer than a small response.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::HttpBody,
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, Method, Uri, Version, header::HOST, uri::PathAndQuery},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    BodyBudget, BodyLimit, Problem, ProblemCode,
    access::with_probation,
    charset::with_charset,
    connections::Probation,
    extract::drain_body,
    fallback::{into_problem_response, time_limit},
    limits,
    security_headers::SecurityHeaders,
    site::{ForeignSite, OwnSite},
    telemetry::{RequestMetrics, instrument},
};

/// Maximum number of headers of a request. hyper itself refuses more than 100 (`web::hyper_errors`).
const MAX_HEADERS: usize = 64;

/// Maximum size of the names and values of all headers, in bytes. hyper itself refuses headers longer than its buffer
/// (`web::hyper_errors`).
const MAX_HEADER_BYTES: usize = 24 * 1024;

/// Maximum length of a path with its query, in bytes. hyper itself refuses more than 65 534 (`web::hyper_errors`).
const MAX_TARGET_BYTES: usize = 32 * 1024;

/// Route whose requests may wait for changes.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRoute {
    /// Path of the route.
    pub path: &'static str,
    /// Returns for how long a request with this query waits.
    pub wait: fn(&str) -> Duration,
}

/// Policy that applies to every request. Clones share its limits and metrics.
#[derive(Clone)]
pub struct RequestPolicy(Arc<PolicyState>);

#[derive(Clone)]
struct PolicyState {
    body_limit: BodyLimit,
    body_budget: BodyBudget,
    time_limit: Duration,
    max_wait: Duration,
    /// The only routes whose requests may wait for changes; `None` allows every route the parameter `wait`.
    waiting_routes: Option<&'static [WaitingRoute]>,
    metrics: Arc<RequestMetrics>,
    site: OwnSite,
    headers: SecurityHeaders,
}

impl RequestPolicy {
    /// Creates a policy.
    /// - `body_limit`: maximum size of a request body, in bytes.
    /// - `body_budget`: maximum size of all request bodies in memory, in bytes.
    /// - `time_limit`: maximum time between the headers of a request and those of its response.
    /// - `max_wait`: maximum additional time that a request may ask for with the query parameter `wait`.
    #[must_use]
    pub fn new(body_limit: usize, body_budget: usize, time_limit: Duration, max_wait: Duration) -> Self {
        limits::register();
        Self(Arc::new(PolicyState {
            body_limit: BodyLimit(body_limit),
            body_budget: BodyBudget::new(body_budget),
            time_limit,
            max_wait,
            waiting_routes: None,
            metrics: Arc::default(),
            site: OwnSite::default(),
            headers: SecurityHeaders::default(),
        }))
    }

    /// Allows only GET requests of these routes to wait.
    #[must_use]
    pub fn waiting_on(self, routes: &'static [WaitingRoute]) -> Self {
        self.with(|state| state.waiting_routes = Some(routes))
    }

    /// Refuses requests that a page of another site made a browser send.
    #[must_use]
    pub fn of_site(self, site: OwnSite) -> Self {
        self.with(|state| {
            state.headers = SecurityHeaders::of_connection(site.is_encrypted());
            state.site = site;
        })
    }

    fn with(self, change: impl FnOnce(&mut PolicyState)) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        change(&mut state);
        Self(Arc::new(state))
    }
}

/// Applies the policy to a request. Use it with `middleware::from_fn_with_state` as the outermost layer.
pub async fn apply_request_policy(
    State(RequestPolicy(policy)): State<RequestPolicy>,
    mut request: Request,
    next: Next,
) -> Response {
    if !request.body().is_end_stream() {
        request.extensions_mut().insert(policy.body_limit);
        request.extensions_mut().insert(policy.body_budget.clone());
    }
    let rejection = policy.check(&request).err();
    let time = policy.time_limit + policy.wait_time(&request);
    let mut response = instrument(&policy.metrics, request, async |request| match rejection {
        Some(Rejection::Invalid(problem)) => problem.into_response(),
        Some(Rejection::ForeignSite(foreign)) => refuse_foreign(&foreign, request, time).await,
        None => with_charset(into_problem_response(time_limit(time, next.run(request)).await)),
    })
    .await;
    policy.headers.add_to(response.headers_mut());
    response
}

/// Reason to refuse a request because of its URL and headers.
enum Rejection {
    /// The URL and headers are too large, or name no host.
    Invalid(Problem),
    ForeignSite(ForeignSite),
}

impl PolicyState {
    fn check(&self, request: &Request) -> Result<(), Rejection> {
        let headers = request.headers();
        let problem = too_large(request.uri(), headers).or_else(|| without_host(request.version(), headers));
        if let Some(problem) = problem {
            return Err(Rejection::Invalid(problem));
        }
        self.site.check(request.method(), request.uri(), request.headers()).map_err(Rejection::ForeignSite)
    }

    /// Returns the time that a request may wait for changes, in addition to the time limit of all requests.
    fn wait_time(&self, request: &Request) -> Duration {
        let query = request.uri().query().unwrap_or_default();
        let wait = match self.waiting_routes {
            None => wait_parameter(query),
            Some(routes) => {
                let path = request.extensions().get::<MatchedPath>().filter(|_| request.method() == Method::GET);
                let route = path.and_then(|path| routes.iter().find(|route| route.path == path.as_str()));
                route.map_or(Duration::ZERO, |route| (route.wait)(query))
            }
        };
        wait.min(self.max_wait)
    }
}

async fn refuse_foreign(foreign: &ForeignSite, request: Request, time: Duration) -> Response {
    let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| tracing::field::display(*peer));
    tracing::warn!(peer, method = %request.method(), reason = foreign.reason(), "request refused: foreign site");
    with_probation(&request, Probation::begin);
    let response = async {
        drain_body(request).await;
        foreign.problem().into_response()
    };
    time_limit(time, response).await
}

/// Parses the parameter `wait` of a query; zero if it is missing or invalid.
#[must_use]
pub fn wait_parameter(query: &str) -> Duration {
    let wait = query.split('&').find_map(|parameter| parameter.strip_prefix("wait="));
    Duration::from_secs(wait.and_then(|seconds| seconds.parse().ok()).unwrap_or(0))
}

/// Returns a problem if the URL or the headers exceed their limits.
fn too_large(uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    if uri.path_and_query().map_or("", PathAndQuery::as_str).len() > MAX_TARGET_BYTES {
        let detail = format!("The path with its query is longer than {MAX_TARGET_BYTES} bytes. Request less at once.");
        return Some(Problem::new(ProblemCode::AddressTooLong, detail));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let detail = format!(
            "The request has {} headers of {bytes} bytes; at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes are accepted.",
            headers.len()
        );
        return Some(Problem::new(ProblemCode::HeadTooLarge, detail));
    }
    None
}

/// Returns a problem if the request does not name its host exactly once (RFC 9112 section 3.2), because a proxy in front
/// may have chosen another one. HTTP/1.0 has requests without a host.
fn without_host(version: Version, headers: &HeaderMap) -> Option<Problem> {
    let hosts = headers.get_all(HOST).iter().count();
    let is_valid = hosts == 1 || (hosts == 0 && version < Version::HTTP_11);
    let detail = "The request must have the header Host exactly once. Check the sender.";
    (!is_valid).then(|| Problem::new(ProblemCode::BadRequest, detail))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};

    use super::{Duration, MAX_HEADER_BYTES, MAX_HEADERS, MAX_TARGET_BYTES, too_large, wait_parameter};
    use crate::web::ProblemCode;

    fn headers_of(count: usize, value: usize) -> HeaderMap {
        let field = |n| {
            let name = HeaderName::from_bytes(format!("x-{n:03}").as_bytes()).unwrap();
            (name, HeaderValue::from_bytes(&vec![b'v'; value]).unwrap())
        };
        (0..count).map(field).collect()
    }

    #[test]
    fn wait_parameter_is_parsed() {
        let seconds = ["", "wait=3", "after=1&wait=30", "await=3", "wait=x", "wait="]
            .map(|query| wait_parameter(query).as_secs());
        assert_eq!(seconds, [0, 3, 30, 0, 0, 0]);
        assert_eq!(wait_parameter("wait=18446744073709551615"), Duration::from_secs(u64::MAX));
    }

    #[test]
    fn headers_and_target_are_limited() {
        let code = |uri: &str, headers: &HeaderMap| {
            too_large(&uri.parse::<Uri>().unwrap(), headers).map(|problem| problem.code())
        };
        let short = HeaderMap::new();
        let target = |length: usize| format!("/{}", "x".repeat(length - 1));
        assert_eq!(code(&target(MAX_TARGET_BYTES), &short), None);
        assert_eq!(code(&target(MAX_TARGET_BYTES + 1), &short), Some(ProblemCode::AddressTooLong));
        assert_eq!(code("/", &headers_of(MAX_HEADERS, 1)), None);
        assert_eq!(code("/", &headers_of(MAX_HEADERS + 1, 1)), Some(ProblemCode::HeadTooLarge));
        assert_eq!(code("/", &headers_of(1, MAX_HEADER_BYTES - 5)), None);
        assert_eq!(code("/", &headers_of(1, MAX_HEADER_BYTES - 4)), Some(ProblemCode::HeadTooLarge));
    }
}
