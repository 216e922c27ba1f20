//! `/harvests`: the harvests of repositories, and the history of their runs.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::journal_problem;
use crate::{
    harvest::status::{HarvestStatus, HarvestView},
    journal::{
        Journal,
        harvest::{HarvestRun, KEPT_RUNS, RunCounts, RunState},
    },
    model::{SourceName, Timestamp},
    web::{Path, Problem, ProblemCode, problems},
};

/// A source that is harvested.
#[derive(Clone, Debug)]
pub struct ConfiguredHarvest {
    /// Place that is harvested, without credentials.
    pub place: String,
    /// State at this node.
    pub status: Arc<HarvestStatus>,
}

/// The harvests, by the names of their sources.
#[derive(Clone)]
pub struct Harvests {
    /// The journal, which has positions and runs.
    pub journal: Journal,
    /// The harvests.
    pub all: Arc<BTreeMap<SourceName, ConfiguredHarvest>>,
}

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
    /// Place that is harvested.
    place: String,
    /// State at this node: `waiting`, `running`, `retrying`, `finished`, `elsewhere` (another node harvests the source)
    /// or `stopped`.
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
    /// The present or newest run; absent before the first one.
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
        Self { id, state, started, updated, pages, records, changes, unchanged, quarantined, repaired, reason }
    }
}

impl HarvestSummary {
    fn of(source: &SourceName, harvest: &ConfiguredHarvest, run: Option<RunView>) -> Self {
        let HarvestView { state, next, last_error, remarks } = harvest.status.view();
        Self {
            source: source.to_string(),
            place: harvest.place.clone(),
            state: state.name(),
            next,
            last_error: last_error.map(|(reason, at)| HarvestFailure { reason, at }),
            remarks,
            run,
        }
    }
}

impl Harvests {
    fn get(&self, name: &SourceName) -> Result<&ConfiguredHarvest, Problem> {
        self.all.get(name).ok_or_else(|| {
            let detail = format!("There is no harvest of a source {name}; GET /harvests lists all harvests.");
            Problem::new(ProblemCode::NotFound, detail)
        })
    }

    async fn runs(&self, source: &SourceName, limit: usize) -> Result<Vec<RunView>, Problem> {
        let runs = self.journal.harvest_runs(source.clone(), None, limit).await.map_err(journal_problem)?;
        Ok(runs.into_iter().map(RunView::of).collect())
    }
}

problems!(Problems: Unavailable);
problems!(NamedProblems: NotFound, Unavailable);

/// All harvests, each with its present or newest run.
#[utoipa::path(
    get,
    path = "/harvests",
    operation_id = "listHarvests",
    tag = "administration",
    responses((status = 200, description = "All harvests.", body = HarvestsView), Problems),
)]
pub async fn list(State(harvests): State<Harvests>) -> Result<Response, Problem> {
    let mut views = Vec::with_capacity(harvests.all.len());
    for (source, harvest) in harvests.all.iter() {
        let run = harvests.runs(source, 1).await?.pop();
        views.push(HarvestSummary::of(source, harvest, run));
    }
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
    let harvest = harvests.get(&source)?;
    let runs = harvests.runs(&source, KEPT_RUNS).await?;
    let stored = harvests.journal.harvest(source.clone()).await.map_err(journal_problem)?;
    let position = stored.map(|stored| stored.position.to_string()).filter(|position| !position.is_empty());
    let summary = HarvestSummary::of(&source, harvest, runs.first().cloned());
    Ok(Json(HarvestHistory { summary, position, runs }).into_response())
}

/// Requests a run. The node that harvests the source begins it within seconds, unless a run is in progress.
#[utoipa::path(
    post,
    path = "/harvests/{name}/run",
    operation_id = "runHarvest",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 202, description = "The run is requested."), NamedProblems),
)]
pub async fn run(State(harvests): State<Harvests>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    let harvest = harvests.get(&source)?;
    harvests.journal.request_harvest(source).await.map_err(journal_problem)?;
    harvest.status.wake();
    Ok(StatusCode::ACCEPTED.into_response())
}
