//! The journal: `GET /changes`, JSON page by page, and `GET /changes/{id}`, one change in the format that the client
//! accepts.

use std::{io::Write, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, header},
    response::Response,
};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    LARGE, PAGE_BYTES, PIECE_BYTES, block_on, journal_problem, live_readers::LiveReaders, store_problem,
    uncached_response,
};
use crate::{
    format::{Batch, FORMATS, FormatKind},
    journal::{Journal, JournalError, RecordedChange, metrics::tail_read, store::StoreError},
    model::{Change, ChangeId, Seq},
    web::{
        CachePolicy, Client, Content, DocumentWriter, Path, Problem, ProblemCode, Query, Spool, SpoolWriter,
        best_media_type, problems, spool_problem,
    },
};

/// Default number of changes on a page.
const DEFAULT_LIMIT: usize = 100;

/// Default media type of a page.
const JSON: &str = "application/json";

/// Maximum size of the changes of a page that is written immediately on a thread of the runtime, in bytes.
const SMALL_PAGE: usize = 256 << 10;

/// Maximum value of `wait`, in seconds: the maximum that the configuration allows.
const MAX_WAIT: u64 = 3600;

/// State of the views of the journal.
#[derive(Clone)]
pub struct Changes {
    /// The journal.
    pub journal: Journal,
    /// The readers that wait for changes.
    pub readers: LiveReaders,
    /// Maximum number of changes on a page.
    pub max_page: usize,
}

impl Changes {
    /// Returns the number of changes or objects on a page, from the query parameter `limit`.
    pub(super) fn limit(&self, requested: Option<usize>) -> Result<usize, Problem> {
        let limit = requested.unwrap_or(DEFAULT_LIMIT.min(self.max_page));
        if limit == 0 || limit > self.max_page {
            let detail = format!("limit is {limit}; give 1 to {}.", self.max_page);
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "limit"));
        }
        Ok(limit)
    }

    /// Returns the cursor before the oldest change, the default of readers without a cursor.
    fn beginning(&self) -> Seq {
        Seq(self.journal.first().0.saturating_sub(1))
    }
}

/// The query of `GET /changes`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Number of the change after which to begin: `next` of the previous page. Default: the oldest change in the
    /// journal. 0 is the position before the first change of all, which no longer exists once retention has removed
    /// that change.
    #[serde(default)]
    #[param(value_type = Seq, required = false)]
    after: Option<u64>,
    /// Maximum number of changes. A page ends early at 4 MiB of JSON, but has at least one change, if there is one.
    #[serde(default)]
    #[param(value_type = u64, minimum = 1)]
    limit: Option<usize>,
    /// Number of seconds to wait if there are no changes after `after`; then the page is empty. `limits.wait_seconds`
    /// of the configuration limits the value.
    #[serde(default)]
    #[param(value_type = u64, required = false, maximum = 3600)]
    wait: u64,
}

/// A page of the journal.
#[derive(ToSchema)]
#[schema(as = ChangePage)]
#[expect(dead_code, reason = "the page is assembled from the stored JSON; this type describes it")]
struct PageView {
    /// The changes, oldest first.
    changes: Vec<Change>,
    /// Value of `after` for the next page.
    next: Seq,
    /// Identity of the journal that the numbers belong to. A restore and a failover of the database change it.
    #[schema(value_type = String)]
    journal: Uuid,
}

problems!(PageProblems: InvalidQuery, Gone, Unavailable, DamagedChange);
problems!(OneProblems: NotFound, NotAcceptable, Unavailable, DamagedChange);

/// Path of the pages, whose requests may wait for changes.
pub const PATH: &str = "/changes";

/// A page of the journal, oldest first: `{ "changes": […], "next": SEQ }`. Continuing with `after=next` misses
/// nothing and repeats nothing. With `wait`, the response is sent as soon as there is a change. Depending on
/// `Accept`, it is a batch of CloudEvents; then the header `Link` contains the URL of the next page.
///
/// # Errors
/// `invalid-query`; `gone` if the change after `after` has been removed; `damaged-change` if it is damaged (a page ends
/// before a damaged change); `unavailable` if too many readers wait, or the journal cannot be read.
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
    if query.wait > MAX_WAIT {
        // The client may have meant milliseconds.
        let detail = format!("wait is {}; give 0 to {MAX_WAIT} seconds.", query.wait);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "wait"));
    }
    let after = query.after.map_or_else(|| view.beginning(), Seq);
    let format = accepted_batch(&accepted).map_or(PageFormat::Json, |(format, batch)| PageFormat::Batch(format, batch));
    let mut page = view.read(after, limit, format).await?;
    if page.next == after && query.wait > 0 {
        view.readers.change_after(after, Duration::from_secs(query.wait), &client).await?;
        page = view.read(after, limit, format).await?;
    }
    Ok(page.into_response(limit))
}

/// Format of a page.
#[derive(Clone, Copy)]
enum PageFormat {
    /// The stored JSON with the cursor of the next page.
    Json,
    /// A batch of another format, which has no member for the cursor of the next page.
    Batch(&'static FormatKind, Batch),
}

/// A finished page.
struct Page {
    format: PageFormat,
    /// Number of its last change, or its `after` if it is empty.
    next: Seq,
    content: Content,
}

impl Changes {
    /// Reads and writes a page. A small page in memory is written immediately, others piece by piece once a permit is
    /// available.
    async fn read(&self, after: Seq, limit: usize, format: PageFormat) -> Result<Page, Problem> {
        let in_memory = self.journal.cached_after(after, limit, SMALL_PAGE);
        if let Some(changes) = in_memory.filter(|changes| is_small(changes, limit, after, self.journal.head())) {
            tail_read(true);
            return Page::write(self, after, format, |page| page.add(&changes).map(|_| ()));
        }
        let permit = self.readers.spool().page_permit().await;
        let view = self.clone();
        Spool::blocking(permit, move || {
            Page::write(&view, after, format, |page| {
                while page.count < limit && page.bytes < PAGE_BYTES {
                    let (count, bytes) = (limit - page.count, PIECE_BYTES.min(PAGE_BYTES - page.bytes));
                    let read = match block_on(view.journal.after_within(page.next, count, bytes)) {
                        // The page ends before the damaged change, and the next one reports it.
                        Err(JournalError::Store(StoreError::DamagedChange { .. })) if page.count > 0 => break,
                        read => read.map_err(journal_problem)?,
                    };
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

/// Returns `true` if the changes are the complete page and small enough to be written immediately.
fn is_small(changes: &[Arc<RecordedChange>], limit: usize, after: Seq, head: Seq) -> bool {
    let bytes: usize = changes.iter().map(|change| change.json().len()).sum();
    let next = changes.last().map_or(after, |newest| newest.seq());
    bytes <= SMALL_PAGE && (changes.len() == limit || next >= head)
}

/// Writer of a page.
struct PageWriter {
    format: PageFormat,
    out: SpoolWriter,
    next: Seq,
    count: usize,
    /// Size of the changes' JSON, in bytes.
    bytes: usize,
}

impl PageWriter {
    /// Adds the changes that fit and returns `true` if all did. The first change of a page always fits.
    fn add(&mut self, changes: &[Arc<RecordedChange>]) -> Result<bool, Problem> {
        for change in changes {
            let size = change.json().len();
            if self.count > 0 && self.bytes + size > PAGE_BYTES {
                return Ok(false);
            }
            let encoded = match self.format {
                PageFormat::Json => Ok(change.json().clone()),
                PageFormat::Batch(format, _) if size < LARGE => change.encoded(format.name, format.write),
                PageFormat::Batch(format, _) => {
                    change.without_caches().change().map(|change| (format.write)(change).into())
                }
            };
            let encoded = match encoded {
                Err(StoreError::DamagedChange { .. }) if self.count > 0 => return Ok(false),
                encoded => encoded.map_err(store_problem)?,
            };
            let (open, between) = self.punctuation();
            let before = if self.count == 0 { open } else { between };
            let written = self.out.write_all(before.as_bytes()).and_then(|()| self.out.write_all(&encoded));
            written.map_err(spool_problem)?;
            self.next = change.seq();
            self.count += 1;
            self.bytes += size;
        }
        Ok(true)
    }

    fn punctuation(&self) -> (&'static str, &'static str) {
        match self.format {
            PageFormat::Json => ("{\"changes\":[", ","),
            PageFormat::Batch(_, batch) => (batch.open, batch.between),
        }
    }
}

impl Page {
    fn write(
        view: &Changes,
        after: Seq,
        format: PageFormat,
        add: impl FnOnce(&mut PageWriter) -> Result<(), Problem>,
    ) -> Result<Self, Problem> {
        let out = view.readers.spool().writer();
        let mut page = PageWriter { format, out, next: after, count: 0, bytes: 0 };
        add(&mut page)?;
        let next = page.next;
        // Read after the changes, so that no change of a later journal is under the identity of an earlier one.
        let journal = view.journal.identity();
        let open = if page.count == 0 { page.punctuation().0 } else { "" };
        let close = match format {
            PageFormat::Json => format!("],\"next\":{next},\"journal\":\"{journal}\"}}"),
            PageFormat::Batch(_, batch) => batch.close.to_owned(),
        };
        let result = page.out.write_all(open.as_bytes()).and_then(|()| page.out.write_all(close.as_bytes()));
        let content = result.and_then(|()| page.out.finish()).map_err(spool_problem)?;
        Ok(Self { format, next, content })
    }

    fn into_response(self, limit: usize) -> Response {
        let Self { format, next, content } = self;
        let mut response = uncached_response(
            match format {
                PageFormat::Json => JSON,
                PageFormat::Batch(_, batch) => batch.media_type,
            },
            &content,
        );
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        if let PageFormat::Batch(..) = format
            && let Ok(link) = HeaderValue::try_from(format!("<?after={next}&limit={limit}>; rel=\"next\""))
        {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

/// Returns the batch format that the client prefers to the default JSON, if any.
fn accepted_batch(accepted: &HeaderMap) -> Option<(&'static FormatKind, Batch)> {
    let batches: Vec<_> = FORMATS.iter().copied().filter_map(|format| Some((format, format.batch?))).collect();
    let offered: Vec<_> = batches.iter().map(|(_, batch)| batch.media_type).collect();
    let chosen = best_media_type(accepted, &offered)?;
    batches.into_iter().find(|(_, batch)| batch.media_type == chosen).filter(|_| chosen != JSON)
}

/// One change as an Atom feed (the message of version 0.1), JSON, the model's XML, a CloudEvent or an ActivityStreams
/// 2 activity, depending on `Accept`. It never changes.
///
/// # Errors
/// `not-found`; `not-acceptable`; `damaged-change`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes/{id}",
    operation_id = "getChange",
    tag = "out",
    params(("id" = String, Path, description = "Identifier of the change: a UUID, or `urn:uuid:` and a UUID.")),
    responses(
        (status = 200, description = "The change.", content(
            (String = "application/atom+xml"), (Change = "application/json"), (String = "application/xml"),
            (Value = "application/cloudevents+json"), (Value = "application/activity+json"),
        )),
        (status = 304, description = "Not modified."),
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
        let detail = format!("The journal has no change with the identifier {id:?}. GET /changes lists all changes.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let formats = || FORMATS.iter().copied().filter(|format| format.is_self_contained());
    let offered: Vec<_> = formats().map(|format| format.media_type).collect();
    let chosen = best_media_type(&headers, &offered).ok_or_else(|| {
        let detail = format!("A change is available as {}.", offered.join(", "));
        Problem::new(ProblemCode::NotAcceptable, detail)
    })?;
    let change_id = ChangeId::parse(&id).map_err(|_| not_found())?;
    let permit = view.readers.spool().page_permit().await;
    let recorded = view.journal.by_id(change_id).await.map_err(journal_problem)?.ok_or_else(not_found)?;
    let format = formats().find(|format| format.media_type == chosen);
    let spool = view.readers.spool().clone();
    let write = move || {
        let change = recorded.change().map_err(store_problem)?;
        let body = format.map(|format| (format.write)(change)).unwrap_or_default();
        let mut document = DocumentWriter::new(&spool);
        document.write_all(&body).map_err(spool_problem)?;
        let document = document.finish(chosen, CachePolicy::Immutable).map_err(spool_problem)?;
        Ok(document.last_modified(change.received.datetime()).varying_by_accept())
    };
    let document = Spool::blocking(permit, write).await?;
    Ok(document.respond(&method, &headers))
}
