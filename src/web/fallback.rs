//! The errors that no handler of ours makes: no route, another method, a panic, a time limit, and
//! whatever axum or a layer answers by itself. Each becomes a problem document.

use std::{any::Any, time::Duration};

use axum::{
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

use super::{Limit, Problem, ProblemCode, limit_hit};

/// For `Router::fallback`: there is no such route.
pub async fn not_found(uri: Uri) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("There is nothing at {}. Look at the spelling.", uri.path()))
}

/// For `Router::method_not_allowed_fallback`: the route answers to other methods, which axum lists
/// in `Allow`.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not answer to {method}. Use a method that the Allow header lists.", uri.path());
    Problem::new(ProblemCode::MethodNotAllowed, detail)
}

/// For `CatchPanicLayer::custom`: a handler panicked. The message of the panic goes to the log.
#[must_use]
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "no message".to_owned(), |s| (*s).to_owned()),
    };
    Problem::internal(format!("panic: {message}")).into_response()
}

/// A request has so much time from its head to the head of its answer. Reading the request's body
/// counts; sending the answer's does not.
pub(super) async fn time_limit(limit: Duration, answering: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(limit, answering).await.unwrap_or_else(|_| {
        let detail = format!(
            "The request was not answered within {} seconds. It may have been carried out nevertheless; send it again.",
            limit.as_secs()
        );
        limit_hit(Limit::RequestSeconds);
        Problem::new(ProblemCode::Timeout, detail).retry_after(Duration::from_secs(1)).into_response()
    })
}

/// Makes a problem document of an error that is none yet, such as a rejection of an extractor of axum's
/// own. The headers that it carried beside its body are kept (`Allow`, `Retry-After`).
pub(super) fn every_error_is_a_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|media_type| media_type == Problem::MEDIA_TYPE);
    if !is_error || is_problem {
        return response;
    }
    let mut problem = of_status(status).into_response();
    for (name, value) in response.headers() {
        let of_the_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::ETAG];
        if !of_the_body.contains(name) {
            problem.headers_mut().append(name, value.clone());
        }
    }
    problem
}

fn of_status(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => Problem::new(ProblemCode::NotFound, "There is nothing at this address."),
        StatusCode::GONE => Problem::new(ProblemCode::Gone, "What was at this address is no longer kept."),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            ProblemCode::MethodNotAllowed,
            "The address does not answer to this method. Use a method that the Allow header lists.",
        ),
        StatusCode::NOT_ACCEPTABLE => {
            Problem::new(ProblemCode::NotAcceptable, "None of the accepted media types is offered here.")
        }
        StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        StatusCode::TOO_MANY_REQUESTS => {
            Problem::new(ProblemCode::TooManyMessages, "More was sent than may be. Send it again later.")
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            Problem::new(ProblemCode::Timeout, "The request was not answered in time. Send it again.")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            Problem::new(ProblemCode::Unavailable, "The gateway cannot take the request at present. Try again later.")
        }
        status if status.is_client_error() => {
            Problem::new(ProblemCode::BadRequest, format!("The request cannot be read (HTTP status {status})."))
        }
        status => Problem::internal(format!("a layer answered {status}")),
    }
}

/// The body is larger than the limit that its extractor was given; that is counted.
pub(super) fn body_too_large() -> Problem {
    limit_hit(Limit::BodyBytes);
    let detail =
        "The body is larger than this gateway takes. Send less, or raise limits.body_bytes in its configuration.";
    Problem::new(ProblemCode::BodyTooLarge, detail)
}
