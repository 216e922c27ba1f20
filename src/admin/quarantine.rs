//! What no dialect could read: `GET /quarantine` lists it, `GET /quarantine/{id}` shows one message,
//! `POST /quarantine/{id}/retry` reads it again, `DELETE /quarantine/{id}` drops it.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{failed, sources::Sources};
use crate::{
    intake::{IngestResponse, Intake, IntakeError, Receipt},
    journal::{
        Journal,
        quarantine::{QuarantineId, QuarantinedMessage},
    },
    model::{SourceName, Timestamp},
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// How many messages a page of the listing has at the most.
const LARGEST_PAGE: usize = 1000;

/// How many it has when the client does not say.
const DEFAULT_LIMIT: usize = 100;

/// The quarantine, and the door through which a message is taken in again.
#[derive(Clone)]
pub struct Quarantine {
    /// The journal that keeps it.
    pub journal: Journal,
    /// The door.
    pub intake: Intake,
    /// The sources, whose dialects read again.
    pub sources: Sources,
}

/// The query of `GET /quarantine`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The identifier before which to begin; absent is the newest.
    #[serde(default)]
    #[param(value_type = u64, required = false, format = "uint64", maximum = 18446744073709551615usize)]
    before: Option<u64>,
    /// How many messages at the most.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of the quarantine.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantinePage)]
struct PageView<'a> {
    /// The messages, newest first, without headers and bodies.
    messages: Vec<MessageView<'a>>,
    /// The `before` of the following page; `null` when this is the last.
    #[schema(value_type = Option<u64>, required = true)]
    next: Option<QuarantineId>,
}

/// What a source sent and no dialect could read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuarantinedMessage)]
struct MessageView<'a> {
    /// Identifies it in the quarantine.
    #[schema(value_type = u64)]
    id: QuarantineId,
    /// When it was received.
    received: Timestamp,
    /// Who sent it.
    #[schema(value_type = SourceName)]
    source: &'a SourceName,
    /// Where the trouble is.
    place: &'a str,
    /// What the trouble is.
    reason: &'a str,
    /// The media type that the sender gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_type: Option<&'a str>,
    /// The size of its body in bytes.
    size: u64,
    /// Those of its headers that its dialect reads, each a name and a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<String>>, required = false)]
    headers: Option<&'a [(String, String)]>,
    /// The bytes as text; bytes that are not UTF-8 are replaced, and then `bodyHex` has them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<String>,
    /// The bytes in hexadecimal, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_hex: Option<String>,
}

problems!(ListProblems: InvalidQuery, Unavailable);
problems!(OneProblems: NotFound, Unavailable);
problems!(RetryProblems: NotFound, UnprocessableMessage, Unavailable);

/// The messages, newest first, without their bodies; `next` is the `before` of the following page.
///
/// # Errors
/// `invalid-query`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/quarantine",
    operation_id = "listQuarantine",
    tag = "administration",
    params(ListQuery),
    responses((status = 200, description = "A page, newest first.", body = PageView), ListProblems),
)]
pub async fn list(State(quarantine): State<Quarantine>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > LARGEST_PAGE {
        let detail = format!("limit is {limit}; give 1 to {LARGEST_PAGE}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    let before = query.before.map(QuarantineId);
    let messages = quarantine.journal.quarantined_before(before, limit).await.map_err(failed)?;
    let full = messages.len() == limit;
    let next = messages.last().filter(|_| full).map(|message| message.id);
    let messages = messages.iter().map(|message| view(message, None)).collect();
    Ok(Json(PageView { messages, next }).into_response())
}

/// One message, with its headers and its body.
///
/// # Errors
/// `not-found`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/quarantine/{id}",
    operation_id = "getQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Its identifier.")),
    responses((status = 200, description = "The message.", body = MessageView), OneProblems),
)]
pub async fn one(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let message = quarantine.journal.quarantined(QuarantineId(id)).await.map_err(failed)?;
    let message = message.ok_or_else(|| not_there(id))?;
    Ok(Json(view(&message, Some(&message.message.body))).into_response())
}

/// Reads one message again; it leaves the quarantine if it can be read now.
///
/// # Errors
/// `not-found`; `malformed-message` and `unprocessable-message` when it still cannot be read, or its
/// source is no longer configured; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/quarantine/{id}/retry",
    operation_id = "retryQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Its identifier.")),
    responses((status = 200, description = "It was read.", body = IngestResponse), RetryProblems),
)]
pub async fn retry(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let kept = quarantine.journal.quarantined(QuarantineId(id)).await.map_err(failed)?;
    let kept = kept.ok_or_else(|| not_there(id))?;
    let name = &kept.message.source;
    let listed = quarantine.sources.get(name.as_str()).ok_or_else(|| {
        let detail =
            format!("The message came from the source {name}, which is no longer configured; add it to retry.");
        Problem::new(ProblemCode::UnprocessableMessage, detail)
    })?;
    let receipt = quarantine.intake.retry(&listed.source, QuarantineId(id)).await;
    match receipt {
        Ok(receipt) => receipt.map(|receipt| answer(&receipt)).ok_or_else(|| not_there(id)),
        Err(IntakeError::Journal(error)) => Err(failed(error)),
        Err(IntakeError::LookupFailed(error)) => {
            let detail =
                format!("It must wait for its repository: {error}. It stays in the quarantine; try again later.");
            Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(5)))
        }
        Err(IntakeError::Quarantined { rejection, .. }) => {
            let detail = format!("It still cannot be read: {rejection}. It stays in the quarantine.");
            Err(Problem::new(ProblemCode::UnprocessableMessage, detail)
                .at(format!("/quarantine/{id}"))
                .with("place", rejection.place.to_string())
                .with("reason", rejection.reason))
        }
    }
}

/// Drops one message for good.
///
/// # Errors
/// `not-found`; `unavailable` when the journal cannot be written.
#[utoipa::path(
    delete,
    path = "/quarantine/{id}",
    operation_id = "dropQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Its identifier.")),
    responses((status = 204, description = "It is gone."), OneProblems),
)]
pub async fn delete(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let was_there = quarantine.journal.release(QuarantineId(id)).await.map_err(failed)?;
    if was_there { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(not_there(id)) }
}

fn answer(receipt: &Receipt) -> Response {
    Json(receipt.to_response()).into_response()
}

fn not_there(id: u64) -> Problem {
    let detail = format!("There is no message {id} in the quarantine. GET /quarantine lists what there is.");
    Problem::new(ProblemCode::NotFound, detail)
}

fn view<'a>(kept: &'a QuarantinedMessage, body: Option<&[u8]>) -> MessageView<'a> {
    let message = &kept.message;
    let text = body.map(String::from_utf8_lossy);
    let is_text = body.is_none_or(|body| std::str::from_utf8(body).is_ok());
    MessageView {
        id: kept.id,
        received: message.received,
        source: &message.source,
        place: &message.location,
        reason: &message.reason,
        content_type: message.content_type.as_deref(),
        size: kept.size,
        headers: body.is_some().then_some(message.headers.as_slice()),
        body: text.map(std::borrow::Cow::into_owned),
        body_hex: body.filter(|_| !is_text).map(hex::encode),
    }
}
