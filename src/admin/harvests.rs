//! `/harvests`: the harvests of repositories, and the history of their runs. `POST /harvests` makes one, `DELETE` removes
//! one, and `POST …/pause`, `…/resume` and `…/run` control its runs.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{journal_problem, sentence};
use crate::{
    harvest::{
        Harvest, HarvestOperationError, Harvests, RecordCounts, ViewCounts,
        status::{HarvestState, HarvestView},
    },
    journal::{
        harvest::{HarvestRun, KEPT_RUNS, RunCounts, RunState},
        subscriptions::MadeBy,
    },
    model::{SourceName, Timestamp},
    web::{Body, Path, Problem, ProblemCode, Query, problems},
};

/// All harvests.
#[derive(Serialize, ToSchema)]
#[schema(as = Harvests)]
struct HarvestsView {
    /// The harvests, ordered by the names of their sources.
    harvests: Vec<HarvestSummary>,
}

/// Harvest of a source.
#[derive(Serialize, ToSchema)]
#[schema(as = Harvest)]
#[serde(rename_all = "camelCase")]
struct HarvestSummary {
    /// Name of the source.
    source: String,
    /// Origin of the definition: `config` or `api`.
    #[schema(value_type = String)]
    from: MadeBy,
    /// Source whose events have made the harvest; absent for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    announced_by: Option<String>,
    /// Place that is harvested.
    place: String,
    /// State at this node: `waiting`, `running`, `retrying`, `finished`, `paused`, `elsewhere` (another node harvests the
    /// source) or `stopped`.
    state: &'static str,
    /// Time of the next run, or of the next attempt of a failed request; absent if neither is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp)]
    next: Option<Timestamp>,
    /// Last failure since the newest page on disk, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = HarvestFailure)]
    last_error: Option<HarvestFailure>,
    /// Facts about the repository that an administrator should know, from the newest run of this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    remarks: Vec<String>,
    /// The present or newest run; absent before the first one, and for a source of datasets, which has jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = RunView)]
    run: Option<RunView>,
}

/// Failure of a harvest.
#[derive(Serialize, ToSchema)]
#[schema(as = HarvestFailure)]
struct HarvestFailure {
    /// Reason of the failure.
    reason: String,
    /// Time of the failure.
    at: Timestamp,
}

/// Harvest of a source with the history of its runs.
#[derive(Serialize, ToSchema)]
#[schema(as = HarvestHistory)]
struct HarvestHistory {
    #[serde(flatten)]
    summary: HarvestSummary,
    /// Position from which the harvest continues, in the format of its kind; absent before the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    position: Option<String>,
    /// Number of records of the list that is being read, if the repository has announced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    announced: Option<u64>,
    /// End of the subscription at the hub of the feed; absent if the hub has confirmed none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp)]
    lease: Option<Timestamp>,
    /// The newest runs, newest first.
    runs: Vec<RunView>,
}

/// One run of a harvest.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = HarvestRun)]
#[serde(rename_all = "camelCase")]
struct RunView {
    /// Identifier of the run.
    id: String,
    /// State of the run.
    state: RunState,
    /// Start of the run.
    started: Timestamp,
    /// Time of the last page, or of the end.
    updated: Timestamp,
    /// Number of pages.
    pages: u64,
    /// Number of records.
    records: u64,
    /// Number of changes that the records made.
    changes: u64,
    /// Number of records that changed nothing.
    unchanged: u64,
    /// Number of records that could not be read. They are in the quarantine.
    quarantined: u64,
    /// Number of pages with errors that were repaired.
    repaired: u64,
    /// Reason of a failure, or remarks about a complete run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

impl RunView {
    fn of(run: HarvestRun) -> Self {
        let HarvestRun { id, started, updated, state, reason, counts, .. } = run;
        let RunCounts { pages, records, changes, quarantined, repaired } = counts;
        let unchanged = records.saturating_sub(changes + quarantined);
        let id = id.to_string();
        Self {
            id,
            state,
            started,
            updated,
            pages,
            records,
            changes,
            unchanged,
            quarantined,
            repaired,
            reason: reason.map(String::from),
        }
    }
}

impl HarvestSummary {
    fn of(harvest: &Harvest, view: HarvestView, run: Option<RunView>) -> Self {
        let HarvestView { state, next, last_error, remarks, .. } = view;
        Self {
            source: harvest.source.name().to_string(),
            from: harvest.made_by,
            announced_by: harvest.announced_by.as_ref().map(SourceName::to_string),
            place: harvest.place(),
            state: state.name(),
            next,
            last_error: last_error.map(|(reason, at)| HarvestFailure { reason: reason.into(), at }),
            remarks: remarks.into_iter().map(String::from).collect(),
            run,
        }
    }
}

fn get(harvests: &Harvests, name: &SourceName) -> Result<Arc<Harvest>, Problem> {
    harvests.get(name).ok_or_else(|| problem(HarvestOperationError::Unknown(name.clone())))
}

/// Returns the newest runs of a harvest, newest first, and its state. If the state says that a run has ended, the run has
/// ended in the list too.
async fn newest_runs(
    harvests: &Harvests,
    harvest: &Harvest,
    limit: usize,
) -> Result<(Vec<RunView>, HarvestView), Problem> {
    if !harvest.has_runs() {
        return Ok((Vec::new(), harvest.status.view()));
    }
    let read = || harvests.journal().harvest_runs(harvest.source.name().clone(), None, limit);
    let mut runs = read().await.map_err(journal_problem)?;
    let view = harvest.status.view();
    let has_ended = runs.first().is_some_and(|run| run.state != RunState::Running);
    if !has_ended && matches!(view.state, HarvestState::Waiting | HarvestState::Finished) {
        // It may have ended since the list was read. The engine writes the end of a run before it changes the state.
        runs = read().await.map_err(journal_problem)?;
    }
    Ok((runs.into_iter().map(RunView::of).collect(), view))
}

/// Returns the problem of a failed operation.
#[expect(clippy::needless_pass_by_value, reason = "it is used in map_err")]
pub(super) fn problem(error: HarvestOperationError) -> Problem {
    let problem = |code| Problem::new(code, format!("{}.", sentence(&error.to_string())));
    match &error {
        HarvestOperationError::Unknown(_) => problem(ProblemCode::NotFound),
        HarvestOperationError::DefinedInConfig(_)
        | HarvestOperationError::Exists(_)
        | HarvestOperationError::NoRuns(_)
        | HarvestOperationError::TooMany => problem(ProblemCode::Conflict),
        HarvestOperationError::Definition(wrong) if wrong.key.is_empty() => {
            Problem::new(ProblemCode::InvalidHarvest, format!("{}.", sentence(&wrong.reason))).with("key", "")
        }
        // The text begins with a key, whose case must not change.
        HarvestOperationError::Definition(wrong) => {
            Problem::new(ProblemCode::InvalidHarvest, format!("{wrong}.")).with("key", wrong.key.clone())
        }
        HarvestOperationError::Setup(_) => problem(ProblemCode::Unavailable),
        HarvestOperationError::Journal(journal) => journal_problem(journal.clone()),
    }
}

problems!(Problems: Unavailable);
problems!(NamedProblems: NotFound, Unavailable);
problems!(RunProblems: NotFound, Conflict, InvalidQuery, Unavailable);
problems!(AddProblems: BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, InvalidHarvest, Unavailable);
problems!(RemoveProblems: NotFound, Conflict, Unavailable);

/// All harvests, each with its present or newest run.
#[utoipa::path(
    get,
    path = "/harvests",
    operation_id = "listHarvests",
    tag = "administration",
    responses((status = 200, description = "All harvests.", body = HarvestsView), Problems),
)]
pub async fn list(State(harvests): State<Harvests>) -> Result<Response, Problem> {
    let mut views = Vec::new();
    for harvest in harvests.list() {
        let (mut runs, view) = newest_runs(&harvests, &harvest, 1).await?;
        views.push(HarvestSummary::of(&harvest, view, runs.pop()));
    }
    harvests.journal().until_published().await.map_err(journal_problem)?;
    Ok(Json(HarvestsView { harvests: views }).into_response())
}

/// One harvest, with its position and the history of its runs.
#[utoipa::path(
    get,
    path = "/harvests/{name}",
    operation_id = "getHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The harvest.", body = HarvestHistory), NamedProblems),
)]
pub async fn one(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    let harvest = get(&harvests, &source)?;
    let (runs, view) = newest_runs(&harvests, &harvest, KEPT_RUNS).await?;
    let stored = harvests.journal().harvest(source).await.map_err(journal_problem)?;
    let lease = stored.as_ref().and_then(|stored| stored.lease);
    let position = stored.map(|stored| stored.position.to_string()).filter(|position| !position.is_empty());
    let announced = position.as_deref().and_then(|position| harvest.announced(position));
    let position = position.map(|position| harvest.public_position(&position));
    let summary = HarvestSummary::of(&harvest, view, runs.first().cloned());
    harvests.journal().until_published().await.map_err(journal_problem)?;
    Ok(Json(HarvestHistory { summary, position, announced, lease, runs }).into_response())
}

/// Numbers of the records of a harvest.
#[derive(Serialize, ToSchema)]
#[schema(as = HarvestRecords)]
struct RecordsView {
    /// Number of records that exist.
    live: u64,
    /// Number of those among them that could not be read, or whose deletion is not certain. Each run requests them again.
    waiting: u64,
    /// Numbers by set, for harvests over OAI-PMH; empty until a run has listed records.
    sets: Vec<SetRecords>,
}

/// Numbers of the records of a set.
#[derive(Serialize, ToSchema)]
#[schema(as = HarvestSetRecords)]
struct SetRecords {
    /// The set; empty for the whole repository.
    set: String,
    /// Number of records that the set has.
    live: u64,
    /// Number of records that the repository has reported as deleted in the set.
    deleted: u64,
}

/// Numbers of the records of a harvest, to compare with those of its repository. Takes seconds for a million records.
#[utoipa::path(
    get,
    path = "/harvests/{name}/records",
    operation_id = "countHarvestRecords",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The numbers.", body = RecordsView), NamedProblems),
)]
pub async fn records(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    let RecordCounts { live, waiting, views } = harvests.count_records(&source).await.map_err(problem)?;
    let set = |(set, ViewCounts { live, deleted })| SetRecords { set, live, deleted };
    Ok(Json(RecordsView { live, waiting, sets: views.into_iter().map(set).collect() }).into_response())
}

/// Definition of a harvest.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewHarvest)]
struct NewHarvest {
    /// Name of the source.
    name: SourceName,
    /// The other settings of `[sources.NAME]`: `transport`, `dialect`, `url`, `every` and so on.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    settings: Map<String, Value>,
}

/// Makes a harvest, which begins at once. Its definition is stored in the journal.
///
/// # Errors
/// `bad-request` if the body is no JSON; `invalid-harvest` if a setting is invalid; `conflict` if the name is in use;
/// `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/harvests",
    operation_id = "addHarvest",
    tag = "administration",
    request_body(content = NewHarvest, description = "`name`, and the settings of `[sources.NAME]`, as JSON."),
    responses((status = 201, description = "The harvest is made.", body = HarvestSummary), AddProblems),
)]
pub async fn add(State(harvests): State<Harvests>, Body(body): Body) -> Result<Response, Problem> {
    let NewHarvest { name, settings } = serde_json::from_slice(&body).map_err(|error| {
        // The error is not attached as the cause, because causes are logged and serde may repeat a value, such as a URL
        // with a password.
        if error.is_data() {
            Problem::new(ProblemCode::InvalidHarvest, format!("The body is invalid: {error}.")).with("key", "")
        } else {
            Problem::new(ProblemCode::BadRequest, format!("The body is not JSON: {error}. Send a JSON object."))
        }
    })?;
    harvests.add(&name, &Value::Object(settings)).await.map_err(problem)?;
    let harvest = get(&harvests, &name)?;
    Ok((StatusCode::CREATED, Json(HarvestSummary::of(&harvest, harvest.status.view(), None))).into_response())
}

/// Removes a harvest that was made over HTTP, with its position and its history. Its changes stay in the journal.
///
/// # Errors
/// `not-found`; `conflict` if the configuration file defines the source; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/harvests/{name}",
    operation_id = "removeHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 204, description = "The harvest is removed."), RemoveProblems),
)]
pub async fn remove(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    harvests.remove(&source).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Pauses a harvest until it is resumed. A run in progress stops after the present page.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/harvests/{name}/pause",
    operation_id = "pauseHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 204, description = "The harvest is paused."), NamedProblems),
)]
pub async fn pause(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    harvests.pause(&source).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Resumes a paused harvest. An interrupted run continues where it stopped.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/harvests/{name}/resume",
    operation_id = "resumeHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 204, description = "The harvest is resumed."), NamedProblems),
)]
pub async fn resume(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    harvests.resume(&source).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Requests a run. The node that harvests the source begins it within seconds, unless a run is in progress.
#[utoipa::path(
    post,
    path = "/harvests/{name}/run",
    operation_id = "runHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source."), RunQuery),
    responses((status = 202, description = "The run is requested."), RunProblems),
)]
pub async fn run(
    State(harvests): State<Harvests>,
    Path(source): Path<SourceName>,
    Query(RunQuery { full }): Query<RunQuery>,
) -> Result<Response, Problem> {
    let requested = if full { harvests.request_full(&source).await } else { harvests.request(&source).await };
    requested.map_err(problem)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Query of a request for a run.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    /// Lists all records again, also those that are older than the mark of the last run. For harvests over OAI-PMH.
    #[serde(default)]
    full: bool,
}

/// Requests a run that deletes the records of former settings: of another `url` or `metadata_prefix`.
#[utoipa::path(
    post,
    path = "/harvests/{name}/retire",
    operation_id = "retireHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 202, description = "The run is requested."), NamedProblems),
)]
pub async fn retire(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    harvests.retire(&source).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED.into_response())
}
