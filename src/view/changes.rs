//! The journal as it is: `GET /changes`, page by page in JSON, and `GET /changes/{id}`, one change
//! in the format that the client accepts.

use std::{io::Write, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header},
    response::Response,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{LARGE, PAGE_BYTES, PIECE_BYTES, journal_problem, store_problem, unkept, wait_for, waiting::Waiting};
use crate::{
    format::{Batch, FORMATS, FormatKind},
    journal::{Journal, RecordedChange, metrics::tail_read},
    model::{Change, ChangeId, Seq},
    web::{
        CachePolicy, Client, Content, DocumentWriter, Path, Problem, ProblemCode, Query, Spool, SpoolWriter,
        best_media_type, problems, spool_problem,
    },
};

/// How many changes a page has when the client does not say.
const DEFAULT_LIMIT: usize = 100;

/// The media type of a page where the client does not say.
const JSON: &str = "application/json";

/// Maximum size of the changes on a page that is written at once, on a thread of the runtime, in bytes.
const SMALL_PAGE: usize = 256 << 10;

/// For how many seconds a client may ask to wait: the most that the configuration can allow.
const LONGEST_WAIT: u64 = 3600;

/// The journal as these views show it.
#[derive(Clone)]
pub struct Changes {
    /// The journal.
    pub journal: Journal,
    /// The readers that wait for changes.
    pub waiting: Waiting,
    /// How many changes a page may have at the most.
    pub largest_page: usize,
}

impl Changes {
    /// How long a page is to be.
    pub(super) fn limit(&self, told: Option<usize>) -> Result<usize, Problem> {
        let limit = told.unwrap_or(DEFAULT_LIMIT.min(self.largest_page));
        if limit == 0 || limit > self.largest_page {
            let detail = format!("limit is {limit}; give 1 to {}.", self.largest_page);
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
        }
        Ok(limit)
    }

    /// The place before the oldest change that is kept: that of a reader who has none yet.
    fn beginning(&self) -> Seq {
        Seq(self.journal.first().0.saturating_sub(1))
    }
}

/// The query of `GET /changes`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The number after which to begin, `next` of the page before. Absent is the beginning: the oldest change that is kept. 0 is the
    /// place before the first change of all, which is gone once retention has removed that.
    #[serde(default)]
    #[param(value_type = Seq, required = false)]
    after: Option<u64>,
    /// How many changes at the most. A page ends early where its changes have 4 MiB of JSON; it has one at least, if
    /// there is one.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1)]
    limit: Option<usize>,
    /// For how many seconds to wait for changes where there are none after `after`; then the page is empty. More
    /// than `limits.wait_seconds` of the configuration counts as that.
    #[serde(default)]
    #[param(value_type = u64, required = false, maximum = 3600)]
    wait: u64,
}

/// A page of the journal.
#[derive(ToSchema)]
#[schema(as = ChangePage)]
#[expect(dead_code, reason = "the page is put together from the stored JSON; this describes it")]
struct PageView {
    /// The changes, oldest first.
    changes: Vec<Change>,
    /// The `after` of the following page.
    next: Seq,
}

problems!(PageProblems: InvalidQuery, Gone, Unavailable);
problems!(OneProblems: NotFound, NotAcceptable, Unavailable);

/// The path of the pages, whose requests may ask to wait for changes.
pub const PATH: &str = "/changes";

/// A page of the journal, oldest first: `{ "changes": […], "next": SEQ }`. Going on with
/// `after=next` misses nothing and repeats nothing. With `wait` it is answered as soon as there is a change. By
/// `Accept` it is a batch of CloudEvents; then the header `Link` has the following page.
///
/// # Errors
/// `invalid-query`; `gone` when the change after `after` is no longer kept; `unavailable` when too many wait, or the
/// journal cannot be read.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "listChanges",
    tag = "out",
    params(PageQuery),
    responses(
        (status = 200, description = "A page, oldest first.", content(
            (PageView = "application/json"), (Vec<Value> = "application/cloudevents-batch+json"),
        )),
        PageProblems,
    ),
)]
pub async fn page(
    State(view): State<Changes>,
    client: Client,
    Query(query): Query<PageQuery>,
    accepted: HeaderMap,
) -> Result<Response, Problem> {
    let limit = view.limit(query.limit)?;
    if query.wait > LONGEST_WAIT {
        // It may be meant as milliseconds.
        let detail = format!("wait is {}; give 0 to {LONGEST_WAIT} seconds.", query.wait);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "wait"));
    }
    let after = query.after.map_or_else(|| view.beginning(), Seq);
    let shape = batch_of_others(&accepted).map_or(Shape::Json, |(format, batch)| Shape::Batch(format, batch));
    let mut page = view.read(after, limit, shape).await?;
    if page.next == after && query.wait > 0 {
        view.waiting.change_after(after, Duration::from_secs(query.wait), &client).await?;
        page = view.read(after, limit, shape).await?;
    }
    Ok(page.answer(limit))
}

/// How the changes of a page are written.
#[derive(Clone, Copy)]
enum Shape {
    /// As the JSON that is stored, with where the following page begins.
    Json,
    /// As a batch of a format, which has no place for where the following page begins.
    Batch(&'static FormatKind, Batch),
}

/// A page as it is sent.
struct Page {
    shape: Shape,
    /// The number of its last change, or of the place where it begins.
    next: Seq,
    content: Content,
}

impl Changes {
    /// Reads and writes a page: at once, if it is small and its changes are in memory, else piece by piece when it is
    /// its turn.
    async fn read(&self, after: Seq, limit: usize, shape: Shape) -> Result<Page, Problem> {
        let in_memory = self.journal.cached_after(after, limit, SMALL_PAGE);
        if let Some(changes) = in_memory.filter(|changes| is_small(changes, limit, after, self.journal.head())) {
            tail_read(true);
            return Page::write(&self.waiting, after, shape, |page| page.add(&changes).map(|_| ()));
        }
        let turn = self.waiting.spool().page_turn().await;
        let view = self.clone();
        Spool::blocking(turn, move || {
            Page::write(&view.waiting, after, shape, |page| {
                while page.count < limit && page.bytes < PAGE_BYTES {
                    let (wanted, bytes) = (limit - page.count, PIECE_BYTES.min(PAGE_BYTES - page.bytes));
                    let read =
                        wait_for(view.journal.after_within(page.next, wanted, bytes)).map_err(journal_problem)?;
                    if read.is_empty() || !page.add(&read)? {
                        break;
                    }
                }
                Ok(())
            })
        })
        .await
    }
}

/// Whether the changes are the whole page, and small enough to be written at once.
fn is_small(changes: &[Arc<RecordedChange>], limit: usize, after: Seq, head: Seq) -> bool {
    let bytes: usize = changes.iter().map(|change| change.json().len()).sum();
    let next = changes.last().map_or(after, |newest| newest.seq());
    bytes <= SMALL_PAGE && (changes.len() == limit || next >= head)
}

/// A page that is being written.
struct PageWriter {
    shape: Shape,
    out: SpoolWriter,
    next: Seq,
    count: usize,
    /// The bytes of the changes' JSON.
    bytes: usize,
}

impl PageWriter {
    /// Adds the changes that fit; says whether all did. The first of a page always fits.
    fn add(&mut self, changes: &[Arc<RecordedChange>]) -> Result<bool, Problem> {
        for change in changes {
            let size = change.json().len();
            if self.count > 0 && self.bytes + size > PAGE_BYTES {
                return Ok(false);
            }
            let (open, between) = self.punctuation();
            let before = if self.count == 0 { open } else { between };
            self.out.write_all(before.as_bytes()).map_err(spool_problem)?;
            match self.shape {
                Shape::Json => self.out.write_all(change.json()),
                Shape::Batch(format, _) => {
                    let encoded = if size < LARGE {
                        change.encoded(format.name, format.write)
                    } else {
                        change.without_caches().change().map(|change| (format.write)(change).into())
                    };
                    self.out.write_all(&encoded.map_err(store_problem)?)
                }
            }
            .map_err(spool_problem)?;
            self.next = change.seq();
            self.count += 1;
            self.bytes += size;
        }
        Ok(true)
    }

    fn punctuation(&self) -> (&'static str, &'static str) {
        match self.shape {
            Shape::Json => ("{\"changes\":[", ","),
            Shape::Batch(_, batch) => (batch.open, batch.between),
        }
    }
}

impl Page {
    fn write(
        waiting: &Waiting,
        after: Seq,
        shape: Shape,
        add: impl FnOnce(&mut PageWriter) -> Result<(), Problem>,
    ) -> Result<Self, Problem> {
        let out = waiting.spool().writer();
        let mut page = PageWriter { shape, out, next: after, count: 0, bytes: 0 };
        add(&mut page)?;
        let next = page.next;
        let open = if page.count == 0 { page.punctuation().0 } else { "" };
        let close = match shape {
            Shape::Json => format!("],\"next\":{next}}}"),
            Shape::Batch(_, batch) => batch.close.to_owned(),
        };
        let written = page.out.write_all(open.as_bytes()).and_then(|()| page.out.write_all(close.as_bytes()));
        let content = written.and_then(|()| page.out.finish()).map_err(spool_problem)?;
        Ok(Self { shape, next, content })
    }

    fn answer(self, limit: usize) -> Response {
        let Self { shape, next, content } = self;
        let mut response = unkept(
            match shape {
                Shape::Json => JSON,
                Shape::Batch(_, batch) => batch.media_type,
            },
            &content,
        );
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        if let Shape::Batch(..) = shape
            && let Ok(link) = HeaderValue::try_from(format!("<?after={next}&limit={limit}>; rel=\"next\""))
        {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

/// The format of batches that the client likes better than our JSON, which is for all who do not say.
fn batch_of_others(accepted: &HeaderMap) -> Option<(&'static FormatKind, Batch)> {
    let batches: Vec<_> = FORMATS.iter().copied().filter_map(|format| Some((format, format.batch?))).collect();
    let offered: Vec<_> = batches.iter().map(|(_, batch)| batch.media_type).collect();
    let chosen = best_media_type(accepted, &offered)?;
    batches.into_iter().find(|(_, batch)| batch.media_type == chosen).filter(|_| chosen != JSON)
}

/// One change, as an Atom feed (the 0.1 message), as JSON, as the model's XML, as a CloudEvent or as an
/// activity of ActivityStreams 2, by `Accept`. It never changes.
///
/// # Errors
/// `not-found`; `not-acceptable`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes/{id}",
    operation_id = "getChange",
    tag = "out",
    params(("id" = String, Path, description = "Its identifier: a UUID, or `urn:uuid:` and a UUID.")),
    responses(
        (status = 200, description = "The change.", content(
            (String = "application/atom+xml"), (Change = "application/json"), (String = "application/xml"),
            (Value = "application/cloudevents+json"), (Value = "application/activity+json"),
        )),
        (status = 304, description = "The client has it."),
        OneProblems,
    ),
)]
pub async fn one(
    State(view): State<Changes>,
    Path(id): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let not_found = || {
        let id: String = id.chars().take(64).collect();
        let detail = format!("There is no change {id:?} in the journal. GET /changes lists what there is.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let formats = || FORMATS.iter().copied().filter(|format| format.is_whole());
    let offered: Vec<_> = formats().map(|format| format.media_type).collect();
    let chosen = best_media_type(&headers, &offered).ok_or_else(|| {
        let detail = format!("A change is offered as {}.", offered.join(", "));
        Problem::new(ProblemCode::NotAcceptable, detail)
    })?;
    let change_id = ChangeId::parse(&id).map_err(|_| not_found())?;
    let turn = view.waiting.spool().page_turn().await;
    let recorded = view.journal.by_id(change_id).await.map_err(journal_problem)?.ok_or_else(not_found)?;
    let format = formats().find(|format| format.media_type == chosen);
    let spool = view.waiting.spool().clone();
    let write = move || {
        let change = recorded.change().map_err(store_problem)?;
        let body = format.map(|format| (format.write)(change)).unwrap_or_default();
        let mut document = DocumentWriter::new(&spool);
        document.write_all(&body).map_err(spool_problem)?;
        let document = document.finish(chosen, CachePolicy::Immutable).map_err(spool_problem)?;
        Ok(document.last_modified(change.received.datetime()).varying_by_accept())
    };
    let document = Spool::blocking(turn, write).await?;
    Ok(document.respond(&method, &headers))
}
