//! The subscriptions: `GET /subscriptions` and `GET /subscriptions/{name}` return them, `PUT` creates or changes one,
//! `DELETE` deletes one, and `POST …/pause`, `…/resume` and `…/rewind` control its delivery.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    crawlers::{self, TargetView},
    journal_problem, sentence,
};
use crate::{
    delivery::{
        self, Definition, InvalidStartPosition, OperationError, RewoundChanges, StartPosition, StatusSnapshot,
        SubscriptionInfo, Subscriptions, xesam::Crawlers,
    },
    journal::{Journal, JournalError, store::StoreError, subscriptions::MadeBy},
    model::{Seq, SubscriptionName, Timestamp},
    web::{Body, Client, Path, Problem, ProblemCode, problems},
};

/// All subscriptions.
#[derive(Serialize, ToSchema)]
#[schema(as = Subscriptions)]
struct AllView {
    /// The subscriptions, ordered by name.
    subscriptions: Vec<SubscriptionView>,
    /// The target on D-Bus with its crawlers; absent if it is not enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    dbus: Option<TargetView>,
}

/// A subscription and its status.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Subscription)]
pub(super) struct SubscriptionView {
    /// Name of the subscription.
    name: SubscriptionName,
    /// Origin of the definition: `config`, `api` or `hub`.
    #[schema(value_type = String)]
    from: MadeBy,
    /// State of the subscription.
    state: delivery::SubscriptionState,
    /// Number of the last change that is delivered or skipped, with all changes before it.
    cursor: Seq,
    /// Delay of the subscription.
    lag: Lag,
    /// Messages per second over the last ten seconds.
    rate: f64,
    /// Number of messages delivered since the gateway started.
    delivered: u64,
    /// Time of the last confirmed message, from the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_delivered: Option<Timestamp>,
    /// Number of messages that were skipped since the gateway started because the broker could not route them.
    unroutable: u64,
    /// Number of messages that the receiver has refused permanently.
    dead_letters: u64,
    /// Number of consecutive failures.
    failures: u32,
    /// Time since which the subscription does not deliver, although it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failing_since: Option<Timestamp>,
    /// Number of the change that the receiver does not accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = false)]
    stuck_at: Option<Seq>,
    /// Who paused the subscription: a token, an address, or the gateway itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    paused_by: Option<Arc<str>>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_error: Option<LastError>,
    /// Time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_attempt: Option<Timestamp>,
    /// Definition with defaults and without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    definition: Option<Map<String, Value>>,
}

/// Delay of a subscription.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[schema(as = SubscriptionLag)]
pub(super) struct Lag {
    /// Number of changes that are not delivered yet.
    changes: u64,
    /// Age of the next change in seconds; absent if the change has been removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seconds: Option<f64>,
}

/// The last error of a subscription.
#[derive(Serialize, ToSchema)]
#[schema(as = SubscriptionError)]
struct LastError {
    /// Time of the error.
    at: Timestamp,
    /// Description of the error.
    reason: String,
}

/// New position of a subscription.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rewind)]
struct RewindTo {
    /// `"now"`, `"beginning"`, the number of the next change to deliver, or a time.
    to: StartPosition,
}

/// A subscription whose cursor was moved.
#[derive(Serialize, ToSchema)]
#[schema(as = RewoundSubscription)]
struct RewoundView {
    /// The subscription.
    #[serde(flatten)]
    subscription: SubscriptionView,
    /// Number of changes that come again, whatever the filter selects.
    repeated: u64,
    /// Number of changes that are not delivered, whatever the filter selects.
    skipped: u64,
}

problems!(ListProblems: Unavailable);
problems!(OneProblems: NotFound, Unavailable);
problems!(PutProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidSubscription, Unavailable);
problems!(DeleteProblems: NotFound, Conflict, Unavailable);
problems!(ResumeProblems: NotFound, Conflict, Unavailable);
problems!(RewindProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, InvalidSubscription, Unavailable);

/// All subscriptions with their status.
///
/// # Errors
/// `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions",
    operation_id = "listSubscriptions",
    tag = "administration",
    responses((status = 200, description = "All subscriptions.", body = AllView), ListProblems),
)]
pub async fn list(State((all, crawlers)): State<(Subscriptions, Option<Crawlers>)>) -> Result<Response, Problem> {
    all.refresh().await.map_err(problem)?;
    let (mut subscriptions, mut lags) = (Vec::new(), BTreeMap::new());
    for listed in all.list() {
        // Many have the same cursor, and the change after it can be large.
        let cursor = listed.status.cursor;
        let lag = match lags.get(&cursor) {
            Some(lag) => *lag,
            None => *lags.entry(cursor).or_insert(Lag::after(all.journal(), cursor).await?),
        };
        subscriptions.push(view(listed, lag));
    }
    let dbus = match &crawlers {
        Some(crawlers) => Some(crawlers::view(crawlers).await?),
        None => None,
    };
    Ok(Json(AllView { subscriptions, dbus }).into_response())
}

/// A subscription with its status.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/subscriptions/{name}",
    operation_id = "getSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 200, description = "The subscription.", body = SubscriptionView), OneProblems),
)]
pub async fn one(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    respond(&all, &name, StatusCode::OK).await
}

/// Creates a subscription, or changes the definition of an existing one. An existing subscription keeps its cursor
/// and ignores `start`.
///
/// # Errors
/// `bad-request` if the body is no JSON; `invalid-subscription` if the definition is invalid; `conflict`
/// if the configuration file defines this name; `unavailable` if the journal fails.
#[utoipa::path(
    put,
    path = "/subscriptions/{name}",
    operation_id = "putSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    request_body(content = Definition, description = "The keys of `[subscriptions.NAME]` in the configuration file, as JSON."),
    responses(
        (status = 200, description = "The definition is changed.", body = SubscriptionView),
        (status = 201, description = "The subscription is created.", body = SubscriptionView),
        PutProblems,
    ),
)]
pub async fn put(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let is_new = all.put(&name, json(&body)?).await.map_err(problem)?;
    respond(&all, &name, if is_new { StatusCode::CREATED } else { StatusCode::OK }).await
}

/// Deletes a subscription with its cursor and its dead letters.
///
/// # Errors
/// `not-found`; `conflict` if it is defined in the configuration file; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/subscriptions/{name}",
    operation_id = "deleteSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 204, description = "The subscription is deleted."), DeleteProblems),
)]
pub async fn delete(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    all.delete(&name).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Pauses a subscription until it is resumed. In-flight messages are finished, and no further ones are sent.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/pause",
    operation_id = "pauseSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 200, description = "The subscription is paused.", body = SubscriptionView), OneProblems),
)]
pub async fn pause(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    client: Client,
) -> Result<Response, Problem> {
    all.pause(&name, client.to_string().into()).await.map_err(problem)?;
    respond(&all, &name, StatusCode::OK).await
}

/// Resumes a subscription, also one that has stopped or failed. If it waits for its next attempt, the attempt is made
/// immediately.
///
/// # Errors
/// `not-found`; `conflict` if it has no valid definition; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/resume",
    operation_id = "resumeSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    responses((status = 200, description = "The subscription is resumed.", body = SubscriptionView), ResumeProblems),
)]
pub async fn resume(State(all): State<Subscriptions>, Path(name): Path<SubscriptionName>) -> Result<Response, Problem> {
    all.resume(&name).await.map_err(problem)?;
    respond(&all, &name, StatusCode::OK).await
}

/// Moves the cursor of a subscription backwards or forwards.
///
/// # Errors
/// `not-found`; `bad-request` if the body is no JSON; `invalid-subscription` if the position is invalid;
/// `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/rewind",
    operation_id = "rewindSubscription",
    tag = "administration",
    params(("name" = SubscriptionName, Path, description = "Name of the subscription.")),
    request_body(content = RewindTo, description = "The new position."),
    responses((status = 200, description = "The cursor is moved.", body = RewoundView), RewindProblems),
)]
pub async fn rewind(
    State(all): State<Subscriptions>,
    Path(name): Path<SubscriptionName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let RewindTo { to } = json(&body)?;
    let RewoundChanges { repeated, skipped } = all.rewind(&name, to).await.map_err(problem)?;
    all.refresh_one(&name).await.map_err(problem)?;
    let subscription = current(&all, &name).await?;
    Ok(Json(RewoundView { subscription, repeated, skipped }).into_response())
}

pub(super) async fn respond(
    all: &Subscriptions,
    name: &SubscriptionName,
    status: StatusCode,
) -> Result<Response, Problem> {
    all.refresh_one(name).await.map_err(problem)?;
    Ok((status, Json(current(all, name).await?)).into_response())
}

async fn current(all: &Subscriptions, name: &SubscriptionName) -> Result<SubscriptionView, Problem> {
    let listed = all.get(name).map_err(problem)?;
    let lag = Lag::after(all.journal(), listed.status.cursor).await?;
    Ok(view(listed, lag))
}

fn view(listed: SubscriptionInfo, lag: Lag) -> SubscriptionView {
    let SubscriptionInfo { name, made_by, definition, paused_by, status } = listed;
    let failing = status.is_failing();
    let StatusSnapshot { state, cursor, delivered, rate, last_delivered, unroutable, failures, next_attempt, .. } =
        status;
    SubscriptionView {
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
        failing_since: status.failing_since.filter(|_| failing),
        stuck_at: status.stuck_at.filter(|_| failing),
        paused_by,
        last_error: status.last_error.map(|(at, reason)| LastError { at, reason }),
        next_attempt,
        definition,
    }
}

impl Lag {
    /// Returns the delay of a receiver that has all changes up to this one.
    pub(super) async fn after(journal: &Journal, cursor: Seq) -> Result<Self, Problem> {
        let changes = journal.count_after(cursor);
        if changes == 0 {
            return Ok(Self { changes, seconds: Some(0.0) });
        }
        let next = match journal.after_within(cursor, 1, 1).await {
            Ok(next) => next,
            Err(JournalError::Gone { .. } | JournalError::Store(StoreError::DamagedChange { .. })) => {
                return Ok(Self { changes, seconds: None });
            }
            Err(error) => return Err(journal_problem(error)),
        };
        let received = next.first().map(|next| next.change().map(|change| change.received)).transpose();
        let received = received.map_err(|error| journal_problem(error.into()))?;
        let age = |received: Timestamp| Timestamp::now().millis().saturating_sub(received.millis()).max(0);
        #[expect(clippy::cast_precision_loss, reason = "an age in milliseconds is far below 2⁵³")]
        let seconds = received.map(|received| age(received) as f64 / 1000.0);
        Ok(Self { changes, seconds })
    }
}

/// Reads the body of a request.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            // The error is not attached as the cause, because causes are logged and serde may repeat a value, such as
            // a URL with a password.
            Problem::new(ProblemCode::InvalidSubscription, format!("The body is invalid: {error}."))
        } else {
            Problem::new(ProblemCode::BadRequest, format!("The body is not JSON: {error}. Send a JSON object."))
        }
    })
}

/// Returns the problem of a failed operation.
#[expect(clippy::needless_pass_by_value, reason = "it is used in map_err")]
pub(super) fn problem(error: OperationError) -> Problem {
    let problem = |code| Problem::new(code, format!("{}.", sentence(&error.to_string())));
    match &error {
        OperationError::Unknown(_) | OperationError::NoChange(_) => problem(ProblemCode::NotFound),
        OperationError::DefinedInConfig(_)
        | OperationError::OwnedByHub(_)
        | OperationError::TooMany
        | OperationError::Undefined(_)
        | OperationError::NotDelivered { .. }
        | OperationError::NothingToSend(_)
        | OperationError::RangeTooLong
        | OperationError::NoRoom { .. }
        | OperationError::NotNext { .. } => problem(ProblemCode::Conflict),
        OperationError::Definition(wrong) if wrong.key.is_empty() => {
            Problem::new(ProblemCode::InvalidSubscription, format!("{}.", sentence(&wrong.reason))).with("key", "")
        }
        // The text begins with a key, whose case must not change.
        OperationError::Definition(wrong) => {
            Problem::new(ProblemCode::InvalidSubscription, format!("{wrong}.")).with("key", wrong.key.clone())
        }
        OperationError::Start(InvalidStartPosition::NotStored { .. }) => {
            problem(ProblemCode::InvalidSubscription).with("key", "start")
        }
        OperationError::Start(InvalidStartPosition::Journal(journal)) | OperationError::Journal(journal) => {
            journal_problem(journal.clone())
        }
    }
}
