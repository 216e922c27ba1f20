//! The journal: `GET /changes`, page by page, `GET /changes/{id}`, one change, and `GET /streams/changes`, the journal by the
//! protocol Durable Streams.

mod backwards;
pub mod durable_stream;
mod html;
pub mod one;
mod page;

use std::time::Duration;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use utoipa::ToSchema;
use uuid::Uuid;

use self::page::{Order, Page, PageFormat, Selection};
use super::{
    MAX_EXAMINED,
    cache_control::{self, Lifetime},
    journal_problem,
    live_readers::LiveReaders,
    parameters::with_filter,
};
use crate::{
    journal::{Journal, JournalError},
    model::{Change, Filter, Seq, Timestamp, Uri},
    segments::Segments,
    web::{Client, Problem, ProblemCode, Query, ReadPermit, WaitingRoute, problems, wait_parameter},
};

/// Default number of changes on a page.
const DEFAULT_LIMIT: usize = 100;

/// Maximum value of `wait`, in seconds: the maximum that the configuration allows.
const MAX_WAIT: u64 = 3600;

/// State of the views of the journal.
#[derive(Clone)]
pub struct Changes {
    /// The journal.
    pub journal: Journal,
    /// The readers that wait for changes.
    pub readers: LiveReaders,
    /// The sealed segments, which have what retention has removed, and say which changes a filter cannot select.
    pub segments: Option<Segments>,
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

    /// Returns the cursor at which a page begins: `after`, or a later one if the changes until there were received before
    /// `since`.
    ///
    /// # Errors
    /// `gone` if the changes after `after` have been removed, although the page may begin later.
    async fn start(&self, after: Option<Seq>, since: Option<Timestamp>) -> Result<Seq, Problem> {
        let cursor = after.unwrap_or_else(|| self.beginning());
        let Some(since) = since else { return Ok(cursor) };
        // Read before the query, because a change that is recorded meanwhile may be the first since that time.
        let head = self.journal.head();
        let before_first = match self.journal.first_since(since).await.map_err(journal_problem)? {
            Some(first) => self.journal.number_before(first).await.map_err(journal_problem)?.unwrap_or(Seq::ZERO),
            None => head,
        };
        // After the query: what it has passed over was not removed before it.
        if after.is_some()
            && let Err(error @ JournalError::Gone { .. }) = self.journal.after_within(cursor, 1, 1).await
        {
            // The journal does not know the times of the changes that only segments have; the filter examines them.
            return if self.segments.is_some() { Ok(cursor) } else { Err(journal_problem(error)) };
        }
        Ok(cursor.max(before_first.min(head)))
    }

    /// Reads a page, and waits for a selected change while there is none.
    async fn read_waiting(
        &self,
        after: Seq,
        selection: &Selection,
        wait: Duration,
        client: &Client,
    ) -> Result<Page, Problem> {
        let mut page = self.read(after, selection).await?;
        let is_complete = |page: &Page| page.count > 0 || selection.ends_before(page.next.next());
        if wait.is_zero() || is_complete(&page) {
            return Ok(page);
        }
        let poll = self.readers.begin_poll(wait, client)?;
        let mut examined = page.examined;
        while !is_complete(&page) && examined < MAX_EXAMINED && poll.change_after(page.next).await {
            page = self.read(page.next, selection).await?;
            examined += page.examined;
            if page.examined == 0 {
                break;
            }
        }
        Ok(page)
    }
}

with_filter! {
    /// The query of `GET /changes`.
    pub struct PageQuery {
        /// Number of the change after which to begin: `next` of the previous page. Default: the oldest change in the
        /// journal. 0 is the position before the first change of all. It no longer exists once retention has removed that
        /// change, unless segments have it.
        #[param(value_type = Seq, required = false)]
        after: Option<Seq>,
        /// Number of the change before which to end. Without `after`, the page has the newest change before this number
        /// first, and `next` is the value of `before` for the next page. A number beyond the newest change begins with that.
        #[param(value_type = Seq, required = false)]
        before: Option<Seq>,
        /// URI of an object or an item: only changes of this object, and changes that list this item. Without `after`, the
        /// page has the newest change first, as with `before`.
        #[param(value_type = Uri, required = false)]
        about: Option<Uri>,
        /// Maximum number of changes. A page ends early at 4 MiB of JSON, but has at least one change, if there is one.
        /// With a filter it also ends after 5000 examined changes, even if none matches.
        #[serde(default)]
        #[param(value_type = u64, required = false, minimum = 1)]
        limit: Option<usize>,
        /// Number of seconds to wait while there are no changes for the page; then it is empty. `limits.wait_seconds` of
        /// the configuration limits the value. Pages with the newest change first do not wait.
        #[serde(default)]
        #[param(value_type = u64, required = false, maximum = 3600)]
        wait: u64,
        /// Identity of the journal that `after` is a number of, as `journal` in the page before. Caches may keep a page for
        /// ever then, if later changes exist. A former identity is valid up to the last change that a restore or a failover
        /// has kept; any other one is `gone`.
        #[param(value_type = String, required = false)]
        journal: Option<Uuid>,
    }
}

/// A page of the journal.
#[derive(ToSchema)]
#[schema(as = ChangePage)]
#[expect(dead_code, reason = "the page is assembled from the stored JSON; this type describes it")]
struct PageView {
    /// The changes, oldest first; newest first with `before` or `about` and without `after`.
    changes: Vec<Change>,
    /// Number of the last change that was examined, the value of `after` for the next page. If it is that of this page,
    /// there are no later changes yet. If the newest change is first, it is the value of `before` for the next page, and
    /// `null` if there are no older changes.
    #[schema(value_type = Option<u64>, required = true)]
    next: Option<Seq>,
    /// Identity of the journal that the numbers belong to. A restore and a failover of the database change it.
    #[schema(value_type = String)]
    journal: Uuid,
}

problems!(PageProblems: InvalidQuery, NotAcceptable, Gone, Unavailable, DamagedChange);

/// Path of the pages.
pub const PATH: &str = "/changes";

/// The pages, whose requests may wait for changes.
pub const WAITING: WaitingRoute = WaitingRoute { path: PATH, wait: wait_parameter };

/// A page of the journal, oldest first: `{ "changes": […], "next": SEQ }`. Continuing with `after=next` misses
/// nothing and repeats nothing. With `before` or `about` and without `after`, the newest change is first. With `wait`, the response is sent as soon as there is a change. The filter parameters
/// are those of `/feed`. Depending on `Accept`, it has a change on each line (NDJSON) or is a batch of CloudEvents. The
/// header `Link` contains the URL of the next page.
///
/// # Errors
/// `invalid-query`; `not-acceptable`; `gone` if the change after `after` has been removed; `damaged-change` if it is
/// damaged (a page ends before a damaged change); `unavailable` if too many readers wait, or the journal cannot be read.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "listChanges",
    tag = "out",
    params(PageQuery),
    responses(
        (status = 200, description = "A page.", content(
            (PageView = "application/json"), (String = "application/x-ndjson"),
            (Vec<Value> = "application/cloudevents-batch+json"),
        )),
        (status = 304, description = "Not modified."),
        PageProblems,
    ),
)]
pub async fn page(
    State(view): State<Changes>,
    permit: ReadPermit,
    client: Client,
    Query(mut query): Query<PageQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let limit = view.limit(query.limit)?;
    if query.wait > MAX_WAIT {
        // The client may have meant milliseconds.
        let detail = format!("wait is {}; give 0 to {MAX_WAIT} seconds.", query.wait);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "wait"));
    }
    let filter = query.filter(&permit)?;
    let since = filter.since;
    let is_newest_first = query.after.is_none() && (query.before.is_some() || query.about.is_some());
    let selection = Selection {
        filter: Some(filter).filter(|filter| *filter != Filter::default()),
        about: query.about,
        order: if is_newest_first { Order::NewestFirst } else { Order::OldestFirst { before: query.before } },
        limit,
        format: PageFormat::accepted(&headers)?,
        // The next page is of the present journal, also for a reader who knows a former identity.
        journal: query.journal.map(|_| view.journal.identity()),
    };
    if let Some(journal) = query.journal {
        // With the newest change first, the reader has those from `before` on.
        let position = query.after.or(query.before.filter(|_| is_newest_first)).unwrap_or_default();
        let has_position = view.journal.has_position(|identity| identity == journal, position).await;
        if !has_position.map_err(journal_problem)? {
            return Err(other_journal(journal, view.journal.identity()));
        }
    }
    if is_newest_first {
        if query.wait > 0 {
            let detail = "A page with the newest change first does not wait. Give the parameter \"after\" to wait for later \
                          changes, or omit \"wait\".";
            return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", "wait"));
        }
        let page = view.read_backwards(query.before, since, &selection).await?;
        return Ok(page.into_response(&selection));
    }
    let after = view.start(query.after, since).await?;
    // A page that ends before this number has ended for another reason than the end of the journal.
    let head = view.journal.head();
    let page = view.read_waiting(after, &selection, Duration::from_secs(query.wait), &client).await?;
    let is_of_journal = query.journal == Some(view.journal.identity());
    let is_fixed = is_of_journal && query.after.is_some() && page.next > after && page.next < head;
    let lifetime = if is_fixed { Lifetime::Fixed } else { Lifetime::Revalidated };
    let tag = cache_control::tag(view.journal.identity(), (after, page.next), &permit, selection.format.media_type());
    let mut response = page.into_response(&selection);
    if cache_control::is_known(&headers, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    cache_control::add(response.headers_mut(), lifetime.header(&permit), tag);
    Ok(response)
}

/// Returns the problem of a reader whose journal was replaced by a restore or a failover.
fn other_journal(asked: Uuid, present: Uuid) -> Problem {
    let detail = format!(
        "The journal {asked} is not here any more: a restore or a failover has given it the identity {present}, and some of \
         its changes may be lost. Start again: read the current registry page by page from /snapshot, then continue with \
         /changes?after= and the \"head\" of its first page."
    );
    Problem::new(ProblemCode::Gone, detail).with("journal", present.to_string()).with("snapshot", "/snapshot")
}
