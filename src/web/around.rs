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
    series: Series,
}

impl Around {
    /// A body may have so many bytes, and all that are held at once so many; a request may take so
    /// long from its head to the head of its answer.
    #[must_use]
    pub fn new(body: usize, held: usize, time: Duration) -> Self {
        let (body, held) = (BodyLimit(body), HeldBytes::new(held));
        Self(Arc::new(Parts { body, held, time, series: Series::default() }))
    }
}

/// For `middleware::from_fn_with_state`, as the outermost layer.
pub async fn around(State(Around(around)): State<Around>, mut request: Request, next: Next) -> Response {
    if !request.body().is_end_stream() {
        request.extensions_mut().insert(around.body);
        request.extensions_mut().insert(around.held.clone());
    }
    let too_large = too_large(request.uri(), request.headers());
    observe(&around.series, request, async |request| match too_large {
        Some(problem) => problem.into_response(),
        None => every_error_is_a_problem(time_limit(around.time, next.run(request)).await),
    })
    .await
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

    use super::{FIELDS, FIELDS_BYTES, TARGET_BYTES, too_large};
    use crate::web::ProblemCode;

    fn fields(count: usize, value: usize) -> HeaderMap {
        let field = |n| {
            let name = HeaderName::from_bytes(format!("x-{n:03}").as_bytes()).unwrap();
            (name, HeaderValue::from_bytes(&vec![b'v'; value]).unwrap())
        };
        (0..count).map(field).collect()
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
