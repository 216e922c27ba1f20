//! `GET` and `POST /registry/digests`: digests of the objects that a subscriber should have, in ranges of URIs. With them a
//! mirror finds in a few requests what differs. `docs/compare.md` describes the algorithm for other programs.

mod ranges;
mod selection;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{extract::State, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use self::{
    ranges::{Piece, Progress, Ranges, read_range},
    selection::{Digests, Selection, SelectionFilter},
};
use super::{
    json_response,
    parameters::{permitted, sorted_unique},
    registry_view::RegistryView,
};
use crate::{
    journal::{Journal, JournalError},
    model::{DigestSum, Filter, Seq, Uri, UriPrefix},
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

/// Maximum time that a request reads the registry, before it says how far it has come.
const PATIENCE: Duration = Duration::from_secs(10);

/// State of the digests: the journal, and the ranges of the last selections.
#[derive(Clone)]
pub struct RegistryDigests {
    journal: Journal,
    spool: Spool,
    selections: Arc<Mutex<Vec<SharedRanges>>>,
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

/// The query of `GET /registry/digests`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DigestsQuery {
    /// URI after which the range begins. Default: the beginning.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    after: Option<String>,
    /// Last URI of the range. Default: no end.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    through: Option<String>,
    /// Maximum number of parts into which the range is divided, 2 to 256.
    #[serde(default)]
    #[param(value_type = u64, required = false, minimum = 2, maximum = 256)]
    parts: Option<usize>,
    /// Facts that the digests contain. Default: all.
    #[serde(default)]
    #[param(inline, required = false)]
    facts: Facts,
    /// The URI of the object begins with one of these.
    #[serde(default)]
    #[param(max_items = 50)]
    object: Vec<UriPrefix>,
    /// The object belongs to one of these.
    #[serde(default)]
    #[param(max_items = 50)]
    parent: Vec<Uri>,
    /// The object has one of these types.
    #[serde(default, rename = "type")]
    #[param(max_items = 50)]
    types: Vec<Uri>,
    /// `true`: what the public sees, without states.
    #[serde(default)]
    #[param(value_type = bool, required = false)]
    visibility: Option<bool>,
}

/// Ranges to compare.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DigestRanges)]
struct RangesBody {
    /// The ranges, at most 256.
    ranges: Vec<RangeBody>,
    /// Maximum number of parts of each range, 2 to 256. Default: 16.
    #[serde(default)]
    #[schema(required = false)]
    parts: Option<usize>,
    /// Facts that the digests contain. Default: all.
    #[serde(default)]
    #[schema(required = false)]
    facts: Facts,
    /// Conditions `objects`, `parents`, `types` and `visibility` of the subscriber.
    #[serde(default)]
    #[schema(required = false)]
    filter: Filter,
}

/// A range of objects.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DigestRange)]
struct RangeBody {
    /// URI after which it begins. Default: the beginning.
    #[serde(default)]
    #[schema(required = false)]
    after: Option<Uri>,
    /// Last URI. Default: no end.
    #[serde(default)]
    #[schema(required = false)]
    through: Option<Uri>,
}

/// Digests of the ranges that were asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = Digests)]
struct DigestsView {
    /// Identity of the journal.
    #[schema(value_type = String)]
    journal: Uuid,
    /// Number of the newest change that the digests contain. Listed objects can contain later ones.
    head: Seq,
    /// Number of additions by crawls that the digests contain.
    seeds: u64,
    /// The ranges, in the order of the request.
    ranges: Vec<RangeView>,
}

/// A range: its parts or, if it has at most 8 objects, the objects.
#[derive(Serialize, ToSchema)]
#[schema(as = DividedRange)]
struct RangeView {
    /// URI after which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    after: Option<Uri>,
    /// Last URI; absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    through: Option<Uri>,
    /// Parts, in the order of their URIs. Each begins after the end of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    parts: Option<Vec<PartView>>,
    /// The objects, in the order of their URIs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    objects: Option<Vec<ObjectView>>,
}

/// Part of a range.
#[derive(Serialize, ToSchema)]
#[schema(as = DigestPart)]
struct PartView {
    /// Last URI; absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    through: Option<Uri>,
    /// Number of objects.
    objects: u64,
    /// Number of items.
    items: u64,
    /// Sum of the digests of the items.
    #[schema(value_type = String)]
    digest: DigestSum,
}

/// An object.
#[derive(Serialize, ToSchema)]
#[schema(as = ObjectDigest)]
struct ObjectView {
    /// URI.
    uri: Uri,
    /// Number of items.
    items: u64,
    /// Sum of the digests of the items.
    #[schema(value_type = String)]
    digest: DigestSum,
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
        Self { journal, spool, selections: Arc::default() }
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
        let selection = Selection::new(filter, permit)?;
        let sight = RegistryView::of(permit)?;
        let page_permit = self.spool.page_permit().await;
        let view = self.view(ranges, parts, facts, &selection).await.map_err(|failed| match failed {
            Failed::Passing(objects) => passing(objects),
            Failed::Journal(error) => sight.problem(error),
        })?;
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
    Problem::new(ProblemCode::Unavailable, detail).with("objects", objects)
}
