//! The subscriptions: `GET /subscriptions` and `GET /subscriptions/{name}` show them, `PUT` makes one or
//! changes it, `DELETE` ends it, and `POST …/pause`, `…/resume` and `…/rewind` say how it goes on.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::failed;
use crate::{
    delivery::{self, Definition, InvalidStart, Listed, OperationError, Snapshot, Start, Subscriptions},
    journal::subscriptions::MadeBy,
    model::{Seq, SubscriptionName, Timestamp},
    web::{Body, Path, Problem, ProblemCode, problems},
};

/// Every subscription.
#[derive(Serialize, ToSchema)]
#[schema(as = Subscriptions)]
struct AllView {
    /// By name.
    subscriptions: Vec<SubscriptionView>,
}

/// A subscription, and how it is doing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Subscription)]
struct SubscriptionView {
    /// Its name.
    name: SubscriptionName,
    /// Where it is defined: `config`, `api` or `hub`.
    #[schema(value_type = String)]
    from: MadeBy,
    /// What it is doing.
    state: delivery::State,
    /// All changes up to this one are done with.
    cursor: Seq,
    /// How far it is behind.
    lag: Lag,
    /// Messages a second, over the last ten seconds.
    rate: f64,
    /// Messages delivered since the gateway started.
    delivered: u64,
    /// When a message was last delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_delivered: Option<Timestamp>,
    /// Messages that nobody wanted and that were passed over, since the gateway started.
    unroutable: u64,
    /// How many messages the receiver has refused for good.
    dead_letters: u64,
    /// How often in a row it has failed.
    failures: u32,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_error: Option<LastError>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_attempt: Option<Timestamp>,
    /// Its definition with its defaults, and without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    definition: Option<Map<String, Value>>,
}

/// How far a subscription is behind.
#[derive(Serialize, ToSchema)]
#[schema(as = SubscriptionLag)]
struct Lag {
    /// By how many numbers of the journal.
    changes: u64,
    /// How long ago the next change was received, in seconds; left out where it is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seconds: Option<f64>,
}

/// What went wrong last.
#[derive(Serialize, ToSchema)]
#[schema(as = SubscriptionError)]
struct LastError {
    /// When.
    at: Timestamp,
    /// What.
    reason: String,
}

/// Where a subscription is to go on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rewind)]
struct RewindTo {
    /// `"now"`, `"beginning"`, the number of the change to go on with, or a time.
    to: Start,
}

problems!(ListProblems: Unavailable);
problems!(OneProblems: NotFound, Unavailable);
problems!(PutProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);
problems!(DeleteProblems: NotFound, Conflict, Unavailable);
problems!(ResumeProblems: NotFound, Conflict, Unavailable);
problems!(RewindProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, InvalidSubscription, Unavailable);

/// Every subscription, and how it is doing.
///
/// # Errors
/// `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions",
    operation_id = "listSubscriptions",
    tag = "administration",
    responses((status = 200, description = "Every subscription.", body = AllView), ListProblems),
)]
pub async fn list(State(all): State<Subscriptions>) -> Result<Response, Problem> {
    let mut subscriptions = Vec::new();
    for listed in all.list() {
        subscriptions.push(view(&all, listed).await?);
    }
    Ok(Json(AllView { subscriptions }).into_response())
}

/// One subscription, and how it is doing.
///
/// # Errors
/// `not-found`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}",
    operation_id = "getSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    responses((status = 200, description = "The subscription.", body = SubscriptionView), OneProblems),
)]
pub async fn one(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    shown(&all, &name, StatusCode::OK).await
}

/// Makes a subscription, or gives one another definition; then it keeps its place, whatever `start` says.
///
/// # Errors
/// `bad-request` when the body is no JSON; `invalid-subscription` when the definition is wrong; `conflict`
/// when the configuration file has that name; `unavailable` when the journal fails.
#[utoipa::path(
    put,
    path = "/subscriptions/{name}",
    operation_id = "putSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    request_body(content = Definition, description = "The keys of `[subscriptions.NAME]` in the configuration file, as JSON."),
    responses(
        (status = 200, description = "It has another definition.", body = SubscriptionView),
        (status = 201, description = "It is new.", body = SubscriptionView),
        PutProblems,
    ),
)]
pub async fn put(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let is_new = all.put(&name, json(&body)?).await.map_err(problem)?;
    shown(&all, &name, if is_new { StatusCode::CREATED } else { StatusCode::OK }).await
}

/// Deletes a subscription, with its place and its dead letters.
///
/// # Errors
/// `not-found`; `conflict` when the configuration file has it; `unavailable` when the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}",
    operation_id = "deleteSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    responses((status = 204, description = "It is gone."), DeleteProblems),
)]
pub async fn delete(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    all.delete(&name).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Pauses a subscription, until it is resumed: what is on its way is finished, and nothing more is sent.
///
/// # Errors
/// `not-found`; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/pause",
    operation_id = "pauseSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    responses((status = 200, description = "It is paused.", body = SubscriptionView), OneProblems),
)]
pub async fn pause(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    all.pause(&name).await.map_err(problem)?;
    shown(&all, &name, StatusCode::OK).await
}

/// Has a subscription go on, also one that has ended or failed; one that waits for its next attempt makes it now.
///
/// # Errors
/// `not-found`; `conflict` when it has no definition that works; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/resume",
    operation_id = "resumeSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    responses((status = 200, description = "It goes on.", body = SubscriptionView), ResumeProblems),
)]
pub async fn resume(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    all.resume(&name).await.map_err(problem)?;
    shown(&all, &name, StatusCode::OK).await
}

/// Has a subscription go on from somewhere else, be that back or forward.
///
/// # Errors
/// `not-found`; `bad-request` when the body is no JSON; `invalid-subscription` when it cannot go on there;
/// `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/rewind",
    operation_id = "rewindSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Its name.")),
    request_body(content = RewindTo, description = "Where to go on."),
    responses((status = 200, description = "It goes on there.", body = SubscriptionView), RewindProblems),
)]
pub async fn rewind(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let RewindTo { to } = json(&body)?;
    all.rewind(&name, to).await.map_err(problem)?;
    shown(&all, &name, StatusCode::OK).await
}

async fn shown(all: &Subscriptions, name: &SubscriptionName, status: StatusCode) -> Result<Response, Problem> {
    let view = view(all, all.get(name).map_err(problem)?).await?;
    Ok((status, Json(view)).into_response())
}

async fn view(all: &Subscriptions, listed: Listed) -> Result<SubscriptionView, Problem> {
    let Listed { name, made_by, definition, status } = listed;
    let lag = lag(all, status.cursor).await?;
    let Snapshot { state, cursor, delivered, rate, last_delivered, unroutable, failures, next_attempt, .. } = status;
    Ok(SubscriptionView {
        name,
        from: made_by,
        state,
        cursor,
        lag,
        rate,
        delivered,
        last_delivered,
        unroutable,
        dead_letters: status.dead_letters,
        failures,
        last_error: status.last_error.map(|(at, reason)| LastError { at, reason }),
        next_attempt,
        definition,
    })
}

async fn lag(all: &Subscriptions, cursor: Seq) -> Result<Lag, Problem> {
    let journal = all.journal();
    let changes = journal.count_after(cursor);
    if changes == 0 {
        return Ok(Lag { changes, seconds: Some(0.0) });
    }
    let next = match journal.after_within(cursor, 1, 1).await {
        Ok(next) => next,
        Err(crate::journal::JournalError::Gone { .. }) => return Ok(Lag { changes, seconds: None }),
        Err(error) => return Err(failed(error)),
    };
    let received = next.first().map(|next| next.change().map(|change| change.received)).transpose();
    let received = received.map_err(|error| failed(error.into()))?;
    let age = |received: Timestamp| Timestamp::now().millis().saturating_sub(received.millis()).max(0);
    #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds is far below 2⁵³")]
    let seconds = received.map(|received| age(received) as f64 / 1000.0);
    Ok(Lag { changes, seconds })
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            // What serde repeats of a value may be an address with a password.
            Problem::new(ProblemCode::InvalidSubscription, format!("The body is of another shape: {error}."))
        } else {
            Problem::new(ProblemCode::BadRequest, format!("The body is not JSON: {error}. Send a JSON object."))
        }
    })
}

/// What the administrator is told when something could not be done.
#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
pub(super) fn problem(error: OperationError) -> Problem {
    let told = |code| Problem::new(code, format!("{}.", sentence(&error.to_string())));
    match &error {
        OperationError::Unknown(_) => told(ProblemCode::NotFound),
        OperationError::OfConfig(_)
        | OperationError::OfHub(_)
        | OperationError::TooMany
        | OperationError::Undefined(_) => told(ProblemCode::Conflict),
        OperationError::Definition(wrong) if wrong.key.is_empty() => {
            Problem::new(ProblemCode::InvalidSubscription, format!("{}.", sentence(&wrong.reason))).with("key", "")
        }
        // A key begins as it is written.
        OperationError::Definition(wrong) => {
            Problem::new(ProblemCode::InvalidSubscription, format!("{wrong}.")).with("key", wrong.key.clone())
        }
        OperationError::Start(InvalidStart::NotKept { .. }) => {
            told(ProblemCode::InvalidSubscription).with("key", "start")
        }
        OperationError::Start(InvalidStart::Journal(journal)) | OperationError::Journal(journal) => {
            failed(journal.clone())
        }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
