//! Quarantine of messages that no dialect could parse: `GET /quarantine` lists them, `GET /quarantine/{id}` returns
//! one, `POST /quarantine/{id}/retry` parses it again, `POST /quarantine/{id}/dry-run` returns the outcome that this would have, and `DELETE /quarantine/{id}` deletes it.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    journal_problem,
    sources::{ConfiguredSource, Sources},
};
use crate::{
    format::TextPosition,
    intake::{IngestResponse, Intake, IntakeError, Outcome, Receipt, Trial},
    journal::{
        Journal,
        quarantine::{QuarantineId, QuarantinedMessage},
    },
    model::{Change, SourceName, Text, Timestamp},
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// Maximum number of messages on a page.
const MAX_LIMIT: usize = 1000;

/// Default number of messages on a page.
const DEFAULT_LIMIT: usize = 100;

/// State of the quarantine's surfaces.
#[derive(Clone)]
pub struct Quarantine {
    /// The journal, which stores the quarantine.
    pub journal: Journal,
    /// Ingest of messages that are retried.
    pub intake: Intake,
    /// The sources, whose dialects parse messages again.
    pub sources: Sources,
}

/// Query parameters of `GET /quarantine`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Identifier before which to begin. Default: the newest message.
    #[serde(default)]
    #[param(value_type = u64, required = false, format = "uint64", maximum = 18446744073709551615usize)]
    before: Option<u64>,
    /// Maximum number of messages.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Name of a source whose messages to list. Default: those of all sources.
    #[serde(default)]
    source: Option<SourceName>,
}

/// A page of the quarantine.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantinePage)]
struct PageView<'a> {
    /// The messages, newest first, without headers and bodies.
    messages: Vec<MessageView<'a>>,
    /// Value of `before` for the next page; `null` on the last page.
    #[schema(value_type = Option<u64>, required = true)]
    next: Option<QuarantineId>,
}

/// A message that no dialect could parse.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuarantinedMessage)]
struct MessageView<'a> {
    /// Identifier of the message in the quarantine.
    #[schema(value_type = u64)]
    id: QuarantineId,
    /// Time of receipt.
    received: Timestamp,
    /// Source of the message.
    #[schema(value_type = SourceName)]
    source: &'a SourceName,
    /// Location of the error in the message.
    place: &'a str,
    /// Reason of the error.
    reason: &'a str,
    /// Position of the error in the body, if it is known; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    at: Option<TextPosition>,
    /// Media type declared by the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_type: Option<&'a str>,
    /// Size of the body in bytes.
    size: u64,
    /// Headers that the dialect reads, each a name and a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<String>>, required = false)]
    headers: Option<&'a [(String, String)]>,
    /// Body as text. If it is not UTF-8, invalid bytes are replaced, and `bodyHex` contains the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<String>,
    /// Body in hexadecimal, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_hex: Option<String>,
}

/// Outcome that another attempt would have.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantineTrial)]
struct TrialView {
    /// `accepted`, `duplicate` or `unchanged`; `quarantined` if the message still cannot be parsed.
    outcome: &'static str,
    /// The reason why the message cannot be parsed, or why it changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Location of the error in the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    place: Option<String>,
    /// Position of the error in the body, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    at: Option<TextPosition>,
    /// The changes that the message would make now. Their numbers and identifiers are those of no change.
    changes: Vec<Change>,
}

impl TrialView {
    fn of(trial: Trial, body: &[u8]) -> Self {
        match trial {
            Trial::Accepted(receipt, changes) => {
                let (outcome, reason) = (receipt.outcome().name(), receipt.reason().map(str::to_owned));
                Self { outcome, reason, place: None, at: None, changes }
            }
            Trial::Rejected(rejection) => {
                let place = rejection.location.to_string();
                let at = TextPosition::find(&place, body);
                let (outcome, reason) = (Outcome::Quarantined.name(), Some(rejection.reason));
                Self { outcome, reason, place: Some(place), at, changes: Vec::new() }
            }
        }
    }
}

problems!(ListProblems: InvalidQuery, Unavailable);
problems!(OneProblems: NotFound, Unavailable);
problems!(RetryProblems: NotFound, UnprocessableMessage, Unavailable);

/// The messages in the quarantine, newest first, without their bodies. `next` is the value of `before` for the next
/// page.
///
/// # Errors
/// `invalid-query`; `unavailable` if the journal cannot be read.
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
    if limit == 0 || limit > MAX_LIMIT {
        let detail = format!("limit is {limit}; give 1 to {MAX_LIMIT}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    let before = query.before.map(QuarantineId);
    let messages = quarantine.journal.quarantined_before(before, query.source, limit).await.map_err(journal_problem)?;
    let full = messages.len() == limit;
    let next = messages.last().filter(|_| full).map(|message| message.id);
    let messages = messages.iter().map(|message| view(message, None)).collect();
    Ok(Json(PageView { messages, next }).into_response())
}

/// A message with its headers and its body.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/quarantine/{id}",
    operation_id = "getQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Identifier of the message.")),
    responses((status = 200, description = "The message.", body = MessageView), OneProblems),
)]
pub async fn one(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let message = quarantine.journal.quarantined(QuarantineId(id)).await.map_err(journal_problem)?;
    let message = message.ok_or_else(|| not_found(id))?;
    let (place, body) = (&message.message.location, &message.message.body);
    let at = quarantine.intake.parse(body.len(), || TextPosition::find(place.as_str(), body)).await;
    Ok(Json(MessageView { at, ..view(&message, Some(body)) }).into_response())
}

/// Parses a message again and removes it from the quarantine if it is accepted.
///
/// # Errors
/// `not-found`; `malformed-message` and `unprocessable-message` if the message still cannot be parsed, or its source
/// is no longer configured; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/quarantine/{id}/retry",
    operation_id = "retryQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Identifier of the message.")),
    responses((status = 200, description = "The message was parsed.", body = IngestResponse), RetryProblems),
)]
pub async fn retry(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let (_, listed) = quarantine.with_source(id).await?;
    match quarantine.intake.retry(&listed.source, QuarantineId(id)).await {
        Ok(receipt) => receipt.map(|receipt| response(&receipt)).ok_or_else(|| not_found(id)),
        Err(error) => Err(problem(error)),
    }
}

/// Says what a retry of a message would do now. Nothing is written, and the message stays in the quarantine.
///
/// # Errors
/// `not-found`; `unprocessable-message` if the source of the message is no longer configured; `unavailable` if the journal
/// fails.
#[utoipa::path(
    post,
    path = "/quarantine/{id}/dry-run",
    operation_id = "dryRunQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Identifier of the message.")),
    responses((status = 200, description = "The result of the dry run.", body = TrialView), RetryProblems),
)]
pub async fn dry_run(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let (quarantined, listed) = quarantine.with_source(id).await?;
    let body = quarantined.message.body.clone();
    let trial = quarantine.intake.dry_run(&listed.source, quarantined.message.into()).await.map_err(problem)?;
    let tried = || Json(TrialView::of(trial, &body)).into_response();
    Ok(quarantine.intake.parse(body.len(), tried).await)
}

impl Quarantine {
    /// Returns a message with its source.
    async fn with_source(&self, id: u64) -> Result<(QuarantinedMessage, ConfiguredSource), Problem> {
        let quarantined = self.journal.quarantined(QuarantineId(id)).await.map_err(journal_problem)?;
        let quarantined = quarantined.ok_or_else(|| not_found(id))?;
        let name = &quarantined.message.source;
        let listed = self.sources.get(name).ok_or_else(|| {
            let detail = format!("The source {name} of the message is no longer configured; configure it to retry.");
            Problem::new(ProblemCode::UnprocessableMessage, detail)
        })?;
        Ok((quarantined, listed))
    }
}

/// Returns the problem of a message that the intake has not accepted.
fn problem(error: IntakeError) -> Problem {
    match error {
        IntakeError::Journal(error) => journal_problem(error),
        IntakeError::LookupFailed(error) => {
            let detail = format!(
                "The lookup for the message failed: {error}. The message remains in the quarantine; try again later."
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(std::time::Duration::from_secs(5))
        }
        IntakeError::Quarantined { id, rejection } => {
            let detail = format!("The message still cannot be parsed: {rejection}. It remains in the quarantine.");
            Problem::new(ProblemCode::UnprocessableMessage, detail)
                .at(format!("/quarantine/{id}"))
                .with("place", rejection.location.to_string())
                .with("reason", rejection.reason)
        }
    }
}

/// Deletes a message permanently.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be written.
#[utoipa::path(
    delete,
    path = "/quarantine/{id}",
    operation_id = "dropQuarantined",
    tag = "administration",
    params(("id" = u64, Path, description = "Identifier of the message.")),
    responses((status = 204, description = "The message is deleted."), OneProblems),
)]
pub async fn delete(State(quarantine): State<Quarantine>, Path(id): Path<u64>) -> Result<Response, Problem> {
    let existed = quarantine.journal.release(QuarantineId(id)).await.map_err(journal_problem)?;
    if existed { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(not_found(id)) }
}

fn response(receipt: &Receipt) -> Response {
    Json(receipt.to_response()).into_response()
}

fn not_found(id: u64) -> Problem {
    let detail = format!("The quarantine has no message {id}. GET /quarantine lists all messages.");
    Problem::new(ProblemCode::NotFound, detail)
}

fn view<'a>(quarantined: &'a QuarantinedMessage, body: Option<&[u8]>) -> MessageView<'a> {
    let message = &quarantined.message;
    let text = body.map(String::from_utf8_lossy);
    let is_text = body.is_none_or(|body| std::str::from_utf8(body).is_ok());
    MessageView {
        id: quarantined.id,
        received: message.received,
        source: &message.source,
        place: message.location.as_str(),
        reason: message.reason.as_str(),
        at: None,
        content_type: message.content_type.as_ref().map(Text::as_str),
        size: quarantined.size,
        headers: body.is_some().then_some(message.headers.as_slice()),
        body: text.map(std::borrow::Cow::into_owned),
        body_hex: body.filter(|_| !is_text).map(hex::encode),
    }
}
