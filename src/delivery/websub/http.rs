//! `POST /hub`: where WebSub subscribers ask.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Hub, InvalidRequest, NotTaken, Request};
use crate::web::{Body, Problem, ProblemCode, problems};

/// What a request has to be.
const FORM: &str = "application/x-www-form-urlencoded";

/// How long who comes when too many wait is to stay away.
const COME_BACK: Duration = Duration::from_secs(10);

/// A request of a WebSub subscriber (section 5.1). Other parameters are ignored.
#[derive(Deserialize, ToSchema)]
#[schema(as = HubRequest)]
#[expect(dead_code, reason = "a form is read with a complaint for each parameter; this describes it")]
struct Form {
    /// Where new entries are to be posted.
    #[serde(rename = "hub.callback")]
    #[schema(max_length = 2048, pattern = "^https?://")]
    callback: String,
    /// `subscribe` or `unsubscribe`.
    #[serde(rename = "hub.mode")]
    #[schema(pattern = "^(un)?subscribe$")]
    mode: String,
    /// The feed, as it tells its own address: `/feed`, with any filter.
    #[serde(rename = "hub.topic")]
    #[schema(max_length = 2048)]
    topic: String,
    /// For how long, in seconds.
    #[serde(rename = "hub.lease_seconds", default)]
    #[schema(value_type = u64, required = false, minimum = 1)]
    lease: Option<u64>,
    /// What messages are to be signed with.
    #[serde(rename = "hub.secret", default)]
    #[schema(value_type = String, required = false, min_length = 1, max_length = 199)]
    secret: Option<String>,
}

problems!(HubProblems: NotFound, BadRequest, InvalidHubRequest, BodyTooLarge, UnsupportedEncoding, Unavailable);

/// Asks the WebSub hub to subscribe, or to end that. The callback is asked whether it was meant; how that ends is
/// not waited for.
///
/// # Errors
/// `invalid-hub-request`; `unavailable` when too many wait to be verified; `not-found` where there is no hub.
#[utoipa::path(
    post,
    path = "/hub",
    operation_id = "subscribeAtHub",
    tag = "out",
    request_body(content = Form, content_type = "application/x-www-form-urlencoded"),
    responses((status = 202, description = "It will be verified."), HubProblems),
)]
pub async fn receive(
    State(hub): State<Option<Hub>>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Problem> {
    let hub =
        hub.ok_or_else(|| Problem::new(ProblemCode::NotFound, "This gateway has no hub: hub.enabled is false."))?;
    let told = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !told.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        let detail = format!("A request of a WebSub subscriber has the Content-Type {FORM}.");
        return Err(Problem::new(ProblemCode::InvalidHubRequest, detail));
    }
    let request = Request::read(&body, hub.guard()).map_err(|error| invalid(&error))?;
    match hub.take(request) {
        Ok(()) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(NotTaken::Invalid(error)) => Err(invalid(&error)),
        Err(busy @ NotTaken::Busy) => {
            Err(Problem::new(ProblemCode::Unavailable, format!("{busy}.")).retry_after(COME_BACK))
        }
    }
}

fn invalid(error: &InvalidRequest) -> Problem {
    Problem::new(ProblemCode::InvalidHubRequest, format!("{error}.")).with("parameter", error.parameter())
}
