//! Errors that do not come from a handler: no route, another method, a panic, a time limit, and error responses of
//! axum or another layer. Each becomes a problem document.

use std::{any::Any, time::Duration};

use axum::{
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

use super::{Limit, Problem, ProblemCode, limit_hit};

/// Fallback for `Router::fallback`: no route matches.
pub async fn not_found(uri: Uri) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("No resource has the path {}. Check the spelling.", uri.path()))
}

/// Fallback for `Router::method_not_allowed_fallback`: the route does not support the method. axum lists the
/// supported ones in `Allow`.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not support {method}. Use a method that the Allow header lists.", uri.path());
    Problem::new(ProblemCode::MethodNotAllowed, detail)
}

/// Response for `CatchPanicLayer::custom`: a handler panicked. The panic message is logged.
#[must_use]
pub fn panic_response(panic: Box<dyn Any + Send>) -> Response {
    let message = match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "no message".to_owned(), |s| (*s).to_owned()),
    };
    Problem::internal(format!("panic: {message}")).into_response()
}

/// Limits the time between the headers of a request and those of its response. Reading the request body counts;
/// sending the response body does not.
pub(super) async fn time_limit(limit: Duration, responding: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(limit, responding).await.unwrap_or_else(|_| {
        let detail = format!(
            "The request took longer than {} seconds. It may have been processed nevertheless; send it again.",
            limit.as_secs()
        );
        limit_hit(Limit::RequestSeconds);
        Problem::new(ProblemCode::Timeout, detail).retry_after(Duration::from_secs(1)).into_response()
    })
}

/// Converts an error response to a problem document, unless it is one, as for a rejection by axum's own extractors.
/// Keeps headers that do not describe the body, such as `Allow` and `Retry-After`.
pub(super) fn into_problem_response(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|media_type| media_type == Problem::MEDIA_TYPE);
    if !is_error || is_problem {
        return response;
    }
    let mut problem = problem_of_status(status).into_response();
    for (name, value) in response.headers() {
        let body_headers = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::ETAG];
        if !body_headers.contains(name) {
            problem.headers_mut().append(name, value.clone());
        }
    }
    problem
}

fn problem_of_status(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => Problem::new(ProblemCode::NotFound, "No resource has this URL."),
        StatusCode::GONE => Problem::new(ProblemCode::Gone, "The resource has been removed."),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            ProblemCode::MethodNotAllowed,
            "The resource does not support this method. Use a method that the Allow header lists.",
        ),
        StatusCode::NOT_ACCEPTABLE => {
            Problem::new(ProblemCode::NotAcceptable, "None of the accepted media types is available.")
        }
        StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        StatusCode::TOO_MANY_REQUESTS => {
            Problem::new(ProblemCode::TooManyMessages, "The rate limit is exceeded. Send the request again later.")
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            Problem::new(ProblemCode::Timeout, "The request took too long. Send it again.")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            Problem::new(ProblemCode::Unavailable, "The gateway cannot serve the request at present. Try again later.")
        }
        status if status.is_client_error() => {
            Problem::new(ProblemCode::BadRequest, format!("The request cannot be parsed (HTTP status {status})."))
        }
        status => Problem::internal(format!("a layer returned {status}")),
    }
}

/// Returns the problem of a body that exceeds its limit, and counts it.
pub(super) fn body_too_large() -> Problem {
    limit_hit(Limit::BodyBytes);
    let detail = "The body exceeds limits.body_bytes. Send less, or raise that limit in the configuration.";
    Problem::new(ProblemCode::BodyTooLarge, detail)
}
