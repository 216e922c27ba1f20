//! `POST /hooks/{source}`: a repository plug-in, or anything that can post, sends one message a
//! request. The answer comes when the message is on disk: in the journal, or, since such senders
//! fire and forget, in the quarantine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::rate::Rate;
use crate::{
    format::{Bound, Headers, RejectionKind},
    intake::{Accepted, EventId, Incoming, Intake, IntakeError, Receipt, Source, SourceName, Told},
    web::{Body, Limit, Path, Problem, ProblemCode, SignedBody, limit_hit, problems},
};

/// A request header by which a sender of messages without identifiers can mark a repeat
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The hooks: the sources that are reached by HTTP, and the door behind them.
#[derive(Clone)]
pub struct Hooks {
    /// The door.
    pub intake: Intake,
    /// The sources, by name.
    pub sources: Arc<BTreeMap<String, Arc<Source>>>,
    /// How much each may send; any amount, where it is not in here.
    pub rates: Arc<BTreeMap<String, Rate>>,
}

/// Addition to the reason for a rejection where the dialect might have read more in headers.
const NO_HEADERS: &str =
    " (headers were not read, since the signature covers the body alone: send a token if the message needs them)";

/// When a sender may come back whose repository does not answer.
const COME_BACK: Duration = Duration::from_secs(5);

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

/// Takes in one message: 201 when it told of a change, 200 when it told nothing new.
///
/// # Errors
/// `unknown-source`; `malformed-message` and `unprocessable-message`, with the message kept in the
/// quarantine; `too-many-messages` when the source sends faster than it may; `unavailable` when nothing
/// could be written and the message must be sent again.
#[utoipa::path(
    post,
    path = "/hooks/{source}",
    operation_id = "sendMessage",
    tag = "in",
    params(
        ("source" = SourceName, Path, description = "The name of the source.", example = "content-change"),
        ("Idempotency-Key" = Option<EventId>, Header, description = "What makes a repeat of a message known, where the \
            message itself has no identifier."),
        ("Routing-Key" = Option<String>, Header, description = "What the message is, for the dialects `sfm` and \
            `hoarder`, whose messages do not say it themselves.", example = "warc_created"),
    ),
    request_body(
        description = "One message in the dialect of the source. Its media type is a hint: the dialect knows its own.",
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
        (status = 201, description = "It told of a change, which is on disk.", body = Told,
            headers(("Location" = String, description = "The first change."))),
        (status = 200, description = "It told nothing new.", body = Told),
        Refusals,
    ),
)]
pub async fn receive(
    State(hooks): State<Hooks>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let source = hooks.sources.get(&name);
    // Where only the body is signed, headers may be anybody's.
    let body_alone = request.extensions().get::<SignedBody>().is_some();
    let headers = request.headers();
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let trusted = Some(headers).filter(|_| !body_alone);
    let transport_id = trusted.and_then(|headers| EventId::parse(headers.get(IDEMPOTENCY_KEY)?.to_str().ok()?));
    let read = trusted.zip(source).map(|(headers, source)| text_headers(headers, source.kind().headers));
    let headers = read.unwrap_or_default();
    // Whoever is refused below is heard out first.
    let Body(body) = Body::from_request(request, &()).await?;
    let source = source.ok_or_else(|| unknown_source(&hooks, &name))?;
    if let Some(Err(wait)) = hooks.rates.get(&name).map(Rate::take) {
        return Err(too_many(source, wait));
    }
    let incoming = Incoming { content_type, headers, body, transport_id, redelivered: false };
    match hooks.intake.accept(source, incoming).await {
        Ok(receipt) => Ok(answer(&receipt)),
        Err(IntakeError::Quarantined { id, mut rejection }) if body_alone && !source.kind().headers.is_empty() => {
            rejection.reason.push_str(NO_HEADERS);
            Err(refusal(IntakeError::Quarantined { id, rejection }))
        }
        Err(error) => Err(refusal(error)),
    }
}

fn answer(receipt: &Receipt) -> Response {
    let accepted = receipt.accepted().next();
    let body = Json(receipt.told());
    match accepted {
        Some(Accepted { id, .. }) => {
            let location = format!("/changes/{}", id.uuid());
            (StatusCode::CREATED, [(header::LOCATION, location)], body).into_response()
        }
        None => (StatusCode::OK, body).into_response(),
    }
}

/// The problem that a sender is told when its message was not accepted.
fn refusal(error: IntakeError) -> Problem {
    match error {
        IntakeError::Quarantined { id, rejection } => {
            let code = match rejection.kind {
                RejectionKind::Malformed => ProblemCode::MalformedMessage,
                RejectionKind::Unprocessable => ProblemCode::UnprocessableMessage,
                RejectionKind::PastBound(bound) => {
                    limit_hit(limit(bound));
                    ProblemCode::UnprocessableMessage
                }
            };
            let detail = format!(
                "{rejection}. The message is kept in the quarantine: look at it at /quarantine/{id}; once the cause is \
                 mended, POST to /quarantine/{id}/retry."
            );
            Problem::new(code, detail)
                .at(format!("/quarantine/{id}"))
                .with("quarantine", id.0)
                .with("place", rejection.place.to_string())
                .with("reason", rejection.reason)
        }
        IntakeError::Unanswered(error) => {
            let wait = error.again().unwrap_or(COME_BACK).max(COME_BACK);
            let detail = format!(
                "The event must wait for its repository: {error}. Nothing was accepted; send the message again, a repeat \
                 makes no second change."
            );
            Problem::new(ProblemCode::Unavailable, detail).retry_after(wait)
        }
        IntakeError::Journal(error) => {
            let what = "Nothing was accepted; send the message again, a repeat makes no second change";
            Problem::failure(what, error.is_transient(), error)
        }
    }
}

fn limit(bound: Bound) -> Limit {
    match bound {
        Bound::XmlDepth => Limit::XmlDepth,
        Bound::XmlAttributes => Limit::XmlAttributes,
        Bound::Items => Limit::Items,
        Bound::Types => Limit::Types,
        Bound::ChangeBytes => Limit::ChangeBytes,
        Bound::ObjectItems => Limit::ObjectItems,
    }
}

fn too_many(source: &Source, wait: Duration) -> Problem {
    limit_hit(Limit::Rate);
    let name = source.name();
    let detail = format!(
        "The source sends faster than it may. Nothing was accepted; send the message again later, or raise \
         sources.{name}.rate in the configuration."
    );
    Problem::new(ProblemCode::TooManyMessages, detail).retry_after(wait)
}

fn unknown_source(hooks: &Hooks, name: &str) -> Problem {
    let known = hooks.sources.keys().map(|known| format!("/hooks/{known}")).collect::<Vec<_>>();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let name: String = name.chars().take(64).collect();
    let detail = format!(
        "There is no hook {name:?}. The hooks here are {known}; add others under [sources] in the configuration."
    );
    Problem::new(ProblemCode::UnknownSource, detail)
}

/// The fields that begin with one of the prefixes that the dialect reads. Those whose values are not
/// text are left out: no dialect reads such.
fn text_headers(headers: &HeaderMap, read: &[&str]) -> Headers {
    let begins = |name: &str, prefix: &str| name.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
    let is_read = |name: &header::HeaderName| read.iter().any(|prefix| begins(name.as_str(), prefix));
    let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        is_read(name).then(|| (name.as_str().to_owned(), value.to_owned()))
    };
    headers.iter().filter_map(text).collect()
}
