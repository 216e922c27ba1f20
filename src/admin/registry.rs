//! `POST /sources/{name}/registry` fills the registry with what a walk through the source's repository found, a part at
//! a time; `GET` of the same says how far the walk is. `tidings seed-registry` is who walks.

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
    failed,
    sources::{Listed, Sources},
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

/// How many objects a part of a walk has at the most.
const MOST_OBJECTS: usize = 1000;

/// How long the place of a walk may be, in bytes.
const LONGEST_PLACE: usize = 64 * 1024;

/// What fills the registry.
#[derive(Clone)]
pub struct Seeds {
    journal: Journal,
    intake: Intake,
    sources: Sources,
    /// One part is taken at a time, so that each is compared with how far the walk is.
    turn: Arc<Mutex<()>>,
}

impl Seeds {
    /// Through that door, for those sources.
    #[must_use]
    pub fn new(journal: Journal, intake: Intake, sources: Sources) -> Self {
        Self { journal, intake, sources, turn: Arc::default() }
    }

    fn source(&self, name: &SourceName) -> Result<&Listed, Problem> {
        self.sources.get(name.as_str()).ok_or_else(|| {
            let known: Vec<_> = self.sources.keys().map(String::as_str).collect();
            let detail = format!("There is no source {name}; there are {}.", known.join(", "));
            Problem::new(ProblemCode::NotFound, detail)
        })
    }

    async fn walk(&self, name: &SourceName) -> Result<Option<CrawlProgress>, Problem> {
        self.journal.crawl_progress(name.clone()).await.map_err(failed)
    }
}

/// A part of a walk through a repository.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WalkPart)]
struct Part {
    /// Tells the walk from every other one. Another one than before begins anew.
    #[schema(value_type = String, format = "uuid")]
    walk: Uuid,
    /// Which part of the walk it is, from 1 and without gaps.
    #[schema(minimum = 1)]
    part: u64,
    /// What was found, 1000 objects at the most.
    #[schema(max_items = 1000)]
    objects: Vec<CrawledObject>,
    /// Where the walk goes on after it. It is given back as it is.
    #[schema(max_length = 65536)]
    place: String,
    /// Whether the walk has come to its end.
    #[serde(default)]
    done: bool,
    /// Whether what the registry does not know is told as changes. Otherwise it is told to nobody.
    #[serde(default)]
    emit: bool,
}

/// What became of a part of a walk.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = WalkPartTaken)]
struct Taken {
    /// Of how many objects the registry learnt something, without a change.
    filled: usize,
    /// How many changes are new.
    accepted: usize,
    /// How many objects had been told in just this way before.
    duplicate: usize,
    /// Of how many objects the registry knew all of it.
    unchanged: usize,
}

/// How far the newest walk through a source's repository is.
#[derive(Serialize, ToSchema)]
#[schema(as = WalkView)]
struct WalkView<'a> {
    /// The source.
    source: &'a SourceName,
    /// `null` when there has been none.
    #[schema(required = true)]
    walk: Option<WalkShown>,
}

/// A walk through a repository.
#[derive(Serialize, ToSchema)]
#[schema(as = Walk)]
struct WalkShown {
    /// Tells it from every other one.
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    /// How many parts of it are here.
    part: u64,
    /// Where it goes on.
    place: String,
    /// How many objects it has found.
    objects: u64,
    /// When it began.
    began: Timestamp,
    /// When its newest part came.
    moved: Timestamp,
    /// Whether it has come to its end.
    done: bool,
}

problems!(ShowProblems: NotFound, Unavailable);
problems!(TakeProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Conflict, UnprocessableMessage, Unavailable);

/// How far the newest walk through the source's repository is.
///
/// # Errors
/// `not-found`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/sources/{name}/registry",
    operation_id = "getWalk",
    tag = "administration",
    params(("name" = SourceName, Path, description = "The source's name.")),
    responses((status = 200, description = "How far it is.", body = WalkView), ShowProblems),
)]
pub async fn show(State(seeds): State<Seeds>, Path(name): Path<SourceName>) -> Result<Response, Problem> {
    seeds.source(&name)?;
    let walk = seeds.walk(&name).await?.map(WalkShown::from);
    Ok(Json(WalkView { source: &name, walk }).into_response())
}

/// Fills the registry with a part of what a walk through the source's repository found. It is on disk with its place
/// when the answer comes. A part that is here already is answered again and moves nothing.
///
/// # Errors
/// `not-found`; `bad-request` when the body is no JSON; `unprocessable-message` when it is too much; `conflict` when the
/// part does not follow the one before, as when two walk at once; `unavailable` when the journal fails.
#[utoipa::path(
    post,
    path = "/sources/{name}/registry",
    operation_id = "seedRegistry",
    tag = "administration",
    params(("name" = SourceName, Path, description = "The source's name.")),
    request_body(content = Part, description = "The part."),
    responses((status = 200, description = "It is on disk.", body = Taken), TakeProblems),
)]
pub async fn take(
    State(seeds): State<Seeds>,
    Path(name): Path<SourceName>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let listed = seeds.source(&name)?;
    let part: Part = serde_json::from_slice(&body)
        .map_err(|error| Problem::new(ProblemCode::BadRequest, format!("The body is no part of a walk: {error}.")))?;
    part.bounded()?;
    let _turn = seeds.turn.lock().await;
    let held = seeds.walk(&name).await?;
    let Some(walk) = part.follows(&name, held.as_ref())? else {
        return Ok(Json(Taken { unchanged: part.objects.len(), ..Taken::default() }).into_response());
    };
    let objects = part.objects.len();
    let seeded = seeds.intake.seed(&listed.source, part.objects, part.emit, walk).await.map_err(refused)?;
    Ok(Json(Taken::of(&seeded, objects)).into_response())
}

fn refused(error: SeedError) -> Problem {
    match error {
        SeedError::TooLarge(rejection) => {
            let detail = format!("Nothing of the part was written: {}.", rejection.reason);
            Problem::new(ProblemCode::UnprocessableMessage, detail)
        }
        SeedError::Journal(error) => failed(error),
    }
}

impl Part {
    fn bounded(&self) -> Result<(), Problem> {
        let refused = |detail| Err(Problem::new(ProblemCode::UnprocessableMessage, detail));
        if self.objects.len() > MOST_OBJECTS {
            let found = self.objects.len();
            return refused(format!("The part has {found} objects; {MOST_OBJECTS} are taken at once. Send fewer."));
        }
        if self.place.len() > LONGEST_PLACE {
            return refused(format!("The place has more than {LONGEST_PLACE} bytes. Send a shorter one."));
        }
        Ok(())
    }

    /// How far the walk is with this part; `None` if the part is here already.
    fn follows(&self, source: &SourceName, held: Option<&CrawlProgress>) -> Result<Option<CrawlProgress>, Problem> {
        let now = Timestamp::now();
        let same = held.filter(|held| held.id == self.walk);
        let parts = same.map_or(0, |held| held.parts);
        if same.is_some() && self.part == parts {
            return Ok(None);
        }
        if Some(self.part) != parts.checked_add(1) {
            let detail = format!(
                "Part {} of the walk does not follow: {parts} are here. Does another command walk through the same \
                 repository? Let one go on alone, or begin anew.",
                self.part
            );
            return Err(Problem::new(ProblemCode::Conflict, detail));
        }
        Ok(Some(CrawlProgress {
            source: source.clone(),
            id: self.walk,
            parts: self.part,
            position: self.place.as_str().into(),
            objects: same.map_or(0, |held| held.objects) + self.objects.len() as u64,
            started: same.map_or(now, |held| held.started),
            updated: now,
            finished: self.done,
        }))
    }
}

impl Taken {
    fn of(CrawlPartOutcome { updated_objects: filled, outcomes, .. }: &CrawlPartOutcome, objects: usize) -> Self {
        let count = |is: fn(&DraftOutcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
        let accepted = count(|outcome| matches!(outcome, DraftOutcome::Accepted { .. }));
        let duplicate = count(|outcome| matches!(outcome, DraftOutcome::Duplicate { .. }));
        Self { filled: *filled, accepted, duplicate, unchanged: objects.saturating_sub(filled + accepted + duplicate) }
    }
}

impl From<CrawlProgress> for WalkShown {
    fn from(progress: CrawlProgress) -> Self {
        let CrawlProgress {
            id, parts: part, position, objects, started: began, updated: moved, finished: done, ..
        } = progress;
        Self { id, part, place: position.to_string(), objects, began, moved, done }
    }
}
