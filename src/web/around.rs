//! What holds for every request, whatever its route: its bounds, the sites that may send it, its place in the log
//! and the metrics, the headers of its answer, and that whatever goes wrong is a problem document.
//!
//! It is one layer and not one for each, since every layer of axum's copies all those inside it for each
//! request: as many small ones they took longer than a small answer.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::HttpBody,
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, Method, Uri, uri::PathAndQuery},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    BodyLimit, HeldBytes, Problem, ProblemCode,
    access::on_trial,
    charset::with_charset,
    crowd::Trial,
    extract::hear_out,
    fallback::{every_error_is_a_problem, time_limit},
    observe::{Series, observe},
    security_headers::SecurityHeaders,
    site::{ForeignSite, OwnSite},
};

/// How many header fields a request may have. hyper refuses more than 100 by itself (`web::refusal`).
const FIELDS: usize = 64;

/// How long the names and values of the header fields may be together, in bytes. hyper refuses a
/// head by itself that is longer than its buffer (`web::refusal`).
const FIELDS_BYTES: usize = 24 * 1024;

/// How long a path with its query may be, in bytes. hyper refuses more than 65 534 by itself
/// (`web::refusal`).
const TARGET_BYTES: usize = 32 * 1024;

/// What holds for every request. Clones are handles to the same bounds and counts.
#[derive(Clone)]
pub struct Around(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    body: BodyLimit,
    held: HeldBytes,
    time: Duration,
    wait: Duration,
    /// The path of the one route whose requests may ask to wait; of every route, where it is not set.
    waiting_path: Option<&'static str>,
    series: Arc<Series>,
    site: OwnSite,
    headers: SecurityHeaders,
}

impl Around {
    /// A body may have so many bytes, and all that are held at once so many; a request may take so
    /// long from its head to the head of its answer, and so much longer if its query asks for that by `wait`.
    #[must_use]
    pub fn new(body: usize, held: usize, time: Duration, wait: Duration) -> Self {
        Self(Arc::new(Parts {
            body: BodyLimit(body),
            held: HeldBytes::new(held),
            time,
            wait,
            waiting_path: None,
            series: Arc::default(),
            site: OwnSite::default(),
            headers: SecurityHeaders::default(),
        }))
    }

    /// Lets only GET requests of the route with this path wait.
    #[must_use]
    pub fn waiting_on(self, path: &'static str) -> Self {
        self.with(|parts| parts.waiting_path = Some(path))
    }

    /// Refuses requests that pages of other sites than this one make a browser send.
    #[must_use]
    pub fn of_site(self, site: OwnSite) -> Self {
        self.with(|parts| {
            parts.headers = SecurityHeaders::of_connection(site.is_encrypted());
            parts.site = site;
        })
    }

    fn with(self, change: impl FnOnce(&mut Parts)) -> Self {
        let mut parts = Arc::unwrap_or_clone(self.0);
        change(&mut parts);
        Self(Arc::new(parts))
    }
}

/// For `middleware::from_fn_with_state`, as the outermost layer.
pub async fn around(State(Around(around)): State<Around>, mut request: Request, next: Next) -> Response {
    if !request.body().is_end_stream() {
        request.extensions_mut().insert(around.body);
        request.extensions_mut().insert(around.held.clone());
    }
    let refused = around.refused(&request);
    let time = around.time + around.wait_of(&request);
    let mut response = observe(&around.series, request, async |request| match refused {
        Some(Refused::TooLarge(problem)) => problem.into_response(),
        Some(Refused::Foreign(foreign)) => refuse_foreign(&foreign, request, time).await,
        None => with_charset(every_error_is_a_problem(time_limit(time, next.run(request)).await)),
    })
    .await;
    around.headers.add_to(response.headers_mut());
    response
}

/// Reason to refuse a request by its head alone.
enum Refused {
    TooLarge(Problem),
    Foreign(ForeignSite),
}

impl Parts {
    fn refused(&self, request: &Request) -> Option<Refused> {
        if let Some(problem) = too_large(request.uri(), request.headers()) {
            return Some(Refused::TooLarge(problem));
        }
        self.site.check(request.method(), request.uri(), request.headers()).err().map(Refused::Foreign)
    }

    /// Returns the time that a request may wait for changes beyond the time limit of all requests.
    fn wait_of(&self, request: &Request) -> Duration {
        let may_wait = self.waiting_path.is_none_or(|path| {
            let route = request.extensions().get::<MatchedPath>();
            request.method() == Method::GET && route.is_some_and(|route| route.as_str() == path)
        });
        let wait = || wait(request.uri().query().unwrap_or_default()).min(self.wait);
        if may_wait { wait() } else { Duration::ZERO }
    }
}

async fn refuse_foreign(foreign: &ForeignSite, request: Request, time: Duration) -> Response {
    let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| tracing::field::display(*peer));
    tracing::warn!(peer, method = %request.method(), reason = foreign.reason(), "request refused");
    on_trial(&request, Trial::begin);
    let refused = async {
        hear_out(request).await;
        foreign.problem().into_response()
    };
    time_limit(time, refused).await
}

/// The time that a query asks to wait.
fn wait(query: &str) -> Duration {
    let told = query.split('&').find_map(|parameter| parameter.strip_prefix("wait="));
    Duration::from_secs(told.and_then(|seconds| seconds.parse().ok()).unwrap_or(0))
}

/// Why the head of a request is not taken.
fn too_large(uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    if uri.path_and_query().map_or("", PathAndQuery::as_str).len() > TARGET_BYTES {
        let detail = format!("The path with its query is longer than {TARGET_BYTES} bytes. Ask for less at once.");
        return Some(Problem::new(ProblemCode::AddressTooLong, detail));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > FIELDS || bytes > FIELDS_BYTES {
        let detail = format!(
            "The request has {} header fields of {bytes} bytes; it may have {FIELDS} of {FIELDS_BYTES} bytes together.",
            headers.len()
        );
        return Some(Problem::new(ProblemCode::HeadTooLarge, detail));
    }
    None
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};

    use super::{Duration, FIELDS, FIELDS_BYTES, TARGET_BYTES, too_large, wait};
    use crate::web::ProblemCode;

    fn fields(count: usize, value: usize) -> HeaderMap {
        let field = |n| {
            let name = HeaderName::from_bytes(format!("x-{n:03}").as_bytes()).unwrap();
            (name, HeaderValue::from_bytes(&vec![b'v'; value]).unwrap())
        };
        (0..count).map(field).collect()
    }

    #[test]
    fn a_request_says_how_long_it_waits() {
        let told = ["", "wait=3", "after=1&wait=30", "await=3", "wait=x", "wait="].map(|query| wait(query).as_secs());
        assert_eq!(told, [0, 3, 30, 0, 0, 0]);
        assert_eq!(wait("wait=18446744073709551615"), Duration::from_secs(u64::MAX));
    }

    #[test]
    fn a_head_is_taken_up_to_its_bounds() {
        let code = |uri: &str, headers: &HeaderMap| {
            too_large(&uri.parse::<Uri>().unwrap(), headers).map(|problem| problem.code())
        };
        let short = HeaderMap::new();
        let target = |length: usize| format!("/{}", "x".repeat(length - 1));
        assert_eq!(code(&target(TARGET_BYTES), &short), None);
        assert_eq!(code(&target(TARGET_BYTES + 1), &short), Some(ProblemCode::AddressTooLong));
        assert_eq!(code("/", &fields(FIELDS, 1)), None);
        assert_eq!(code("/", &fields(FIELDS + 1, 1)), Some(ProblemCode::HeadTooLarge));
        assert_eq!(code("/", &fields(1, FIELDS_BYTES - 5)), None);
        assert_eq!(code("/", &fields(1, FIELDS_BYTES - 4)), Some(ProblemCode::HeadTooLarge));
    }
}
