//! `GET /hooks/{source}?challenge=X`: Ex Libris Alma asks so whether a hook is there, before it sends messages.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header::ALLOW},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    intake::SourceName,
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// Names of the sources whose sender asks.
pub type ChallengedSources = Arc<BTreeSet<String>>;

/// Maximum length of a challenge, in characters.
const MAX_CHARS: usize = 256;

/// Query of a sender.
#[derive(Deserialize, utoipa::IntoParams)]
pub struct ChallengeQuery {
    /// Text that the response repeats, at most 256 characters.
    #[serde(default)]
    #[param(value_type = String, required = true, max_length = 256)]
    challenge: Option<String>,
}

/// The text that the sender has sent.
#[derive(Serialize, ToSchema)]
pub struct ChallengeResponse {
    /// The text.
    challenge: String,
}

problems!(Problems: UnknownSource, InvalidQuery, MethodNotAllowed);

/// Confirms a hook to a sender that asks before it sends messages, as Ex Libris Alma does.
///
/// # Errors
/// `method-not-allowed` without a challenge; `unknown-source` unless the source has signatures in X-Exl-Signature;
/// `invalid-query` if the challenge is too long.
#[utoipa::path(
    get,
    path = "/hooks/{source}",
    operation_id = "confirmHook",
    tag = "in",
    params(("source" = SourceName, Path, description = "The name of the source."), ChallengeQuery),
    responses((status = 200, description = "The challenge.", body = ChallengeResponse), Problems),
)]
pub async fn respond(
    State(sources): State<ChallengedSources>,
    Path(name): Path<String>,
    Query(query): Query<ChallengeQuery>,
) -> Result<Response, Problem> {
    let Some(challenge) = query.challenge else {
        let detail = "Messages are sent with POST. GET confirms the hook of a source for Alma, and needs a challenge.";
        let mut response = Problem::new(ProblemCode::MethodNotAllowed, detail).into_response();
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(response);
    };
    if !sources.contains(&name) {
        let detail = "There is no hook of this name whose sender sends a challenge: a source for Alma has \
                      signature.header = \"X-Exl-Signature\". Messages are sent with POST.";
        return Err(Problem::new(ProblemCode::UnknownSource, detail));
    }
    if challenge.chars().count() > MAX_CHARS {
        let detail = format!("The challenge has more than {MAX_CHARS} characters.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "challenge"));
    }
    Ok(Json(ChallengeResponse { challenge }).into_response())
}
