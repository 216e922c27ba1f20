//! `/publication`: the published copy, its last run, and the request for one.

use axum::{Json, extract::State, http::StatusCode};

use crate::{
    publish::{Publication, PublicationState},
    web::{Problem, ProblemCode, problems},
};

problems!(ShowProblems: NotFound);
problems!(RunProblems: NotFound, Conflict);

/// The published copy, as this node knows it.
///
/// # Errors
/// `not-found` if nothing is published.
#[utoipa::path(
    get,
    path = "/publication",
    operation_id = "getPublication",
    tag = "administration",
    responses((status = 200, description = "The copy and its last run.", body = PublicationState), ShowProblems),
)]
pub async fn show(State(publication): State<Option<Publication>>) -> Result<Json<PublicationState>, Problem> {
    Ok(Json(publication.ok_or_else(nothing)?.state()))
}

/// Asks for a run now. It has ended when `answered` is at least `requested` of the response.
///
/// # Errors
/// `not-found` if nothing is published; `conflict` if this node does not write the copy at present.
#[utoipa::path(
    post,
    path = "/publication",
    operation_id = "publish",
    tag = "administration",
    responses((status = 202, description = "The state with this request.", body = PublicationState), RunProblems),
)]
pub async fn run(
    State(publication): State<Option<Publication>>,
) -> Result<(StatusCode, Json<PublicationState>), Problem> {
    let state = publication.ok_or_else(nothing)?.request().ok_or_else(|| {
        let detail = "This node does not write the published copy: another one does, or this one is just starting or \
                      stopping. In GET /nodes, the node that writes has the duty \"publication\"; ask this node.";
        Problem::new(ProblemCode::Conflict, detail.to_owned())
    })?;
    Ok((StatusCode::ACCEPTED, Json(state)))
}

fn nothing() -> Problem {
    Problem::new(ProblemCode::NotFound, "Nothing is published. Set publish.folder or publish.s3.".to_owned())
}
