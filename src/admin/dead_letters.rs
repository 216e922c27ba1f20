//! What a subscription's receiver refused for good: `GET /subscriptions/{name}/dead-letters` lists it,
//! `GET …/{id}` shows one with its change, `POST …/replay` and `POST …/{id}/replay` send every one or one
//! again, `DELETE` drops every one or one.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{failed, subscriptions::problem};
use crate::{
    delivery::Subscriptions,
    journal::subscriptions::{DeadLetter, DeadLetterId},
    model::{Change, Seq, SubscriptionName, Timestamp},
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// How many dead letters a page has at the most.
const LARGEST_PAGE: usize = 1000;

/// How many it has when the client does not say.
const DEFAULT_LIMIT: usize = 100;

/// The query of the listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The identifier before which to begin; absent is the newest.
    #[serde(default)]
    #[param(value_type = u64, required = false, format = "uint64", maximum = 18446744073709551615usize)]
    before: Option<u64>,
    /// How many dead letters at the most.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetterPage)]
struct PageView<'a> {
    /// The dead letters, newest first, without their changes.
    dead_letters: Vec<LetterView<'a>>,
    /// The `before` of the following page; `null` when this is the last.
    #[schema(value_type = Option<u64>, required = true)]
    next: Option<DeadLetterId>,
}

/// A change that a receiver refused for good.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
struct LetterView<'a> {
    /// Identifies it among the dead letters.
    #[schema(value_type = u64)]
    id: DeadLetterId,
    /// The number of the change.
    seq: Seq,
    /// When it was last refused.
    refused: Timestamp,
    /// How often it has been sent.
    attempts: u64,
    /// Why it was last refused.
    reason: &'a str,
    /// Whether it is about to be sent again.
    replay: bool,
    /// The change as it was to be sent; not in a listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Change, required = false, nullable = false)]
    change: Option<&'a RawValue>,
}

/// How many dead letters something was done with.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLettersConcerned)]
struct ConcernedView {
    /// So many.
    concerned: u64,
}

problems!(ListProblems: NotFound, InvalidQuery, Unavailable);
problems!(OneProblems: NotFound, Unavailable);

/// The dead letters of a subscription, newest first, without their changes.
///
/// # Errors
/// `not-found`; `invalid-query`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/dead-letters",
    operation_id = "listDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "The subscription."), ListQuery),
    responses((status = 200, description = "A page, newest first.", body = PageView), ListProblems),
)]
pub async fn list(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > LARGEST_PAGE {
        let detail = format!("limit is {limit}; give 1 to {LARGEST_PAGE}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    all.get(&name).map_err(problem)?;
    let letters = all.journal().dead_letters(name, query.before.map(DeadLetterId), limit).await.map_err(failed)?;
    let full = letters.len() == limit;
    let next = letters.last().filter(|_| full).map(|letter| letter.id);
    let dead_letters = letters.iter().map(|letter| view(letter, None)).collect();
    Ok(Json(PageView { dead_letters, next }).into_response())
}

/// One dead letter, with its change as it was to be sent.
///
/// # Errors
/// `not-found`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/dead-letters/{id}",
    operation_id = "getDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "The subscription."),
        ("id" = u64, Path, description = "Its identifier."),
    ),
    responses((status = 200, description = "The dead letter.", body = LetterView), OneProblems),
)]
pub async fn one(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    let letter = all.journal().dead_letter(name.clone(), DeadLetterId(id)).await.map_err(failed)?;
    let letter = letter.ok_or_else(|| not_there(&name, id))?;
    let change: &RawValue = serde_json::from_slice(&letter.letter.json).map_err(Problem::internal)?;
    Ok(Json(view(&letter, Some(change))).into_response())
}

/// Has every dead letter of a subscription sent again, each as a message of its own.
///
/// # Errors
/// `not-found`; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/dead-letters/replay",
    operation_id = "replayDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "The subscription.")),
    responses((status = 202, description = "They are about to be sent.", body = ConcernedView), OneProblems),
)]
pub async fn replay_all(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
) -> Result<Response, Problem> {
    let concerned = all.replay(&name, None).await.map_err(problem)?;
    Ok((StatusCode::ACCEPTED, Json(ConcernedView { concerned })).into_response())
}

/// Has one dead letter sent again; it is one no longer when the receiver takes it.
///
/// # Errors
/// `not-found`; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/dead-letters/{id}/replay",
    operation_id = "replayDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "The subscription."),
        ("id" = u64, Path, description = "Its identifier."),
    ),
    responses((status = 202, description = "It is about to be sent.", body = ConcernedView), OneProblems),
)]
pub async fn replay(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    match all.replay(&name, Some(DeadLetterId(id))).await.map_err(problem)? {
        0 => Err(not_there(&name, id)),
        concerned => Ok((StatusCode::ACCEPTED, Json(ConcernedView { concerned })).into_response()),
    }
}

/// Drops every dead letter of a subscription for good.
///
/// # Errors
/// `not-found`; `unavailable` when the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}/dead-letters",
    operation_id = "dropDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "The subscription.")),
    responses((status = 200, description = "They are gone.", body = ConcernedView), OneProblems),
)]
pub async fn delete_all(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
) -> Result<Response, Problem> {
    let concerned = all.drop_letters(&name, None).await.map_err(problem)?;
    Ok(Json(ConcernedView { concerned }).into_response())
}

/// Drops one dead letter for good.
///
/// # Errors
/// `not-found`; `unavailable` when the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}/dead-letters/{id}",
    operation_id = "dropDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "The subscription."),
        ("id" = u64, Path, description = "Its identifier."),
    ),
    responses((status = 204, description = "It is gone."), OneProblems),
)]
pub async fn delete(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    match all.drop_letters(&name, Some(DeadLetterId(id))).await.map_err(problem)? {
        0 => Err(not_there(&name, id)),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn not_there(name: &SubscriptionName, id: u64) -> Problem {
    let detail = format!(
        "The subscription {name} has no dead letter {id}. GET /subscriptions/{name}/dead-letters lists what there is."
    );
    Problem::new(ProblemCode::NotFound, detail)
}

fn view<'a>(letter: &'a DeadLetter, change: Option<&'a RawValue>) -> LetterView<'a> {
    LetterView {
        id: letter.id,
        seq: letter.letter.seq,
        refused: letter.refused,
        attempts: letter.attempts,
        reason: &letter.letter.reason,
        replay: letter.replay,
        change,
    }
}
