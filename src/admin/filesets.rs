//! `/filesets`: the jobs that archive datasets, with their progress and results. `DELETE /filesets/{id}` cancels one.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::journal_problem;
use crate::{
    filesets::{IngestMonitor, IngestNumbers},
    journal::{
        Journal,
        ingest::{IngestJob, JobId, JobSelection, JobState},
    },
    model::{JsonDocument, SourceName, Timestamp, Uri},
    web::{Path, Problem, ProblemCode, Query, problems},
};

/// Maximum number of jobs on a page.
const MAX_LIMIT: usize = 1000;

/// Default number of jobs on a page.
const DEFAULT_LIMIT: usize = 100;

/// State of the surfaces about datasets.
#[derive(Clone)]
pub struct Filesets {
    /// The journal, which stores jobs and results.
    pub journal: Journal,
    /// Progress of the jobs that this node runs.
    pub monitor: IngestMonitor,
}

/// Query parameters of `GET /filesets`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// State of the jobs. Default: all.
    #[serde(default)]
    #[param(inline, value_type = JobState)]
    state: Option<StateName>,
    /// Identifier before which to begin. Default: the newest job.
    #[serde(default)]
    #[param(value_type = String, required = false, format = "uuid")]
    before: Option<Uuid>,
    /// Maximum number of jobs.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The name of a state.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct StateName(JobState);

impl TryFrom<String> for StateName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let state = JobState::ALL.into_iter().find(|state| state.name() == name);
        state.map(Self).ok_or_else(|| {
            let names: Vec<_> = JobState::ALL.iter().map(|state| state.name()).collect();
            format!("there is no state {name:?}; there are {}", names.join(", "))
        })
    }
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = FilesetPage)]
struct PageView {
    /// The jobs, newest first.
    filesets: Vec<JobView>,
    /// Value of `before` for the next page; `null` on the last page.
    #[schema(value_type = Option<String>, required = true)]
    next: Option<JobId>,
}

/// A job that archives a dataset.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Fileset)]
struct JobView {
    /// Identifier of the job.
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    /// Source of the harvest that executes the job.
    #[schema(value_type = SourceName)]
    source: SourceName,
    /// URI of the dataset.
    #[schema(value_type = Uri)]
    dataset: Uri,
    /// State of the job.
    state: JobState,
    /// Outcome of the last attempt; absent before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    status: Option<String>,
    /// Reason of the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    message: Option<String>,
    /// Number of successive attempts that have failed.
    attempts: u32,
    /// Time of the next attempt; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp)]
    next: Option<Timestamp>,
    /// Time of the newest request.
    requested: Timestamp,
    /// Time of the last modification.
    updated: Timestamp,
    /// Progress of a job that runs at this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    progress: Option<ProgressView>,
}

/// Progress of a job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FilesetProgress)]
struct ProgressView {
    /// Number of files of the dataset; 0 before its platform has answered.
    files: u64,
    /// Number of files that are stored.
    done_files: u64,
    /// Sum of the sizes in the list of the platform, in bytes.
    bytes: u64,
    /// Number of bytes that are stored.
    done_bytes: u64,
    /// Mean number of bytes that are downloaded in a second.
    bytes_per_second: u64,
}

impl JobView {
    fn of(job: IngestJob, monitor: &IngestMonitor) -> Self {
        let IngestJob { id, source, dataset, state, due, attempts, status, message, requested, updated, .. } = job;
        let progress = monitor.numbers(id).filter(|_| state == JobState::Running).map(|numbers| {
            let IngestNumbers { files, done_files, bytes, done_bytes, bytes_per_second } = numbers;
            ProgressView { files, done_files, bytes, done_bytes, bytes_per_second }
        });
        let next = due.filter(|_| matches!(state, JobState::Waiting | JobState::Archived));
        let message = message.map(String::from);
        Self { id, source, dataset, state, status, message, attempts, next, requested, updated, progress }
    }
}

/// A job with its request and the newest result for its dataset.
#[derive(Serialize, ToSchema)]
#[schema(as = FilesetWithResult)]
struct ResultView {
    #[serde(flatten)]
    job: JobView,
    /// The request, as in Sandcrawler's messages.
    #[schema(value_type = Object)]
    request: JsonDocument,
    /// The newest result for the dataset, as in Sandcrawler's messages; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    result: Option<JsonDocument>,
}

problems!(ListProblems: InvalidQuery, Unavailable);
problems!(OneProblems: NotFound, Unavailable);

/// The jobs that archive datasets, newest first. `next` is the value of `before` for the next page.
///
/// # Errors
/// `invalid-query`; `unavailable` if the journal fails.
#[utoipa::path(
    get,
    path = "/filesets",
    operation_id = "listFilesets",
    tag = "administration",
    params(ListQuery),
    responses((status = 200, description = "A page of jobs.", body = PageView), ListProblems),
)]
pub async fn list(State(filesets): State<Filesets>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        let detail = format!("limit is {limit}; give 1 to {MAX_LIMIT}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    let (before, state) = (query.before.map(JobId), query.state.map(|StateName(state)| state));
    let jobs = filesets.journal.ingest_jobs(JobSelection::All { before, state }, limit).await;
    let jobs = jobs.map_err(journal_problem)?;
    filesets.journal.until_published().await.map_err(journal_problem)?;
    let next = jobs.last().filter(|_| jobs.len() == limit).map(|job| job.id);
    let filesets = jobs.into_iter().map(|job| JobView::of(job, &filesets.monitor)).collect();
    Ok(Json(PageView { filesets, next }).into_response())
}

/// One job, with its request and the newest result for its dataset.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    get,
    path = "/filesets/{id}",
    operation_id = "getFileset",
    tag = "administration",
    params(("id" = String, Path, description = "Identifier of the job.")),
    responses((status = 200, description = "The job.", body = ResultView), OneProblems),
)]
pub async fn one(State(filesets): State<Filesets>, Path(id): Path<Uuid>) -> Result<Response, Problem> {
    let job = get(&filesets, id).await?;
    let result = filesets.journal.object_result(job.dataset.clone()).await.map_err(journal_problem)?;
    filesets.journal.until_published().await.map_err(journal_problem)?;
    let request = job.request.clone();
    let result = result.map(|result| result.result);
    Ok(Json(ResultView { job: JobView::of(job, &filesets.monitor), request, result }).into_response())
}

/// Cancels a job: its downloads end, and an archived dataset is not looked at again. The files that are archived stay. A job
/// that has failed or is blocked keeps its result, and is a problem of the gateway no more.
///
/// # Errors
/// `not-found`; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/filesets/{id}",
    operation_id = "cancelFileset",
    tag = "administration",
    params(("id" = String, Path, description = "Identifier of the job.")),
    responses((status = 202, description = "The job is cancelled within seconds."), OneProblems),
)]
pub async fn cancel(State(filesets): State<Filesets>, Path(id): Path<Uuid>) -> Result<Response, Problem> {
    let job = get(&filesets, id).await?;
    filesets.journal.cancel_ingest(&job).await.map_err(journal_problem)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn get(filesets: &Filesets, id: Uuid) -> Result<IngestJob, Problem> {
    let found = filesets.journal.ingest_jobs(JobSelection::Some(vec![JobId(id)]), 1).await.map_err(journal_problem)?;
    found.into_iter().next().ok_or_else(|| {
        let detail = format!("There is no job with the identifier {id}. GET /filesets lists all jobs.");
        Problem::new(ProblemCode::NotFound, detail)
    })
}
