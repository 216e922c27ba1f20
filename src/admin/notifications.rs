//! `/harvests/NAME/notifications/TOKEN`: the place where the WebSub hub of a feed confirms a subscription (WebSub section
//! 5.3) and sends its notifications (section 7).
//!
//! Only the hub knows the token, so requests need no other credentials. A notification requests a run, whose documents
//! come from the feed itself.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use chrono::{TimeDelta, Utc};
use serde::Deserialize;

use super::{harvests::problem, journal_problem};
use crate::{
    harvest::{Callback, Harvests},
    model::{SourceName, Timestamp},
    web::{Body, Path, Problem, ProblemCode, Query, problems},
};

/// Lease if the hub names none, and the longest lease, in seconds.
const DEFAULT_LEASE_SECONDS: i64 = 24 * 60 * 60;
const LONGEST_LEASE_SECONDS: i64 = 30 * 24 * 60 * 60;

/// Request of a hub for a confirmation.
#[derive(Deserialize, utoipa::IntoParams)]
pub struct Confirmation {
    /// `subscribe`, `unsubscribe`, or `denied` if the hub has refused or ended the subscription.
    #[serde(rename = "hub.mode", default)]
    mode: String,
    /// URL of the feed.
    #[serde(rename = "hub.topic", default)]
    topic: String,
    /// Text that the response repeats.
    #[serde(rename = "hub.challenge", default)]
    challenge: String,
    /// Duration of the subscription in seconds.
    #[serde(rename = "hub.lease_seconds", default)]
    #[param(value_type = u64)]
    lease: String,
}

problems!(Problems: NotFound, BadRequest, Unavailable);
problems!(NotifyProblems: NotFound, BodyTooLarge, UnsupportedEncoding, Unavailable);

async fn callback(harvests: &Harvests, name: &SourceName, token: &str) -> Result<Callback, Problem> {
    let callback = harvests.callback(name, token).await.map_err(journal_problem)?;
    callback.ok_or_else(|| Problem::new(ProblemCode::NotFound, "There is no subscription of this gateway."))
}

/// Confirms that a harvest has requested a subscription, and notes its end.
#[utoipa::path(
    get,
    path = "/harvests/{name}/notifications/{token}",
    operation_id = "confirmHubSubscription",
    tag = "in",
    params(
        ("name" = SourceName, Path, description = "Name of the source."),
        ("token" = String, Path, description = "Secret part of the URL."),
        Confirmation,
    ),
    responses((status = 200, description = "The challenge.", body = String, content_type = "text/plain"), Problems),
)]
pub async fn confirm(
    State(harvests): State<Harvests>,
    Path((name, token)): Path<(SourceName, String)>,
    Query(confirmation): Query<Confirmation>,
) -> Result<Response, Problem> {
    let Confirmation { mode, topic, challenge, lease } = confirmation;
    let callback = callback(&harvests, &name, &token).await?;
    let lease = match mode.as_str() {
        "subscribe" if topic == callback.topic && !challenge.is_empty() => {
            let seconds = lease.parse().unwrap_or(DEFAULT_LEASE_SECONDS).clamp(1, LONGEST_LEASE_SECONDS);
            tracing::info!(source = %name, seconds, "the hub of the feed will report its changes");
            Some(Timestamp::from_datetime(Utc::now() + TimeDelta::seconds(seconds)))
        }
        "denied" => {
            tracing::warn!(source = %name, "the hub of the feed has ended or refused the subscription; the feed is requested on schedule");
            None
        }
        _ => {
            let detail = "The gateway has requested no such subscription.";
            return Err(Problem::new(ProblemCode::NotFound, detail));
        }
    };
    harvests.set_lease(&name, lease).await.map_err(problem)?;
    Ok(challenge.into_response())
}

/// Requests a run of the harvest, because the feed has changed. The body is not used.
#[utoipa::path(
    post,
    path = "/harvests/{name}/notifications/{token}",
    operation_id = "notifyHarvest",
    tag = "in",
    params(
        ("name" = SourceName, Path, description = "Name of the source."),
        ("token" = String, Path, description = "Secret part of the URL."),
    ),
    responses((status = 202, description = "The run is requested."), NotifyProblems),
)]
pub async fn notify(
    State(harvests): State<Harvests>,
    Path((name, token)): Path<(SourceName, String)>,
    Body(_): Body,
) -> Result<Response, Problem> {
    callback(&harvests, &name, &token).await?;
    harvests.notify(&name).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED.into_response())
}
