//! Dead letters, the messages that a subscription's receiver has refused permanently: `GET
//! /subscriptions/{name}/dead-letters` lists them, `GET …/{id}` returns one with its change, `POST …/replay` and
//! `POST …/{id}/replay` send all or one again, and `DELETE` deletes all or one.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{journal_problem, subscriptions::problem};
use crate::{
    delivery::Subscriptions,
    journal::subscriptions::{DeadLetter, DeadLetterId},
    model::{Change, Seq, SubscriptionName, Timestamp},
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// Maximum number of dead letters on a page.
const MAX_LIMIT: usize = 1000;

/// Default number of dead letters on a page.
const DEFAULT_LIMIT: usize = 100;

/// Query parameters of the list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Identifier before which to begin. Default: the newest dead letter.
    #[serde(default)]
    #[param(value_type = u64, required = false, format = "uint64", maximum = 18446744073709551615usize)]
    before: Option<u64>,
    /// Maximum number of dead letters.
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
    /// Value of `before` for the next page; `null` on the last page.
    #[schema(value_type = Option<u64>, required = true)]
    next: Option<DeadLetterId>,
}

/// A change that a receiver has refused permanently.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
struct LetterView<'a> {
    /// Identifier of the dead letter.
    #[schema(value_type = u64)]
    id: DeadLetterId,
    /// Number of the change.
    seq: Seq,
    /// Time of the last refusal.
    refused: Timestamp,
    /// Number of times that it was sent.
    attempts: u64,
    /// Reason of the last refusal.
    reason: &'a str,
    /// `true` if it is waiting to be sent again.
    replay: bool,
    /// The change as it was to be sent; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Change, required = false, nullable = false)]
    change: Option<&'a RawValue>,
}

/// Number of dead letters that an operation affected.
#[derive(Serialize, ToSchema)]
#[schema(as = AffectedDeadLetters)]
struct AffectedView {
    /// Number of affected dead letters.
    affected: u64,
}

problems!(ListProblems: NotFound, InvalidQuery, Unavailable);
problems!(OneProblems: NotFound, Unavailable);

/// The dead letters of a subscription, newest first, without their changes.
///
/// # Errors
/// `not-found`; `invalid-query`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/dead-letters",
    operation_id = "listDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription."), ListQuery),
    responses((status = 200, description = "A page, newest first.", body = PageView), ListProblems),
)]
pub async fn list(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        let detail = format!("limit is {limit}; give 1 to {MAX_LIMIT}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    all.get(&name).map_err(problem)?;
    let letters =
        all.journal().dead_letters(name, query.before.map(DeadLetterId), limit).await.map_err(journal_problem)?;
    let full = letters.len() == limit;
    let next = letters.last().filter(|_| full).map(|letter| letter.id);
    let dead_letters = letters.iter().map(|letter| view(letter, None)).collect();
    Ok(Json(PageView { dead_letters, next }).into_response())
}

/// A dead letter with its change as it was to be sent.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}/dead-letters/{id}",
    operation_id = "getDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "Name of the subscription."),
        ("id" = u64, Path, description = "Identifier of the dead letter."),
    ),
    responses((status = 200, description = "The dead letter.", body = LetterView), OneProblems),
)]
pub async fn one(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    let letter = all.journal().dead_letter(name.clone(), DeadLetterId(id)).await.map_err(journal_problem)?;
    let letter = letter.ok_or_else(|| not_found(&name, id))?;
    let change: &RawValue = serde_json::from_slice(&letter.letter.json).map_err(Problem::internal)?;
    Ok(Json(view(&letter, Some(change))).into_response())
}

/// Sends all dead letters of a subscription again, each as a separate message.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/dead-letters/replay",
    operation_id = "replayDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 202, description = "The dead letters are waiting to be sent.", body = AffectedView), OneProblems),
)]
pub async fn replay_all(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
) -> Result<Response, Problem> {
    let affected = all.replay(&name, None).await.map_err(problem)?;
    Ok((StatusCode::ACCEPTED, Json(AffectedView { affected })).into_response())
}

/// Sends one dead letter again. It is removed when the receiver accepts it.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/dead-letters/{id}/replay",
    operation_id = "replayDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "Name of the subscription."),
        ("id" = u64, Path, description = "Identifier of the dead letter."),
    ),
    responses((status = 202, description = "The dead letter is waiting to be sent.", body = AffectedView), OneProblems),
)]
pub async fn replay(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    match all.replay(&name, Some(DeadLetterId(id))).await.map_err(problem)? {
        0 => Err(not_found(&name, id)),
        affected => Ok((StatusCode::ACCEPTED, Json(AffectedView { affected })).into_response()),
    }
}

/// Deletes all dead letters of a subscription permanently.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}/dead-letters",
    operation_id = "dropDeadLetters",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 200, description = "The dead letters are deleted.", body = AffectedView), OneProblems),
)]
pub async fn delete_all(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
) -> Result<Response, Problem> {
    let affected = all.drop_dead_letters(&name, None).await.map_err(problem)?;
    Ok(Json(AffectedView { affected }).into_response())
}

/// Deletes one dead letter permanently.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}/dead-letters/{id}",
    operation_id = "dropDeadLetter",
    tag = "administration",
    params(
        ("name" = SubscriptionName, Path, description = "Name of the subscription."),
        ("id" = u64, Path, description = "Identifier of the dead letter."),
    ),
    responses((status = 204, description = "The dead letter is deleted."), OneProblems),
)]
pub async fn delete(
    State(all): State<Subscriptions>,
    Path((name, id)): Path<(SubscriptionName, u64)>,
) -> Result<Response, Problem> {
    match all.drop_dead_letters(&name, Some(DeadLetterId(id))).await.map_err(problem)? {
        0 => Err(not_found(&name, id)),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn not_found(name: &SubscriptionName, id: u64) -> Problem {
    let detail = format!(
        "The subscription {name} has no dead letter {id}. GET /subscriptions/{name}/dead-letters lists all dead letters."
    );
    Problem::new(ProblemCode::NotFound, detail)
}

fn view<'a>(letter: &'a DeadLetter, change: Option<&'a RawValue>) -> LetterView<'a> {
    LetterView {
        id: letter.id,
        seq: letter.letter.seq,
        refused: letter.refused,
        attempts: letter.attempts,
        reason: letter.letter.reason.as_str(),
        replay: letter.replay,
        change,
    }
}
