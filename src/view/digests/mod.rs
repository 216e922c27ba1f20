//! `GET` and `POST /registry/digests`: digests of the objects that a subscriber should have, in ranges of URIs. With them a
//! mirror finds in a few requests what differs. `docs/compare.md` describes the algorithm for other programs.

mod ranges;
mod selection;
mod wire;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{extract::State, response::Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use self::{
    ranges::{Piece, Progress, Ranges, read_range},
    selection::{Digests, Selection, SelectionFilter},
    wire::{DigestsQuery, DigestsView, ObjectView, PartView, RangeBody, RangeView, RangesBody},
};
use super::{
    json_response,
    parameters::{permitted, sorted_unique},
    registry_view::RegistryView,
};
use crate::{
    journal::{Journal, JournalError},
    model::{DigestSum, Filter, Uri},
    web::{Body, Problem, ProblemCode, Query, ReadPermit, Spool, problems},
};

/// Path of the digests.
pub const PATH: &str = "/registry/digests";

/// Number of parts of a range, if the request does not say it, and at most.
const PARTS: usize = 16;
const MAX_PARTS: usize = 256;

/// Maximum number of ranges of a request.
const MAX_RANGES: usize = 256;

/// Number of objects of a range, up to which they are listed.
const LISTED_OBJECTS: u64 = 8;

/// Number of selections whose ranges stay in memory.
const SELECTIONS: usize = 4;

/// Number of requests that read the registry at a time.
const READERS: usize = 2;

/// Maximum time that a request reads the registry, before it says how far it has come.
const PATIENCE: Duration = Duration::from_secs(10);

/// State of the digests: the journal, and the ranges of the last selections.
#[derive(Clone)]
pub struct RegistryDigests {
    journal: Journal,
    spool: Spool,
    selections: Arc<Mutex<Vec<SharedRanges>>>,
    /// Permits to read the registry.
    reading: Arc<Semaphore>,
}

/// Ranges that all requests with the same filter share. One request at a time brings them up to date.
#[derive(Clone)]
struct SharedRanges {
    filter: Arc<SelectionFilter>,
    ranges: Arc<tokio::sync::Mutex<Ranges>>,
}

/// Facts that a digest contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Facts {
    /// Which items the objects have, with state and content.
    #[default]
    All,
    /// Which items the objects have.
    Existence,
}

problems!(Problems: InvalidQuery, Forbidden, Unavailable, DamagedObject);
problems!(PostProblems: BadRequest, BodyTooLarge, UnsupportedEncoding, InvalidQuery, Forbidden, Unavailable, DamagedObject);

/// Digests of one range of the objects that a subscriber of the filter should have. Without `after` and `through`, the range
/// has all objects.
///
/// # Errors
/// `invalid-query`; `forbidden` if the reader may see only some sources; `unavailable` while the registry is read for the
/// first time, or if the journal cannot be read; `damaged-object`.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "getDigests",
    tag = "out",
    params(DigestsQuery),
    responses((status = 200, description = "The range with its parts or objects.", body = DigestsView), Problems),
)]
pub async fn get(
    State(digests): State<RegistryDigests>,
    permit: ReadPermit,
    Query(query): Query<DigestsQuery>,
) -> Result<Response, Problem> {
    let uri = |name: &str, text: Option<String>| {
        let parsed = text.as_deref().map(Uri::parse).transpose();
        parsed.map_err(|error| {
            Problem::new(ProblemCode::InvalidQuery, format!("{name}: {error}.")).with("parameter", name)
        })
    };
    let range = RangeBody { after: uri("after", query.after)?, through: uri("through", query.through)? };
    let filter = Filter {
        objects: sorted_unique("object", query.object)?,
        parents: sorted_unique("parent", query.parent)?,
        types: sorted_unique("type", query.types)?,
        visibility: query.visibility.unwrap_or(false),
        ..Filter::default()
    };
    let filter = permitted(filter, query.visibility, &permit)?;
    digests.respond(vec![range], query.parts, query.facts, filter, &permit).await
}

/// Digests of several ranges of the objects that a subscriber of the filter should have.
///
/// # Errors
/// `bad-request`; otherwise those of `GET /registry/digests`.
#[utoipa::path(
    post,
    path = PATH,
    operation_id = "compareDigests",
    tag = "out",
    request_body(content = RangesBody, description = "The ranges."),
    responses((status = 200, description = "The ranges with their parts or objects.", body = DigestsView), PostProblems),
)]
pub async fn post(
    State(digests): State<RegistryDigests>,
    permit: ReadPermit,
    Body(body): Body,
) -> Result<Response, Problem> {
    let RangesBody { ranges, parts, facts, mut filter } = super::parameters::json_body(&body)?;
    if ranges.len() > MAX_RANGES {
        let detail = format!("There are {} ranges; give at most {MAX_RANGES} in one request.", ranges.len());
        return Err(Problem::new(ProblemCode::BadRequest, detail));
    }
    filter.objects = sorted_unique("objects", filter.objects)?;
    filter.parents = sorted_unique("parents", filter.parents)?;
    filter.types = sorted_unique("types", filter.types)?;
    let visibility = Some(filter.visibility).filter(|visibility| *visibility);
    let filter = permitted(filter, visibility, &permit)?;
    digests.respond(ranges, parts, facts, filter, &permit).await
}

impl RegistryDigests {
    /// Creates the state.
    #[must_use]
    pub fn new(journal: Journal, spool: Spool) -> Self {
        Self { journal, spool, selections: Arc::default(), reading: Arc::new(Semaphore::new(READERS)) }
    }

    async fn respond(
        &self,
        ranges: Vec<RangeBody>,
        parts: Option<usize>,
        facts: Facts,
        filter: Filter,
        permit: &ReadPermit,
    ) -> Result<Response, Problem> {
        let parts = parts.unwrap_or(PARTS);
        if !(2..=MAX_PARTS).contains(&parts) {
            let detail = format!("parts is {parts}; give 2 to {MAX_PARTS}.");
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "parts"));
        }
        if !are_in_order(&ranges) {
            let detail = "The ranges overlap or are not in the order of their URIs. Each must begin at the end of the one \
                          before or later.";
            return Err(Problem::new(ProblemCode::BadRequest, detail));
        }
        let selection = Selection::new(filter, permit)?;
        let sight = RegistryView::of(permit)?;
        // Only readers of digests wait for those who read the registry. The semaphore is never closed.
        let reading = self.reading.acquire().await;
        let view = self.view(ranges, parts, facts, &selection).await.map_err(|failed| match failed {
            Failed::Passing(objects) => passing(objects),
            Failed::Journal(error) => sight.problem(error),
        })?;
        drop(reading);
        let page_permit = self.spool.page_permit().await;
        let spool = self.spool.clone();
        Spool::blocking(page_permit, move || json_response(&spool, &view)).await
    }

    async fn view(
        &self,
        ranges: Vec<RangeBody>,
        parts: usize,
        facts: Facts,
        selection: &Selection,
    ) -> Result<DigestsView, Failed> {
        let shared = self.shared(selection);
        let (head, seeds, pieces) = {
            let mut shared = shared.ranges.lock().await;
            if let Progress::Passing(objects) = shared.advance(&self.journal, Instant::now() + PATIENCE).await? {
                return Err(Failed::Passing(objects));
            }
            let pieces = |range: &RangeBody| shared.pieces(range.after.as_ref(), range.through.as_ref());
            (shared.head, shared.seeds, ranges.iter().map(pieces).collect::<Vec<_>>())
        };
        let mut views = Vec::with_capacity(ranges.len());
        for (range, pieces) in ranges.into_iter().zip(pieces) {
            views.push(self.divide(range, pieces, parts, facts, selection).await?);
        }
        Ok(DigestsView { journal: self.journal.identity(), head, seeds, ranges: views })
    }

    /// Returns the ranges of a selection, which may have no objects yet.
    fn shared(&self, selection: &Selection) -> SharedRanges {
        let mut selections = self.selections.lock().unwrap_or_else(PoisonError::into_inner);
        let known = selections.iter().position(|shared| shared.filter == *selection.filter());
        let shared = match known {
            Some(at) => selections.remove(at),
            None => SharedRanges {
                filter: Arc::clone(selection.filter()),
                ranges: Arc::new(tokio::sync::Mutex::new(Ranges::new(selection.clone(), &self.journal))),
            },
        };
        // The one that was used longest ago is first.
        if selections.len() >= SELECTIONS {
            selections.remove(0);
        }
        selections.push(shared.clone());
        shared
    }

    /// Divides a range into parts of about the same number of objects, or lists its objects.
    async fn divide(
        &self,
        range: RangeBody,
        pieces: Vec<Piece>,
        parts: usize,
        facts: Facts,
        selection: &Selection,
    ) -> Result<RangeView, Failed> {
        let RangeBody { after, through } = range;
        let mut units = Vec::new();
        if pieces.len() > 1 {
            for piece in pieces {
                units.push(match piece {
                    Piece::Whole(range) => (range.through, range.digests),
                    Piece::Part { after, through } => {
                        let objects = read_range(&self.journal, selection, after, through.as_ref()).await?;
                        let mut digests = Digests::default();
                        objects.into_iter().for_each(|(_, one)| digests.add(one.unwrap_or_default()));
                        (through, digests)
                    }
                });
            }
        } else {
            let objects = read_range(&self.journal, selection, after.clone(), through.as_ref()).await?;
            if objects.len() as u64 <= LISTED_OBJECTS {
                let listed = objects.into_iter().map(|(uri, digests)| {
                    let digests = digests.unwrap_or_default();
                    ObjectView { uri, items: digests.items, digest: facts.of(&digests) }
                });
                return Ok(RangeView { after, through, parts: None, objects: Some(listed.collect()) });
            }
            units.extend(objects.into_iter().map(|(uri, digests)| (Some(uri), digests.unwrap_or_default())));
        }
        let parts = grouped(units, parts, through.as_ref(), facts);
        Ok(RangeView { after, through, parts: Some(parts), objects: None })
    }
}

/// Groups neighbours into at most so many parts. The last part ends where the range does.
fn grouped(units: Vec<(Option<Uri>, Digests)>, parts: usize, through: Option<&Uri>, facts: Facts) -> Vec<PartView> {
    let total: u64 = units.iter().map(|(_, digests)| digests.objects).sum();
    let share = total.div_ceil(parts as u64).max(1);
    let mut views = Vec::new();
    let mut current = Digests::default();
    let count = units.len();
    for (at, (end, digests)) in units.into_iter().enumerate() {
        current.add(digests);
        let is_last = at + 1 == count;
        if is_last || (current.objects >= share && views.len() + 1 < parts) {
            let digests = std::mem::take(&mut current);
            let through = if is_last { through.cloned() } else { end };
            let (objects, items) = (digests.objects, digests.items);
            views.push(PartView { through, objects, items, digest: facts.of(&digests) });
        }
    }
    views
}

/// Returns whether ranges follow each other. So all of them together have each object at most once, however many they are.
fn are_in_order(ranges: &[RangeBody]) -> bool {
    let is_forward = |range: &RangeBody| match (&range.after, &range.through) {
        (Some(after), Some(through)) => after <= through,
        _ => true,
    };
    let follows = |pair: &[RangeBody]| match (&pair[0].through, &pair[1].after) {
        (Some(end), Some(after)) => end <= after,
        _ => false,
    };
    ranges.iter().all(is_forward) && ranges.windows(2).all(follows)
}

impl Facts {
    fn of(self, digests: &Digests) -> DigestSum {
        match self {
            Self::All => digests.all,
            Self::Existence => digests.existence,
        }
    }
}

/// Reason why there are no digests.
enum Failed {
    /// The registry is being read; so many objects so far.
    Passing(u64),
    Journal(JournalError),
}

impl From<JournalError> for Failed {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

fn passing(objects: u64) -> Problem {
    let detail = format!(
        "The registry is being read for these digests for the first time: {objects} objects so far. Send the request again; \
         it continues there."
    );
    Problem::new(ProblemCode::Unavailable, detail).with("objects", objects).retry_after(Duration::from_secs(1))
}
