//! `GET /segments`, the list of the sealed segments, and `GET /segments/{name}`, the file of one or its lines.
//!
//! The name of a file contains its digest, so the bytes at a URL never change, and every cache may keep them. Only readers
//! who may see the whole journal get segments, because a segment has everything.

mod lines;
mod published;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header::CACHE_CONTROL},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use self::published::PublishedSegments;
use super::{
    files::{FileKind, respond},
    journal_problem,
};
use crate::{
    files::FileDigest,
    journal::Journal,
    model::Seq,
    segments::{SegmentError, Segments, manifest::Manifest},
    web::{Path, Problem, ProblemCode, Query, Spool, problems},
};

/// Media type of the files (RFC 8878). It is no content encoding, because the file itself has this format.
const MEDIA_TYPE: &str = "application/zstd";

/// Ending of the names of the files.
const ENDING: &str = ".ndjson.zst";

/// Ending of the names of the lines without the compression of the file.
const LINES_ENDING: &str = ".ndjson";

/// Default and maximum number of segments in a list.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// State of the views of segments.
#[derive(Clone)]
pub struct SegmentsView {
    /// The journal.
    pub journal: Journal,
    /// Its segments; `None` if it is not sealed.
    pub segments: Option<Segments>,
    /// Space for lines that are being sent.
    pub spool: Spool,
}

/// The query of `GET /segments`.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Number of a change: only segments that end after it. Default: all.
    #[serde(default)]
    #[param(value_type = Seq, required = false)]
    after: Seq,
    /// Maximum number of segments, 1 to 1000. Default: 100. A list also ends at 4 MiB.
    #[serde(default)]
    #[param(value_type = u64, required = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Sealed segments, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct SegmentList {
    segments: Vec<ListedSegment>,
    /// Last number of the last segment of the list: the value of `after` for the next list, and at the end of the lists for
    /// `/changes`.
    #[schema(value_type = u64)]
    next: Seq,
    /// Identity of the journal.
    #[schema(value_type = String)]
    journal: Uuid,
}

/// A segment with the URL of its file.
#[derive(Serialize, ToSchema)]
struct ListedSegment {
    /// URL of the file: relative to the gateway, or in a published copy the whole URL.
    url: String,
    #[serde(flatten)]
    manifest: Manifest,
}

problems!(ListProblems: InvalidQuery, NotFound, Unavailable);

/// Sealed segments of the journal, oldest first. Each is a file with 10 000 consecutive numbers, a change on each line, as in
/// `/changes`, compressed with Zstandard.
///
/// # Errors
/// `not-found` if the gateway seals no segments; `invalid-query`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/segments",
    operation_id = "listSegments",
    tag = "out",
    params(ListQuery),
    responses((status = 200, description = "A list.", body = SegmentList), ListProblems),
)]
pub async fn list(State(view): State<SegmentsView>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        let detail = format!("limit is {limit}; give 1 to {MAX_LIMIT}.");
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
    }
    let segments = view.segments()?.list(query.after, limit).await.map_err(segment_problem)?;
    let next = segments.last().map_or(query.after, |segment| segment.last_change);
    let listed = |manifest: Manifest| ListedSegment { url: format!("/segments/{}", name(&manifest)), manifest };
    let list =
        SegmentList { segments: segments.into_iter().map(listed).collect(), next, journal: view.journal.identity() };
    let mut response = Json(list).into_response();
    // Many readers begin with the list, and a cache makes one request of theirs.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=1"));
    Ok(response)
}

problems!(FileProblems: NotFound, RangeNotSatisfiable, Unavailable);

/// The file of a segment. Supports ranges of bytes and conditional requests. Without `.zst` at the end of the name, the lines of
/// the file in an encoding that the client accepts.
///
/// # Errors
/// `not-found` if there is no such segment (any more); `range-not-satisfiable`; `unavailable` if the files cannot be read.
#[utoipa::path(
    get,
    path = "/segments/{name}",
    operation_id = "getSegment",
    tag = "out",
    params(("name" = String, Path, description = "Name of the file, from the list.")),
    responses(
        (status = 200, description = "The file, or its lines.", content(
            (String = "application/zstd"), (String = "application/x-ndjson"),
        )),
        (status = 206, description = "The range of the file.", content_type = "application/zstd"),
        (status = 304, description = "The client has the file already."),
        FileProblems
    ),
)]
pub async fn one(
    State(view): State<SegmentsView>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let absent = || {
        let detail = format!("There is no segment {name:.128}. /segments lists the files that there are.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let segments = view.segments()?;
    let text_of = name.strip_suffix(LINES_ENDING).map(|stem| format!("{stem}{ENDING}"));
    let (first, digest) = parse_name(text_of.as_ref().unwrap_or(&name)).ok_or_else(absent)?;
    let segment = segments.beginning_with(first).await.map_err(segment_problem)?;
    let segment = segment.filter(|segment| segment.file == digest).ok_or_else(absent)?;
    if text_of.is_some() {
        let store = segments.files().await.map_err(segment_problem)?.clone();
        return lines::respond(store, segment, &view.spool, (&method, &headers)).await;
    }
    respond(segments.files().await.map_err(segment_problem)?, segment.file, &headers, FileKind::Own(MEDIA_TYPE))
        .await?
        .ok_or_else(|| segment_problem(SegmentError::Missing { first: segment.first, file: segment.file }))
}

impl SegmentsView {
    fn segments(&self) -> Result<&Segments, Problem> {
        self.segments.as_ref().ok_or_else(|| {
            let detail = "The gateway seals no segments. The table [segments] of its configuration says where to.";
            Problem::new(ProblemCode::NotFound, detail)
        })
    }
}

/// Returns the name of a segment's file. Names are in the order of the numbers.
fn name(segment: &Manifest) -> String {
    format!("{:020}-{}{ENDING}", segment.first.0, segment.file)
}

fn parse_name(name: &str) -> Option<(Seq, FileDigest)> {
    let (first, digest) = name.strip_suffix(ENDING)?.split_once('-')?;
    Some((Seq(first.parse().ok()?), FileDigest::parse(digest)?))
}

fn segment_problem(error: SegmentError) -> Problem {
    match error {
        SegmentError::Journal(error) => journal_problem(error),
        error => {
            crate::segments::metrics::failed();
            Problem::failure("The segment cannot be read at present", true, error)
        }
    }
}
