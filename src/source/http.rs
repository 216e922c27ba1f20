//! `POST /hooks/{source}`: repository plug-ins and other HTTP clients send one message per request. The
//! response is sent when the message is on disk. A message that cannot be parsed goes to the quarantine,
//! because such senders rarely retry.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::rate::RateLimiter;
use crate::{
    format::{Headers, MessageLimit, RejectionKind},
    intake::{AcceptedChange, EventId, Incoming, IngestResponse, Intake, IntakeError, Receipt, Source, SourceName},
    web::{Body, Limit, Path, Problem, ProblemCode, SignedBody, limit_hit, problems},
};

/// Request header that identifies a repeat, for messages without an identifier of their own
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// State of the hooks: the intake and the sources that are reached by HTTP.
#[derive(Clone)]
pub struct Hooks {
    /// The write path to the journal.
    pub intake: Intake,
    /// Sources by name.
    pub sources: Arc<BTreeMap<String, Arc<Source>>>,
    /// Rate limits by source. A source without an entry has no limit.
    pub rates: Arc<BTreeMap<String, RateLimiter>>,
}

/// Addition to the reason of a rejection if the dialect reads headers that were ignored.
const NO_HEADERS: &str =
    " (headers were ignored, because the signature covers only the body: send a token if the message needs them)";

/// Minimum `Retry-After` for a sender whose message waits for its repository.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(5);

problems!(
    Refusals: MalformedMessage,
    BadRequest,
    UnknownSource,
    BodyTooLarge,
    UnsupportedEncoding,
    UnprocessableMessage,
    TooManyMessages,
    Unavailable
);

/// Accepts one message: 201 if it caused a change, 200 if it contained nothing new.
///
/// # Errors
/// `unknown-source`; `malformed-message` and `unprocessable-message`, with the message in the quarantine;
/// `too-many-messages` if the source exceeds its rate; `unavailable` if the journal could not write the
/// message or a required lookup failed: send it again.
#[utoipa::path(
    post,
    path = "/hooks/{source}",
    operation_id = "sendMessage",
    tag = "in",
    params(
        ("source" = SourceName, Path, description = "The name of the source.", example = "content-change"),
        ("Idempotency-Key" = Option<EventId>, Header, description = "Identifies a repeat of a message that has \
            no identifier of its own."),
        ("Routing-Key" = Option<String>, Header, description = "Type of the message, for the dialects `sfm` and \
            `hoarder`, whose messages do not contain it.", example = "warc_created"),
    ),
    request_body(
        description = "One message in the dialect of the source. Its media type is only a hint.",
        content(
            (String = "application/atom+xml"),
            (serde_json::Map<String, serde_json::Value> = "application/json", example = json!({
                "object": "http://repository.example.org/things/1",
                "items": [{ "uri": "http://repository.example.org/things/1/image", "change": "ADD" }],
            })),
            (serde_json::Map<String, serde_json::Value> = "application/ld+json"),
        ),
    ),
    responses(
        (status = 201, description = "The message caused a change, which is on disk.", body = IngestResponse,
            headers(("Location" = String, description = "The first change."))),
        (status = 200, description = "The message contained nothing new.", body = IngestResponse),
        Refusals,
    ),
)]
pub async fn receive(
    State(hooks): State<Hooks>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let source = hooks.sources.get(&name);
    // The signature covers only the body, so the headers may be forged.
    let only_body_signed = request.extensions().get::<SignedBody>().is_some();
    let headers = request.headers();
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let trusted = Some(headers).filter(|_| !only_body_signed);
    let transport_id = trusted.and_then(|headers| EventId::parse(headers.get(IDEMPOTENCY_KEY)?.to_str().ok()?));
    let read = trusted.zip(source).map(|(headers, source)| text_headers(headers, source.kind().headers));
    let headers = read.unwrap_or_default();
    // Read the body before refusing, so that the sender reads the response.
    let Body(body) = Body::from_request(request, &()).await?;
    let source = source.ok_or_else(|| unknown_source(&hooks, &name))?;
    if let Some(Err(wait)) = hooks.rates.get(&name).map(RateLimiter::try_acquire) {
        return Err(too_many(source, wait));
    }
    let incoming = Incoming { content_type, headers, body, transport_id, redelivered: false, set: None };
    match hooks.intake.accept(source, incoming).await {
        Ok(receipt) => Ok(response(&receipt)),
        Err(IntakeError::Quarantined { id, mut rejection })
            if only_body_signed && !source.kind().headers.is_empty() =>
        {
            rejection.reason.push_str(NO_HEADERS);
            Err(problem(IntakeError::Quarantined { id, rejection }))
        }
        Err(error) => Err(problem(error)),
    }
}

fn response(receipt: &Receipt) -> Response {
    let accepted = receipt.accepted().next();
    let body = Json(receipt.to_response());
    match accepted {
        Some(AcceptedChange { id, .. }) => {
            let location = format!("/changes/{}", id.uuid());
            (StatusCode::CREATED, [(header::LOCATION, location)], body).into_response()
        }
        None => (StatusCode::OK, body).into_response(),
    }
}

/// Converts the error of a message to the problem for its sender.
fn problem(error: IntakeError) -> Problem {
    match error {
        IntakeError::Quarantined { id, rejection } => {
            let code = match rejection.kind {
                RejectionKind::Malformed => ProblemCode::MalformedMessage,
                RejectionKind::Unprocessable => ProblemCode::UnprocessableMessage,
                RejectionKind::LimitExceeded(bound) => {
                    limit_hit(limit(bound));
                    ProblemCode::UnprocessableMessage
                }
            };
            let detail = format!(
                "{rejection}. The message is kept in the quarantine: look at it at /quarantine/{id}; once the cause is \
                 fixed, POST to /quarantine/{id}/retry."
            );
            Problem::new(code, detail)
                .at(format!("/quarantine/{id}"))
                .with("quarantine", id.0)
                .with("place", rejection.location.to_string())
                .with("reason", rejection.reason)
        }
        IntakeError::LookupFailed(error) => {
            let wait = error.retry_after().unwrap_or(MIN_RETRY_AFTER).max(MIN_RETRY_AFTER);
            let detail = format!(
                "The event must wait for its repository: {error}. Nothing was accepted; send the message again, a repeat \
                 with its identifier makes no second change."
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(wait)
        }
        IntakeError::Journal(error) => {
            let what =
                "Nothing was accepted; send the message again, a repeat with its identifier makes no second change";
            let is_logged = error.is_outage();
            Problem::failure(what, error.is_transient(), error).logged(is_logged)
        }
    }
}

fn limit(bound: MessageLimit) -> Limit {
    match bound {
        MessageLimit::XmlDepth => Limit::XmlDepth,
        MessageLimit::XmlAttributes => Limit::XmlAttributes,
        MessageLimit::Items => Limit::Items,
        MessageLimit::Types => Limit::Types,
        MessageLimit::ChangeBytes => Limit::ChangeBytes,
        MessageLimit::ObjectItems => Limit::ObjectItems,
    }
}

fn too_many(source: &Source, wait: Duration) -> Problem {
    limit_hit(Limit::Rate);
    let name = source.name();
    let detail = format!(
        "The source exceeds its rate limit. Nothing was accepted; send the message again later, or raise \
         sources.{name}.rate in the configuration."
    );
    Problem::new(ProblemCode::TooManyMessages, detail).retry_after(wait)
}

fn unknown_source(hooks: &Hooks, name: &str) -> Problem {
    let hooks_list = hooks.sources.keys().map(|name| format!("/hooks/{name}")).collect::<Vec<_>>();
    let hooks_list = if hooks_list.is_empty() { "none".to_owned() } else { hooks_list.join(", ") };
    let name: String = name.chars().take(64).collect();
    let detail = format!(
        "There is no hook {name:?}. The hooks here are {hooks_list}; add others under [sources] in the configuration."
    );
    Problem::new(ProblemCode::UnknownSource, detail)
}

/// Returns the headers that match a prefix of the dialect. Headers that are not UTF-8 are dropped, because no
/// dialect reads them.
fn text_headers(headers: &HeaderMap, read: &[&str]) -> Headers {
    let begins = |name: &str, prefix: &str| name.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
    let is_read = |name: &header::HeaderName| read.iter().any(|prefix| begins(name.as_str(), prefix));
    let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        is_read(name).then(|| (name.as_str().to_owned(), value.to_owned()))
    };
    headers.iter().filter_map(text).collect()
}
