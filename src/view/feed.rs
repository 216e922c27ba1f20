//! `GET /feed` and `GET /feed/archive/{n}`: the journal as an archived feed (RFC 5005 section 4).
//!
//! Change `(n-1)*100+1` to `n*100` are page `n`. The newest complete page and what has come since
//! are the subscription document, `/feed`; the complete pages before are archive documents, which
//! never change. A walk from `/feed` along `prev-archive` meets every change once: what comes in
//! meanwhile is above where it began. `docs/feed.md` tells readers the same.
//!
//! Pages whose oldest change is gone are gone. A restore from a backup leaves numbers out: some pages.
//!
//! A document is written change by change into the [`Spool`], and sent from there to every reader: its size is that of
//! its changes, and no more than a piece of them is in memory.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, LINK, LOCATION},
    },
    response::{IntoResponse, Response},
};
use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};

use super::{
    LARGE,
    atom::{Frame, MEDIA_TYPE, Site, page_link},
    backwards::Backwards,
    feed_document::FeedWriter,
    filtered::{self, Parameters, Selection},
    journal_problem, page_gone,
    pages::{PageFolder, size_in_cache},
    store_problem, wait_for, write_problem,
};
use crate::{
    cache::LruCache,
    journal::{Journal, RecordedChange, store::StoreError},
    model::{Seq, Timestamp},
    web::{
        self, CachePolicy, Content, DocumentWriter, Problem, ProblemCode, Representation, Spool, problems,
        spool_problem,
    },
};

/// How many changes a page has. It is part of what an archive page's address means, and so can
/// never be changed or configured.
const PAGE_CHANGES: u64 = 100;

/// The version of how archive pages are rendered. Raise it with every change that makes other bytes
/// of the same changes (a snapshot test tells): pages on disk are of one version.
const RENDERING: u32 = 1;

/// Largest number of archive pages in memory, and of their bytes.
const CACHE_PAGES: usize = 1024;
const CACHE_BYTES: usize = 16 << 20;

/// Number of archive pages that are fetched or rendered at the same time.
const PAGES_AT_ONCE: usize = 4;

/// What is in the feed, for people.
pub(super) const SUBTITLE: &str =
    "What happened to the content of the repositories that this gateway listens to, newest first.";

/// The feed. Clones are handles to the same one.
#[derive(Clone)]
pub struct FeedView(pub(super) Arc<Parts>);

pub(super) struct Parts {
    journal: Journal,
    pub(super) site: Site,
    newest: Mutex<Option<Newest>>,
    newest_turn: Arc<tokio::sync::Mutex<()>>,
    folder: PageFolder,
    cache: LruCache<u64, Representation>,
    /// The turns of archive pages, by their number: a page is fetched or rendered by one reader at a time.
    archive_turns: [Arc<tokio::sync::Mutex<()>>; PAGES_AT_ONCE],
    spool: Spool,
}

/// The subscription document as of a head.
#[derive(Clone)]
struct Newest {
    head: Seq,
    oldest: Seq,
    received: Option<DateTime<Utc>>,
    document: Representation,
    /// The document with its Last-Modified.
    dated: Representation,
}

impl FeedView {
    /// The feed of that journal, as readers see it under `public_url`. Archive pages that have been
    /// rendered are kept in the folder `data`; those of another journal or address are removed. Where there is a
    /// WebSub `hub`, the feed tells its address.
    #[must_use]
    pub fn new(journal: Journal, public_url: &str, data: &Path, hub: Option<String>, spool: Spool) -> Self {
        let base = public_url.trim_end_matches('/').to_owned();
        let site = Site { base, journal: journal.identity(), hub };
        Self(Arc::new(Parts {
            folder: PageFolder::open(data, &fingerprint(&site)),
            cache: LruCache::new(CACHE_PAGES, CACHE_BYTES),
            newest: Mutex::default(),
            newest_turn: Arc::default(),
            archive_turns: Default::default(),
            spool,
            journal,
            site,
        }))
    }
}

/// What a page on disk depends on, beside its changes.
fn fingerprint(site: &Site) -> String {
    let rendering = RENDERING.to_be_bytes();
    let digest = Sha256::new().chain_update(rendering).chain_update(site.journal.as_bytes()).chain_update(&site.base);
    hex::encode(&digest.finalize()[..16])
}

problems!(NewestProblems: InvalidQuery, Unavailable);
problems!(ArchiveProblems: NotFound, Gone, Unavailable);

/// The newest changes as an archived feed (RFC 5005 section 4); with a query, those that the query
/// wants, as a paged one (section 3).
///
/// # Errors
/// `invalid-query`; `unavailable` when the journal cannot be read.
#[utoipa::path(
    get,
    path = "/feed",
    operation_id = "getFeed",
    tag = "out",
    params(Parameters),
    responses(
        (status = 200, description = "The feed, newest first.", body = String, content_type = "application/atom+xml"),
        (status = 304, description = "The client has it."),
        NewestProblems,
    ),
)]
pub async fn newest(State(FeedView(parts)): State<FeedView>, request: Request) -> Result<Response, Problem> {
    let (document, topic) = match request.uri().query().filter(|query| !query.is_empty()) {
        None => (parts.newest().await?, parts.site.feed()),
        Some(query) => {
            let selection = Selection::parse(query)?;
            let topic = filtered::address(&parts.site, &selection);
            (parts.filtered(selection).await?, topic)
        }
    };
    let mut response = document.respond(request.method(), request.headers());
    if let Some(links) = parts.site.discovery(&topic) {
        response.headers_mut().insert(LINK, links);
    }
    Ok(response)
}

/// One archive page; it never changes.
///
/// # Errors
/// `not-found` where there is no such page yet; `gone` where it is no longer kept; `unavailable` when the
/// journal cannot be read.
#[utoipa::path(
    get,
    path = "/feed/archive/{page}",
    operation_id = "getArchivePage",
    tag = "out",
    params(("page" = u64, Path, description = "Its number, from 1.", minimum = 1)),
    responses(
        (status = 200, description = "The page, newest first.", body = String, content_type = "application/atom+xml"),
        (status = 304, description = "The client has it."),
        (status = 307, description = "It is not complete yet: /feed has its changes."),
        ArchiveProblems,
    ),
)]
pub async fn archive(
    State(FeedView(parts)): State<FeedView>,
    web::Path(page): web::Path<u64>,
    request: Request,
) -> Result<Response, Problem> {
    let newest_complete = parts.journal.head().0 / PAGE_CHANGES;
    if page == 0 || page > newest_complete + 1 {
        let detail = format!("There is no archive page {page} yet. Start at /feed and follow prev-archive.");
        return Err(Problem::new(ProblemCode::NotFound, detail));
    }
    if page >= newest_complete {
        return Ok(not_yet(&parts.site));
    }
    if first_of(page) < parts.journal.first() {
        return Err(page_gone(page, parts.journal.first()));
    }
    Ok(parts.archive_page(page).await?.respond(request.method(), request.headers()))
}

/// The page that has the change.
fn page_of(seq: Seq) -> u64 {
    seq.0.div_ceil(PAGE_CHANGES)
}

/// The number of a page's first change.
fn first_of(page: u64) -> Seq {
    Seq((page - 1) * PAGE_CHANGES).next()
}

/// The page is the newest complete one, or the one after it, which is being filled: `/feed` has its
/// changes until it is an archive page.
fn not_yet(site: &Site) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(location) = HeaderValue::from_str(&site.feed()) {
        headers.insert(LOCATION, location);
    }
    response
}

impl Parts {
    /// The subscription document as of the present head, or a later one. It is rendered once a head
    /// at the most: however many ask, one renders and the others wait for it.
    async fn newest(self: &Arc<Self>) -> Result<Representation, Problem> {
        let wanted = self.journal.head();
        if let Some(document) = self.newest_since(wanted) {
            return Ok(document);
        }
        let turn = Arc::clone(&self.newest_turn).lock_owned().await;
        if let Some(document) = self.newest_since(wanted) {
            return Ok(document);
        }
        let head = self.journal.head();
        let start = first_of((head.0 / PAGE_CHANGES).max(1));
        let prev = self.kept_page_before(start).await?;
        let parts = Arc::clone(self);
        let document_turn = self.spool.document_turn().await;
        Spool::blocking(document_turn, move || {
            // Kept until the work is done, even if the client has gone by then.
            let _turn = turn;
            parts.drop_large_newest();
            let newest = parts.render_newest(start, head, prev)?;
            let document = newest.serve();
            *parts.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
            Ok(document)
        })
        .await
    }

    /// Gives the room of an older document back, before another takes as much.
    fn drop_large_newest(&self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.take_if(|newest| matches!(newest.document.body, Content::File(_)));
    }

    fn newest_since(&self, head: Seq) -> Option<Representation> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |newest: &&Newest| newest.head == Seq::ZERO || newest.oldest >= self.journal.first();
        newest.as_ref().filter(|newest| newest.head >= head).filter(is_kept).map(Newest::serve)
    }

    fn render_newest(&self, start: Seq, head: Seq, prev: Option<u64>) -> Result<Newest, Problem> {
        let mut changes = Backwards::open(&self.journal, start, head)?;
        let received = received(&changes)?;
        let mut links =
            vec![page_link("self", self.site.feed()), page_link("current", self.site.feed()), self.site.service_link()];
        links.extend(self.site.hub_link());
        links.extend(prev.map(|page| page_link("prev-archive", self.site.archive(page))));
        let updated = received.unwrap_or(Timestamp::EPOCH);
        let frame = Frame { id: self.site.journal, subtitle: SUBTITLE.to_owned(), updated, links, archive: false };
        let document = self.render(frame, &mut changes, CachePolicy::Revalidate)?;
        let oldest = changes.oldest().unwrap_or(Seq::ZERO);
        Ok(Newest::new(head, oldest, received.map(Timestamp::datetime), document))
    }

    /// An archive page: from memory, or from disk, or rendered.
    async fn archive_page(self: &Arc<Self>, page: u64) -> Result<Representation, Problem> {
        if let Some(document) = self.cache.get(&page) {
            return Ok(document);
        }
        let turns = usize::try_from(page % PAGES_AT_ONCE as u64).unwrap_or(0);
        let turn = Arc::clone(&self.archive_turns[turns]).lock_owned().await;
        if let Some(document) = self.cache.get(&page) {
            return Ok(document);
        }
        let parts = Arc::clone(self);
        let (turn, kept) = blocking(move || {
            let kept = parts.folder.load(page);
            kept.iter().for_each(|document| parts.cache_page(page, document));
            Ok((turn, kept))
        })
        .await?;
        if let Some(document) = kept {
            return Ok(document);
        }
        let prev = self.journal.number_before(first_of(page)).await.map_err(journal_problem)?.map(page_of);
        let parts = Arc::clone(self);
        let document_turn = self.spool.document_turn().await;
        Spool::blocking(document_turn, move || {
            let _turn = turn;
            let document = parts.render_archive(page, prev)?;
            let document = parts.folder.keep(page, document);
            parts.folder.forget_before(page_of(parts.journal.first()));
            parts.cache_page(page, &document);
            Ok(document)
        })
        .await
    }

    fn cache_page(&self, number: u64, page: &Representation) {
        self.cache.insert(number, page.clone(), size_in_cache(page));
    }

    /// Renders an archive page. Its links depend on the numbers of the journal alone, and not on which of the other pages
    /// are still kept: the page is the same for ever.
    fn render_archive(&self, page: u64, prev: Option<u64>) -> Result<Representation, Problem> {
        let mut changes = Backwards::open(&self.journal, first_of(page), Seq(page * PAGE_CHANGES))?;
        let next = self.page_after(page, changes.peek().map(|newest| newest.seq()))?;
        let received = received(&changes)?.unwrap_or(Timestamp::EPOCH);
        let mut links = vec![
            page_link("self", self.site.archive(page)),
            page_link("current", self.site.feed()),
            self.site.service_link(),
            page_link("next-archive", self.site.archive(next)),
        ];
        links.extend(prev.map(|page| page_link("prev-archive", self.site.archive(page))));
        let id = self.site.journal;
        let frame = Frame { id, subtitle: SUBTITLE.to_owned(), updated: received, links, archive: true };
        let document = self.render(frame, &mut changes, CachePolicy::Immutable)?;
        if changes.oldest() != Some(first_of(page)) {
            return Err(page_gone(page, self.journal.first()));
        }
        Ok(document.last_modified(received.datetime()))
    }

    /// A document of the filtered feed. It has no Last-Modified: where its chain goes on may change
    /// while no change that it shows does.
    async fn filtered(self: &Arc<Self>, selection: Selection) -> Result<Representation, Problem> {
        let parts = Arc::clone(self);
        let turn = self.spool.page_turn().await;
        Spool::blocking(turn, move || {
            let found = filtered::find(&parts.journal, &selection)?;
            let frame = filtered::frame(&parts.site, &selection, &found, SUBTITLE);
            parts.render(frame, found.changes.into_iter().map(Ok), CachePolicy::Revalidate)
        })
        .await
    }

    fn render(
        &self,
        frame: Frame,
        changes: impl Iterator<Item = Result<Arc<RecordedChange>, Problem>>,
        cache: CachePolicy,
    ) -> Result<Representation, Problem> {
        let writer = FeedWriter::begin(&self.site, frame, DocumentWriter::new(&self.spool));
        let mut writer = writer.map_err(write_problem)?;
        for change in changes {
            writer.change(&*change?).map_err(write_problem)?;
        }
        writer.finish().map_err(write_problem)?.finish(MEDIA_TYPE, cache).map_err(spool_problem)
    }

    /// The page of the newest change before `start`, if it is kept as a whole.
    async fn kept_page_before(&self, start: Seq) -> Result<Option<u64>, Problem> {
        let before = self.journal.number_before(start).await.map_err(journal_problem)?;
        Ok(before.map(page_of).filter(|page| first_of(*page) >= self.journal.first()))
    }

    /// The page of the first change after those of an archive page, whose newest has the number `newest`. It is the one
    /// after it, but where a restore has left numbers out, which it does only where a page ends.
    fn page_after(&self, page: u64, newest: Option<Seq>) -> Result<u64, Problem> {
        let Some(newest) = newest else {
            let first = self.journal.first();
            if first > first_of(page) {
                return Err(page_gone(page, first));
            }
            let detail = format!("There is no archive page {page}: a restore from a backup left its numbers out.");
            return Err(Problem::new(ProblemCode::NotFound, detail));
        };
        let next = wait_for(self.journal.after_within(newest, 1, 1)).map_err(journal_problem)?;
        let next = next.first().map_or(page + 1, |next| page_of(next.seq()));
        if newest.0 % PAGE_CHANGES != 0 && next == page + 1 {
            let missing = newest.next();
            return Err(store_problem(StoreError::Damaged(format!("change {missing} is not there"))));
        }
        Ok(next)
    }
}

impl Newest {
    fn new(head: Seq, oldest: Seq, received: Option<DateTime<Utc>>, document: Representation) -> Self {
        let dated = received.map_or_else(|| document.clone(), |received| document.clone().last_modified(received));
        Self { head, oldest, received, document, dated }
    }

    /// The document, with a Last-Modified when that can be trusted. Its resolution is a second, and a
    /// change that was received in the same second may be added for as long as the journal takes to
    /// write it: a client that asks by the date alone would never hear of it.
    fn serve(&self) -> Representation {
        let settled = |received: &DateTime<Utc>| Utc::now() - *received > TimeDelta::minutes(1);
        if self.received.as_ref().is_some_and(settled) { self.dated.clone() } else { self.document.clone() }
    }
}

/// When the newest of these changes was received.
fn received(changes: &Backwards<'_>) -> Result<Option<Timestamp>, Problem> {
    let received = |newest: &Arc<RecordedChange>| {
        let is_large = newest.json().len() >= LARGE;
        let received = if is_large { newest.without_caches().change()?.received } else { newest.change()?.received };
        Ok(received)
    };
    changes.peek().map(received).transpose().map_err(store_problem)
}

/// Does work that would keep other requests waiting on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|failed| Err(Problem::internal(failed)))
}

#[cfg(test)]
mod tests;
