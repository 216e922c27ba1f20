//! The crawlers of the target on D-Bus: `GET /subscriptions` lists them, and `POST /crawlers/{id}/invalidate` invalidates
//! one.

use axum::{extract::State, http::StatusCode, response::IntoResponse, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{sentence, subscriptions::Lag};
use crate::{
    broker::ConnectionView,
    delivery::xesam::{CrawlerInfo, CrawlerState, Crawlers},
    model::{Seq, Timestamp},
    web::{Body, Path, Problem, ProblemCode, problems},
};

/// Maximum length of a reason, in characters.
const MAX_REASON: usize = 1000;

/// The target on D-Bus, and its crawlers.
#[derive(Serialize, ToSchema)]
#[schema(as = DbusTarget)]
pub(super) struct TargetView {
    /// The bus: `session`, `system`, or an address.
    bus: String,
    /// Name of the target on the bus.
    name: String,
    /// Path of the target.
    path: String,
    /// State of the connection to the bus.
    connection: ConnectionView,
    /// The installed crawlers, in the order of their installation.
    crawlers: Vec<CrawlerView>,
}

/// A crawler.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Crawler)]
struct CrawlerView {
    /// Number that identifies the crawler while the gateway runs.
    id: u64,
    /// Unique name of its connection on the bus.
    owner: String,
    /// Path of its object.
    path: String,
    /// State of the crawler.
    state: CrawlerState,
    /// Time after which it asked for records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    since: Option<Timestamp>,
    /// Whether it gets the changes after this time, and not a full dump.
    incremental: bool,
    /// It has all changes up to this number; 0 during a full dump.
    position: Seq,
    /// Delay of the crawler.
    lag: Lag,
    /// Number of batches that it has answered.
    batches: u64,
    /// Number of records in these batches.
    records: u64,
    /// Time in seconds for which it has not answered a call; absent if it has no call to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unanswered_seconds: Option<f64>,
}

/// Reason of an invalidation.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Invalidation)]
struct Invalidation {
    /// Text for the people behind the crawler.
    reason: String,
}

problems!(Problems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding);

/// Invalidates a crawler: it gets no more records, and must install itself again.
///
/// # Errors
/// `not-found`; `bad-request` if the body is no JSON.
#[utoipa::path(
    post,
    path = "/crawlers/{id}/invalidate",
    operation_id = "invalidateCrawler",
    tag = "administration",
    params(("id" = u64, Path, description = "Number of the crawler.")),
    request_body(content = Option<Invalidation>, description = "The reason; may be absent."),
    responses((status = 204, description = "The crawler gets no more records."), Problems),
)]
pub async fn invalidate(
    State(crawlers): State<Option<Crawlers>>,
    Path(id): Path<u64>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let Invalidation { mut reason } = match body.is_empty() {
        true => Invalidation::default(),
        false => serde_json::from_slice::<Option<Invalidation>>(&body)
            .map_err(|error| {
                let detail = format!("The body is invalid: {error}. Send {{\"reason\": \"…\"}}.");
                Problem::new(ProblemCode::BadRequest, detail)
            })?
            .unwrap_or_default(),
    };
    if let Some((end, _)) = reason.char_indices().nth(MAX_REASON) {
        reason.truncate(end);
    }
    let disabled = || Problem::new(ProblemCode::NotFound, "The target on D-Bus is not enabled.".to_owned());
    let crawlers = crawlers.ok_or_else(disabled)?;
    let unknown = |error: crate::delivery::xesam::UnknownCrawler| {
        Problem::new(ProblemCode::NotFound, format!("{}.", sentence(&error.to_string())))
    };
    crawlers.invalidate(id, &reason).map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the view of the target.
///
/// # Errors
/// `unavailable` if the journal cannot be read.
pub(super) async fn view(crawlers: &Crawlers) -> Result<TargetView, Problem> {
    let (settings, mut views) = (crawlers.settings(), Vec::new());
    for crawler in crawlers.list() {
        views.push(crawler_view(crawlers, crawler).await?);
    }
    Ok(TargetView {
        bus: settings.bus.to_string(),
        name: settings.name.as_str().to_owned(),
        path: settings.path.as_str().to_owned(),
        connection: crawlers.connection(),
        crawlers: views,
    })
}

async fn crawler_view(crawlers: &Crawlers, crawler: CrawlerInfo) -> Result<CrawlerView, Problem> {
    let millis = i64::try_from(crawler.mtime).ok().and_then(|seconds| seconds.checked_mul(1000));
    Ok(CrawlerView {
        id: crawler.id,
        owner: crawler.key.owner.to_string(),
        path: crawler.key.path.as_str().to_owned(),
        state: crawler.state,
        since: millis.and_then(Timestamp::from_millis),
        incremental: crawler.incremental,
        position: crawler.position,
        lag: Lag::after(crawlers.journal(), crawler.position).await?,
        batches: crawler.batches,
        records: crawler.records,
        unanswered_seconds: crawler.unanswered.map(|time| time.as_secs_f64()),
    })
}
