//! `/sources/{name}/audit`: starts, shows and stops the audit of a source, which compares its repository with the registry.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{journal_problem, sentence};
use crate::{
    audit::{AuditError, AuditOptions, AuditReport, Audits},
    model::SourceName,
    web::{Body, Path, Problem, ProblemCode, problems},
};

/// Maximum size of a sample, in objects. The gateway holds their URIs.
const MAX_SAMPLE: u32 = 10_000;

/// Maximum time after which a difference is looked at again, in seconds.
const MAX_PAUSE: u64 = 3600;

/// Options of an audit.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = NewAudit)]
#[serde(deny_unknown_fields, default)]
struct NewAudit {
    /// Number of random objects of the registry to compare; without it, the audit is complete.
    #[schema(minimum = 1, maximum = 10000, nullable = false)]
    sample: Option<u32>,
    /// `true` corrects the registry.
    repair: bool,
    /// Greatest share of the registered objects that a correction may delete, in percent. Default: 20.
    #[serde(rename = "maxDeletedPercent")]
    #[schema(minimum = 0, maximum = 100, nullable = false)]
    max_deleted_percent: Option<u8>,
    /// Time after which a difference is looked at again, in seconds, because the message about it may be on its way.
    /// Default: 2.
    #[serde(rename = "pauseSeconds")]
    #[schema(minimum = 0, maximum = 3600, nullable = false)]
    pause_seconds: Option<u64>,
    /// `true` begins anew, although an earlier audit has not ended.
    restart: bool,
}

/// The newest audit of a source.
#[derive(Serialize, ToSchema)]
#[schema(as = Audit)]
struct AuditView<'a> {
    /// Name of the source.
    source: &'a SourceName,
    /// The audit; `null` if there has been none.
    #[schema(required = true)]
    audit: Option<AuditReport>,
}

problems!(ShowProblems: NotFound, Unavailable);
problems!(StartProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, Unavailable);

/// The newest audit of a source.
///
/// # Errors
/// `not-found` if the repository of the source cannot be asked; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/sources/{name}/audit",
    operation_id = "getAudit",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The audit.", body = AuditView), ShowProblems),
)]
pub async fn show(State(audits): State<Audits>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    let audit = audits.report(&source).await.map_err(problem)?;
    Ok(Json(AuditView { source: &source, audit }).into_response())
}

/// Starts an audit of a source, or continues one with the same options that has not ended. An empty body has no options.
///
/// # Errors
/// `not-found` if the repository of the source cannot be asked; `bad-request` if the body is no JSON, or has an invalid
/// option; `conflict` if an audit with other options has not ended; `unavailable` if the journal fails.
#[utoipa::path(
    post,
    path = "/sources/{name}/audit",
    operation_id = "startAudit",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    request_body(content = Option<NewAudit>, description = "Options."),
    responses((status = 202, description = "The audit is requested.", body = AuditView), StartProblems),
)]
pub async fn start(
    State(audits): State<Audits>,
    Path(source): Path<SourceName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let wrong = |reason: String| {
        Problem::new(ProblemCode::BadRequest, format!("The body has no options of an audit: {reason}."))
    };
    let new = match body.is_empty() {
        true => NewAudit::default(),
        false => serde_json::from_slice::<Option<NewAudit>>(&body)
            .map_err(|error| wrong(error.to_string()))?
            .unwrap_or_default(),
    };
    let NewAudit { sample, repair, max_deleted_percent, pause_seconds: pause, restart } = new;
    if max_deleted_percent.is_some_and(|percent| percent > 100) {
        return Err(wrong("maxDeletedPercent is at most 100".to_owned()));
    }
    if pause.is_some_and(|pause| pause > MAX_PAUSE) {
        return Err(wrong(format!("pauseSeconds is at most {MAX_PAUSE}")));
    }
    if sample.is_some_and(|sample| !(1..=MAX_SAMPLE).contains(&sample)) {
        return Err(wrong(format!("sample is a number from 1 to {MAX_SAMPLE}")));
    }
    let max_deleted_percent = max_deleted_percent.map(u64::from);
    let options = AuditOptions { sample, repair, max_deleted_percent, pause, restart };
    let audit = Some(audits.start(&source, options).await.map_err(problem)?);
    Ok((StatusCode::ACCEPTED, Json(AuditView { source: &source, audit })).into_response())
}

/// Stops the audit of a source. It continues where it was when it is started again.
///
/// # Errors
/// `not-found` if the repository of the source cannot be asked; `unavailable` if the journal fails.
#[utoipa::path(
    delete,
    path = "/sources/{name}/audit",
    operation_id = "stopAudit",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 204, description = "The audit stops, or none has run."), ShowProblems),
)]
pub async fn stop(State(audits): State<Audits>, Path(source): Path<SourceName>) -> Result<Response, Problem> {
    audits.stop(&source).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn problem(error: AuditError) -> Problem {
    let code = match error {
        AuditError::NotAudited { .. } => ProblemCode::NotFound,
        AuditError::Running(_) => ProblemCode::Conflict,
        AuditError::SampleRepairs | AuditError::NoSample(_) => ProblemCode::BadRequest,
        AuditError::Journal(error) => return journal_problem(error),
    };
    Problem::new(code, format!("{}.", sentence(&error.to_string())))
}
