//! `POST /hub`, the endpoint for WebSub subscribers.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Hub, HubRequest, InvalidRequest, SubmitError};
use crate::web::{Body, Problem, ProblemCode, ReadPermit, problems};

/// Required media type of requests.
const FORM: &str = "application/x-www-form-urlencoded";

/// Value of `Retry-After` when the verification queue is full.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A request of a WebSub subscriber (section 5.1). Other parameters are ignored.
#[derive(Deserialize, ToSchema)]
#[schema(as = HubRequest)]
#[expect(dead_code, reason = "a form is read with a complaint for each parameter; this describes it")]
struct Form {
    /// URL to which new entries are posted.
    #[serde(rename = "hub.callback")]
    #[schema(max_length = 2048, pattern = "^https?://")]
    callback: String,
    /// `subscribe` or `unsubscribe`.
    #[serde(rename = "hub.mode")]
    #[schema(pattern = "^(un)?subscribe$")]
    mode: String,
    /// URL of the feed, as in its link `self`: `/feed`, with any filter.
    #[serde(rename = "hub.topic")]
    #[schema(max_length = 2048)]
    topic: String,
    /// Requested lease in seconds.
    #[serde(rename = "hub.lease_seconds", default)]
    #[schema(value_type = u64, required = false, minimum = 1)]
    lease: Option<u64>,
    /// Secret for signing messages.
    #[serde(rename = "hub.secret", default)]
    #[schema(value_type = String, required = false, min_length = 1, max_length = 199)]
    secret: Option<String>,
}

problems!(HubProblems: NotFound, BadRequest, InvalidHubRequest, BodyTooLarge, UnsupportedEncoding, Unavailable);

/// Requests a subscription at the WebSub hub, or its end. A subscription gets what its subscriber may see now, even if the
/// token is removed later. The response does not wait until the callback has
/// confirmed the request.
///
/// # Errors
/// `invalid-hub-request`; `unavailable` if too many requests wait for verification; `not-found` if there is no
/// hub.
#[utoipa::path(
    post,
    path = "/hub",
    operation_id = "subscribeAtHub",
    tag = "out",
    request_body(content = Form, content_type = "application/x-www-form-urlencoded"),
    responses((status = 202, description = "The request will be verified."), HubProblems),
)]
pub async fn receive(
    State(hub): State<Option<Hub>>,
    permit: ReadPermit,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Problem> {
    let hub =
        hub.ok_or_else(|| Problem::new(ProblemCode::NotFound, "This gateway has no hub: hub.enabled is false."))?;
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        let detail = format!("A request of a WebSub subscriber has the Content-Type {FORM}.");
        return Err(Problem::new(ProblemCode::InvalidHubRequest, detail));
    }
    let request = HubRequest::read(&body, hub.guard()).map_err(|error| invalid(&error))?;
    match hub.submit(request, permit.view().cloned()) {
        Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(SubmitError::Invalid(error)) => Err(invalid(&error)),
        Err(busy @ SubmitError::Busy) => {
            Err(Problem::new(ProblemCode::Unavailable, format!("{busy}.")).retry_after(RETRY_AFTER))
        }
    }
}

fn invalid(error: &InvalidRequest) -> Problem {
    Problem::new(ProblemCode::InvalidHubRequest, format!("{error}.")).with("parameter", error.parameter())
}
