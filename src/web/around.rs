//! What holds for every request, whatever its route: its bounds, its place in the log and the metrics,
//! and that whatever goes wrong is a problem document.
//!
//! It is one layer and not one for each, since every layer of axum's copies all those inside it for each
//! request: as many small ones they took longer than a small answer.

use std::{sync::Arc, time::Duration};

use axum::{
    body::HttpBody,
    extract::{Request, State},
    http::{HeaderMap, Uri, uri::PathAndQuery},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    BodyLimit, HeldBytes, Problem, ProblemCode,
    charset::with_charset,
    fallback::{every_error_is_a_problem, time_limit},
    observe::{Series, observe},
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

struct Parts {
    body: BodyLimit,
    held: HeldBytes,
    time: Duration,
    wait: Duration,
    series: Series,
}

impl Around {
    /// A body may have so many bytes, and all that are held at once so many; a request may take so
    /// long from its head to the head of its answer, and so much longer if its query asks for that by `wait`.
    #[must_use]
    pub fn new(body: usize, held: usize, time: Duration, wait: Duration) -> Self {
        let (body, held) = (BodyLimit(body), HeldBytes::new(held));
        Self(Arc::new(Parts { body, held, time, wait, series: Series::default() }))
    }
}

/// For `middleware::from_fn_with_state`, as the outermost layer.
pub async fn around(State(Around(around)): State<Around>, mut request: Request, next: Next) -> Response {
    if !request.body().is_end_stream() {
        request.extensions_mut().insert(around.body);
        request.extensions_mut().insert(around.held.clone());
    }
    let too_large = too_large(request.uri(), request.headers());
    let time = around.time + wait(request.uri().query().unwrap_or_default()).min(around.wait);
    observe(&around.series, request, async |request| match too_large {
        Some(problem) => problem.into_response(),
        None => with_charset(every_error_is_a_problem(time_limit(time, next.run(request)).await)),
    })
    .await
}

/// How long a request may wait for what it asks for, by its query. A route that knows no such parameter refuses
/// it at once.
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
