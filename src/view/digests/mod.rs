//! `GET` and `POST /registry/digests`: digests of the objects that a subscriber should have, in ranges of URIs. With them a
//! mirror finds in a few requests what differs. `docs/compare.md` describes the algorithm for other programs.

mod ranges;
mod selection;
mod selections;
mod wire;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{extract::State, response::Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use self::{
    ranges::{Piece, Progress, read_range},
    selection::{Digests, Selection},
    selections::Selections,
    wire::{DigestsQuery, DigestsView, ObjectView, PartView, RangeBody, RangeView, RangesBody},
};
use super::{
    json_response,
    parameters::{permitted, sorted_unique},
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

/// Number of requests that read the registry at a time.
const READERS: usize = 2;

/// Maximum time that a request reads the registry, before it reports its progress. The later reads, for the parts of its ranges,
/// have a bound in number.
const PATIENCE: Duration = Duration::from_secs(10);

/// Wait that a request is advised to, if there is no room for its selection.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// State of the digests: the journal, and the ranges of the last selections.
#[derive(Clone)]
pub struct RegistryDigests {
    journal: Journal,
    spool: Spool,
    selections: Arc<Mutex<Selections>>,
    /// Permits to read the registry.
    reading: Arc<Semaphore>,
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
/// first time, for this filter or for four others, or if the journal cannot be read; `damaged-object`.
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
        // Only readers of digests wait for those who read the registry. The semaphore is never closed.
        let reading = self.reading.acquire().await;
        let view = self.view(ranges, parts, facts, &selection).await.map_err(|failed| match failed {
            Failed::Passing(objects) => passing(objects),
            Failed::Following => following(),
            Failed::NoPlace => no_place(),
            Failed::Journal(error) => selection.problem(error),
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
        let shared = self.selections().get(selection, &self.journal, Instant::now()).ok_or(Failed::NoPlace)?;
        let (head, seeds, pieces) = {
            let mut locked = shared.lock().await;
            let progress = locked.advance(&self.journal, Instant::now() + PATIENCE).await;
            // A pass that has failed gives its place up.
            self.selections().note(&shared, !matches!(progress, Ok(Progress::Passing(_))), Instant::now());
            match progress? {
                Progress::Complete => {}
                Progress::Passing(objects) => return Err(Failed::Passing(objects)),
                Progress::Following => return Err(Failed::Following),
            }
            let pieces = |range: &RangeBody| locked.pieces(range.after.as_ref(), range.through.as_ref());
            (locked.head, locked.seeds, ranges.iter().map(pieces).collect::<Vec<_>>())
        };
        let mut views = Vec::with_capacity(ranges.len());
        for (range, pieces) in ranges.into_iter().zip(pieces) {
            views.push(self.divide(range, pieces, parts, facts, selection).await?);
        }
        Ok(DigestsView { journal: self.journal.identity(), head, seeds, ranges: views })
    }

    fn selections(&self) -> MutexGuard<'_, Selections> {
        self.selections.lock().unwrap_or_else(PoisonError::into_inner)
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
        let units = match self.units(pieces, selection).await? {
            Units::Objects(objects) if objects.len() as u64 <= LISTED_OBJECTS => {
                let listed = objects.into_iter().map(|(uri, digests)| ObjectView {
                    uri,
                    items: digests.items,
                    digest: facts.of(&digests),
                });
                return Ok(RangeView { after, through, parts: None, objects: Some(listed.collect()) });
            }
            Units::Objects(units) | Units::Pieces(units) => units,
        };
        let parts = grouped(units, parts, through.as_ref(), facts);
        Ok(RangeView { after, through, parts: Some(parts), objects: None })
    }

    /// Returns what the parts of a range are made of. A range in which only one piece has objects has these, so that each
    /// part has fewer objects than its range.
    async fn units(&self, pieces: Vec<Piece>, selection: &Selection) -> Result<Units, JournalError> {
        let read = async |piece: &Piece| read_range(&self.journal, selection, piece.after.clone(), &piece.last).await;
        let mut units = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let objects = if piece.digests.is_none() { read(&piece).await? } else { Vec::new() };
            if piece.digests.is_some() || !objects.is_empty() {
                units.push((piece, objects));
            }
        }
        if units.len() > 1 {
            return Ok(Units::Pieces(units.into_iter().map(unit).collect()));
        }
        Ok(Units::Objects(match units.pop() {
            Some((piece, _)) if piece.digests.is_some() => read(&piece).await?,
            Some((_, objects)) => objects,
            None => Vec::new(),
        }))
    }
}

/// Parts of a range, each with its last object.
enum Units {
    Objects(Vec<(Uri, Digests)>),
    Pieces(Vec<(Uri, Digests)>),
}

/// Returns a piece with its digests, which are those of the objects if they were read.
fn unit((Piece { last, digests, .. }, objects): (Piece, Vec<(Uri, Digests)>)) -> (Uri, Digests) {
    let last = objects.last().map_or(last, |(last, _)| last.clone());
    let sum = || {
        let mut sum = Digests::default();
        objects.iter().for_each(|(_, digests)| sum.add(*digests));
        sum
    };
    (last, digests.unwrap_or_else(sum))
}

/// Groups neighbours into at most so many parts, and several into at least two. The last part ends where the range does.
fn grouped(units: Vec<(Uri, Digests)>, parts: usize, through: Option<&Uri>, facts: Facts) -> Vec<PartView> {
    let total: u64 = units.iter().map(|(_, digests)| digests.objects).sum();
    let share = total.div_ceil(parts as u64).max(1);
    let mut views = Vec::new();
    let mut current = Digests::default();
    let count = units.len();
    for (at, (end, digests)) in units.into_iter().enumerate() {
        current.add(digests);
        let is_last = at + 1 == count;
        // A part that is the whole range would be asked for again and again.
        let is_all_but_last = at + 2 == count && views.is_empty();
        if is_last || is_all_but_last || (current.objects >= share && views.len() + 1 < parts) {
            let digests = std::mem::take(&mut current);
            let through = if is_last { through.cloned() } else { Some(end) };
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
    /// The latest changes are being read.
    Following,
    /// There is no place for a further selection.
    NoPlace,
    Journal(JournalError),
}

impl From<JournalError> for Failed {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

fn passing(objects: u64) -> Problem {
    let detail = format!(
        "The registry is being read for these digests for the first time: {objects} objects of them so far. Send the request again; \
         it continues there."
    );
    Problem::new(ProblemCode::Unavailable, detail).with("objects", objects).retry_after(Duration::from_secs(1))
}

fn following() -> Problem {
    let detail = "The objects of the latest changes are being read for these digests. Send the request again; it continues there.";
    Problem::new(ProblemCode::Unavailable, detail).retry_after(Duration::from_secs(1))
}

fn no_place() -> Problem {
    let detail = "The registry is being read for the digests of other filters, and there is no place for a further one. Send \
                  the request again later.";
    Problem::new(ProblemCode::Unavailable, detail).retry_after(BUSY_WAIT)
}

#[cfg(test)]
mod tests {
    use super::{Digests, Facts, Uri, grouped};

    #[test]
    fn each_part_has_fewer_objects_than_its_range() {
        for (counts, parts, expected) in [
            (&[1, 64][..], 16, &[1, 64][..]),
            (&[64, 1], 16, &[64, 1]),
            (&[1, 1, 64], 2, &[2, 64]),
            (&[8, 8, 8, 8], 2, &[16, 16]),
            (&[9], 2, &[9]),
        ] {
            let unit = |(at, objects): (usize, &u64)| {
                let end = Uri::parse(&format!("urn:x:{at}")).unwrap();
                (end, Digests { objects: *objects, ..Digests::default() })
            };
            let views = grouped(counts.iter().enumerate().map(unit).collect(), parts, None, Facts::All);
            assert_eq!(views.iter().map(|view| view.objects).collect::<Vec<_>>(), expected, "{counts:?}");
            assert!(views.last().unwrap().through.is_none());
        }
    }
}
