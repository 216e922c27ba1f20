//! Seeding of the registry: `POST /sources/{name}/registry` accepts one part of the results of a crawl of the
//! source's repository, and `GET` returns the progress of the crawl. The command `tidings seed-registry` does the
//! crawl.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    journal_problem,
    sources::{ConfiguredSource, Sources},
};
use crate::{
    intake::{Intake, SeedError},
    journal::{
        DraftOutcome, Journal,
        seed::{CrawlPartOutcome, CrawlProgress},
    },
    model::{CrawledObject, SourceName, Timestamp},
    web::{Body, Path, Problem, ProblemCode, problems},
};

/// Maximum number of objects in a part of a crawl.
const MAX_OBJECTS: usize = 1000;

/// Maximum length of the position of a crawl, in bytes.
const MAX_POSITION: usize = 64 * 1024;

/// State of the seeding surfaces.
#[derive(Clone)]
pub struct RegistrySeeder {
    journal: Journal,
    intake: Intake,
    sources: Sources,
    /// Lock that serializes parts, so that each is compared with the current progress of the crawl.
    lock: Arc<Mutex<()>>,
}

impl RegistrySeeder {
    /// Creates the state for these sources.
    #[must_use]
    pub fn new(journal: Journal, intake: Intake, sources: Sources) -> Self {
        Self { journal, intake, sources, lock: Arc::default() }
    }

    fn source(&self, name: &SourceName) -> Result<ConfiguredSource, Problem> {
        self.sources.get(name).ok_or_else(|| {
            let names: Vec<_> = self.sources.all().into_keys().collect();
            let detail = format!("There is no source {name}; the sources are {}.", names.join(", "));
            Problem::new(ProblemCode::NotFound, detail)
        })
    }

    async fn crawl(&self, name: &SourceName) -> Result<Option<CrawlProgress>, Problem> {
        self.journal.crawl_progress(name.clone()).await.map_err(journal_problem)
    }
}

/// Part of the results of a crawl.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CrawlPart)]
struct CrawlPart {
    /// Identifier of the crawl. A new identifier starts a new crawl.
    #[schema(value_type = String, format = "uuid")]
    walk: Uuid,
    /// Number of the part, from 1 and without gaps.
    #[schema(minimum = 1)]
    part: u64,
    /// Objects that were found, at most 1000.
    #[schema(max_items = 1000)]
    objects: Vec<CrawledObject>,
    /// Position at which the crawl continues after this part, an opaque text.
    #[schema(max_length = 65536)]
    place: String,
    /// `true` if the crawl is complete.
    #[serde(default)]
    done: bool,
    /// `true` emits changes for objects that are new to the registry; `false` adds them without notification.
    #[serde(default)]
    emit: bool,
}

/// DraftOutcome of a part of a crawl.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = CrawlPartResult)]
struct PartResult {
    /// Number of objects that were added or completed in the registry without a change.
    filled: usize,
    /// Number of new changes.
    accepted: usize,
    /// Number of objects whose change was a duplicate.
    duplicate: usize,
    /// Number of objects that the registry already had completely.
    unchanged: usize,
}

/// Progress of the newest crawl of a source's repository.
#[derive(Serialize, ToSchema)]
#[schema(as = CrawlProgress)]
struct ProgressView<'a> {
    /// Name of the source.
    source: &'a SourceName,
    /// The crawl; `null` if there has been none.
    #[schema(required = true)]
    walk: Option<CrawlView>,
}

/// A crawl of a repository.
#[derive(Serialize, ToSchema)]
#[schema(as = Crawl)]
struct CrawlView {
    /// Identifier of the crawl.
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    /// Number of parts received.
    part: u64,
    /// Position at which the crawl continues.
    place: String,
    /// Number of objects found.
    objects: u64,
    /// Time of the start.
    began: Timestamp,
    /// Time of the newest part.
    moved: Timestamp,
    /// `true` if the crawl is complete.
    done: bool,
}

problems!(ShowProblems: NotFound, Unavailable);
problems!(SeedProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, UnprocessableMessage, Unavailable);

/// The progress of the newest crawl of the source's repository.
///
/// # Errors
/// `not-found`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/sources/{name}/registry",
    operation_id = "getWalk",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    responses((status = 200, description = "The progress of the crawl.", body = ProgressView), ShowProblems),
)]
pub async fn show(State(seeder): State<RegistrySeeder>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    seeder.source(&name)?;
    let walk = seeder.crawl(&name).await?.map(CrawlView::from);
    Ok(Json(ProgressView { source: &name, walk }).into_response())
}

/// Adds a part of the results of a crawl to the registry. When the response is sent, the part and its position are on
/// disk. A repeated part is acknowledged and has no effect.
///
/// # Errors
/// `not-found`; `bad-request` if the body is no JSON; `unprocessable-message` if the part is too large; `conflict` if
/// the part does not follow the previous one, for example because of a concurrent crawl; `unavailable` if the journal
/// fails.
#[utoipa::path(
    post,
    path = "/sources/{name}/registry",
    operation_id = "seedRegistry",
    tag = "administration",
    params(("name" = SourceName, Path, description = "Name of the source.")),
    request_body(content = CrawlPart, description = "The part."),
    responses((status = 200, description = "The part is on disk.", body = PartResult), SeedProblems),
)]
pub async fn seed(
    State(seeder): State<RegistrySeeder>,
    Path(name): Path<SourceName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let listed = seeder.source(&name)?;
    let part = seeder.intake.parse(body.len(), || serde_json::from_slice::<CrawlPart>(&body)).await;
    let part = part.map_err(|error| {
        Problem::new(ProblemCode::BadRequest, format!("The body is not a part of a crawl: {error}."))
    })?;
    part.check_limits()?;
    let _lock = seeder.lock.lock().await;
    let newest = seeder.crawl(&name).await?;
    let Some(walk) = part.next_state(&name, newest.as_ref())? else {
        return Ok(Json(PartResult { unchanged: part.objects.len(), ..PartResult::default() }).into_response());
    };
    let objects = part.objects.len();
    let seeded = seeder.intake.seed(&listed.source, part.objects, part.emit, walk).await.map_err(seed_problem)?;
    Ok(Json(PartResult::of(&seeded, objects)).into_response())
}

fn seed_problem(error: SeedError) -> Problem {
    match error {
        SeedError::TooLarge(rejection) => {
            let detail = format!("The part was rejected completely: {}.", rejection.reason);
            Problem::new(ProblemCode::UnprocessableMessage, detail)
        }
        SeedError::Journal(error) => journal_problem(error),
    }
}

impl CrawlPart {
    fn check_limits(&self) -> Result<(), Problem> {
        let too_large = |detail| Err(Problem::new(ProblemCode::UnprocessableMessage, detail));
        if self.objects.len() > MAX_OBJECTS {
            let count = self.objects.len();
            return too_large(format!("The part has {count} objects; the limit is {MAX_OBJECTS}. Send fewer."));
        }
        if self.place.len() > MAX_POSITION {
            return too_large(format!("The place has more than {MAX_POSITION} bytes. Send a shorter one."));
        }
        Ok(())
    }

    /// Returns the state of the crawl after this part; `None` if the part is a repetition.
    fn next_state(
        &self,
        source: &SourceName,
        newest: Option<&CrawlProgress>,
    ) -> Result<Option<CrawlProgress>, Problem> {
        let now = Timestamp::now();
        let same = newest.filter(|newest| newest.id == self.walk);
        let parts = same.map_or(0, |crawl| crawl.parts);
        if same.is_some() && self.part == parts {
            return Ok(None);
        }
        if Some(self.part) != parts.checked_add(1) {
            let detail = format!(
                "Part {} of the crawl does not follow part {parts}, the newest one. Check that no other command crawls the \
                 same repository, or start a new crawl.",
                self.part
            );
            return Err(Problem::new(ProblemCode::Conflict, detail));
        }
        Ok(Some(CrawlProgress {
            source: source.clone(),
            id: self.walk,
            parts: self.part,
            position: self.place.as_str().into(),
            objects: same.map_or(0, |crawl| crawl.objects) + self.objects.len() as u64,
            started: same.map_or(now, |crawl| crawl.started),
            updated: now,
            finished: self.done,
        }))
    }
}

impl PartResult {
    fn of(CrawlPartOutcome { updated_objects: filled, outcomes, .. }: &CrawlPartOutcome, objects: usize) -> Self {
        let count = |is: fn(&DraftOutcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
        let accepted = count(|outcome| matches!(outcome, DraftOutcome::Accepted { .. }));
        let duplicate = count(|outcome| matches!(outcome, DraftOutcome::Duplicate { .. }));
        Self { filled: *filled, accepted, duplicate, unchanged: objects.saturating_sub(filled + accepted + duplicate) }
    }
}

impl From<CrawlProgress> for CrawlView {
    fn from(progress: CrawlProgress) -> Self {
        let CrawlProgress {
            id, parts: part, position, objects, started: began, updated: moved, finished: done, ..
        } = progress;
        Self { id, part, place: position.to_string(), objects, began, moved, done }
    }
}
