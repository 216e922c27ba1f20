//! `GET /feed` and `GET /feed/archive/{n}`: the journal as an archived feed (RFC 5005 section 4).
//!
//! Changes `(n-1)*100+1` to `n*100` are page `n`. The newest complete page and the changes after it are the
//! subscription document, `/feed`. The complete pages before it are archive documents, which never change. Following
//! `prev-archive` from `/feed` visits every change exactly once, because later changes are added above the start.
//! `docs/feed.md` explains this to readers.
//!
//! A page is removed together with its oldest change. A restore from a backup skips numbers, and therefore pages.
//!
//! A document is written change by change into the [`Spool`] and sent from there to every reader. Its size is that of
//! its changes, of which only a piece is in memory.

mod current;
mod newest;
mod published;
mod rendering;
pub mod style;

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, LINK, LOCATION},
    },
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

pub use self::current::FeedView;
use self::{
    current::FeedSettings,
    newest::NewestDocument,
    rendering::{Newest, Renderer},
};
pub use super::atom::FeedLabels;
use super::{
    archive_cache::{ArchiveCache, size_in_cache},
    atom::{Site, negotiated},
    filtered_feed::{self, Parameters, Selection},
    journal_problem,
    numbered_pages::{PAGE_CHANGES, first_of, page_of},
    page_gone,
};
use crate::{
    cache::LruCache,
    journal::Journal,
    model::{Seq, Timestamp},
    web::{self, CachePolicy, Content, Problem, ProblemCode, ReadPermit, Representation, Spool, problems},
};

/// Version of the rendering of archive pages. Increase it with every change that renders the same changes to other
/// bytes (a snapshot test fails then), because all pages on disk must have the same version.
const RENDERING: u32 = 2;

/// Maximum number of archive pages in memory.
const CACHE_PAGES: usize = 1024;

/// Maximum size of the archive pages in memory, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Maximum number of archive pages that are loaded or rendered at the same time.
const CONCURRENT_PAGES: usize = 4;

/// Subtitle of the feed, for people.
pub(super) const SUBTITLE: &str =
    "What happened to the content of the repositories that this gateway listens to, newest first.";

pub(super) struct FeedState {
    renderer: Renderer,
    newest: Mutex<Option<NewestDocument>>,
    newest_lock: Arc<tokio::sync::Mutex<()>>,
    archive_on_disk: ArchiveCache,
    archive_in_memory: LruCache<u64, Representation>,
    /// Locks of archive pages, by page number modulo their count: a page is loaded or rendered by one reader at a
    /// time.
    archive_locks: [Arc<tokio::sync::Mutex<()>>; CONCURRENT_PAGES],
}

impl FeedState {
    fn new(settings: &FeedSettings) -> Self {
        let FeedSettings { journal, base, data, hub, spool, labels } = settings;
        let (identity, labels) = (journal.identity(), labels.clone());
        let site = Site { base: base.clone(), journal: identity, hub: hub.clone(), labels, copy: None };
        Self {
            archive_on_disk: ArchiveCache::open(data, &fingerprint(&site)),
            archive_in_memory: LruCache::new(CACHE_PAGES, CACHE_BYTES),
            newest: Mutex::default(),
            newest_lock: Arc::default(),
            archive_locks: Default::default(),
            renderer: Renderer { journal: journal.clone(), site, spool: spool.clone(), view: None },
        }
    }

    /// Returns the URLs and the identity of the feed.
    pub(super) fn site(&self) -> &Site {
        &self.renderer.site
    }

    fn journal(&self) -> &Journal {
        &self.renderer.journal
    }

    fn spool(&self) -> &Spool {
        &self.renderer.spool
    }
}

/// Returns a digest of everything except its changes that a page on disk depends on.
fn fingerprint(site: &Site) -> String {
    let rendering = RENDERING.to_be_bytes();
    let mut digest = Sha256::new().chain_update(rendering).chain_update(site.journal.as_bytes());
    for text in [Some(&site.base), Some(&site.labels.title), site.labels.author.as_ref()].into_iter().flatten() {
        // The length separates the texts.
        digest = digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text);
    }
    hex::encode(&digest.finalize()[..16])
}

problems!(NewestProblems: InvalidQuery, NotAcceptable, Unavailable, DamagedChange);
problems!(ArchiveProblems: NotFound, NotAcceptable, Gone, Unavailable, DamagedChange);

/// The newest changes as an archived feed (RFC 5005 section 4). With a query, and for readers who may see only a part of
/// the journal, the matching changes as a paged feed (section 3).
///
/// # Errors
/// `invalid-query`; `not-acceptable`; `damaged-change`; `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/feed",
    operation_id = "getFeed",
    tag = "out",
    params(Parameters),
    responses(
        (status = 200, description = "The feed, newest first.", content(
            (String = "application/atom+xml"), (String = "application/xml"), (String = "text/xml"),
        )),
        (status = 304, description = "Not modified."),
        NewestProblems,
    ),
)]
pub async fn newest(State(view): State<FeedView>, permit: ReadPermit, request: Request) -> Result<Response, Problem> {
    let feed = view.current();
    let query = request.uri().query().unwrap_or_default();
    let (document, topic) = if query.is_empty() && permit.view().is_none() {
        (feed.newest().await?, feed.site().feed())
    } else {
        let selection = Selection::parse(query, &permit)?;
        let topic = filtered_feed::url(feed.site(), &selection);
        (feed.filtered(selection, permit.clone()).await?, topic)
    };
    let document = negotiated(document, request.headers())?;
    let mut response = style::permit(document.respond(request.method(), request.headers()));
    if let Some(links) = feed.site().discovery(&topic).filter(|_| !permit.is_public()) {
        response.headers_mut().insert(LINK, links);
    }
    Ok(response)
}

/// An archive page. It never changes.
///
/// # Errors
/// `not-found` if the page does not exist yet; `not-acceptable`; `gone` if it has been removed; `unavailable` if the
/// journal cannot be read.
#[utoipa::path(
    get,
    path = "/feed/archive/{page}",
    operation_id = "getArchivePage",
    tag = "out",
    params(("page" = u64, Path, description = "Number of the page, from 1.", minimum = 1)),
    responses(
        (status = 200, description = "The page, newest first.", content(
            (String = "application/atom+xml"), (String = "application/xml"), (String = "text/xml"),
        )),
        (status = 304, description = "Not modified."),
        (status = 307, description = "The page is not complete yet; /feed contains its changes."),
        ArchiveProblems,
    ),
)]
pub async fn archive(
    State(view): State<FeedView>,
    web::Path(page): web::Path<u64>,
    request: Request,
) -> Result<Response, Problem> {
    let feed = view.current();
    let newest_complete = feed.journal().head().0 / PAGE_CHANGES;
    if page == 0 || page > newest_complete + 1 {
        let detail = format!("There is no archive page {page} yet. Start at /feed and follow prev-archive.");
        return Err(Problem::new(ProblemCode::NotFound, detail));
    }
    if page >= newest_complete {
        return Ok(redirect_to_feed(feed.site()));
    }
    if first_of(page) < feed.journal().first() {
        return Err(page_gone(page, feed.journal().first()));
    }
    let document = negotiated(feed.archive_page(page).await?, request.headers())?;
    Ok(style::permit(document.respond(request.method(), request.headers())))
}

/// Redirects a request for the newest complete page, or the incomplete one after it, to `/feed`, which contains the
/// changes of both.
fn redirect_to_feed(site: &Site) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(location) = HeaderValue::from_str(&site.feed()) {
        headers.insert(LOCATION, location);
    }
    response
}

impl FeedState {
    /// Returns the subscription document of the current head or a later one. It is rendered at most once per head:
    /// concurrent requests wait for the same rendering.
    async fn newest(self: &Arc<Self>) -> Result<Representation, Problem> {
        let requested = self.journal().head();
        if let Some(document) = self.newest_since(requested) {
            return Ok(document);
        }
        let lock = Arc::clone(&self.newest_lock).lock_owned().await;
        if let Some(document) = self.newest_since(requested) {
            return Ok(document);
        }
        let head = self.journal().head();
        let start = first_of((head.0 / PAGE_CHANGES).max(1));
        let prev = self.complete_page_before(start).await?;
        let feed = Arc::clone(self);
        let document_permit = self.spool().document_permit().await;
        Spool::blocking(document_permit, move || {
            // The lock is held until the work is done, even if the client has disconnected.
            let _lock = lock;
            feed.drop_large_newest();
            let Newest { document, oldest, received } = feed.renderer.newest(start, head, prev)?;
            let newest = NewestDocument::new(head, oldest, received.map(Timestamp::datetime), document);
            let document = newest.serve();
            *feed.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
            Ok(document)
        })
        .await
    }

    /// Releases the disk space of a large older document before a new one is written.
    fn drop_large_newest(&self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.take_if(|newest| matches!(newest.document.body, Content::File(_)));
    }

    fn newest_since(&self, head: Seq) -> Option<Representation> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_complete =
            |newest: &&NewestDocument| newest.head == Seq::ZERO || newest.oldest >= self.journal().first();
        newest.as_ref().filter(|newest| newest.head >= head).filter(is_complete).map(NewestDocument::serve)
    }

    /// Returns an archive page from memory or disk, or renders it.
    async fn archive_page(self: &Arc<Self>, page: u64) -> Result<Representation, Problem> {
        if let Some(document) = self.archive_in_memory.get(&page) {
            return Ok(document);
        }
        let index = usize::try_from(page % CONCURRENT_PAGES as u64).unwrap_or(0);
        let lock = Arc::clone(&self.archive_locks[index]).lock_owned().await;
        if let Some(document) = self.archive_in_memory.get(&page) {
            return Ok(document);
        }
        let feed = Arc::clone(self);
        let (lock, stored) = blocking(move || {
            let stored = feed.archive_on_disk.load(page);
            stored.iter().for_each(|document| feed.cache_page(page, document));
            Ok((lock, stored))
        })
        .await?;
        if let Some(document) = stored {
            return Ok(document);
        }
        let prev = self.journal().number_before(first_of(page)).await.map_err(journal_problem)?.map(page_of);
        let feed = Arc::clone(self);
        let document_permit = self.spool().document_permit().await;
        Spool::blocking(document_permit, move || {
            let _lock = lock;
            let document = feed.renderer.archive(page, prev)?;
            let document = feed.archive_on_disk.store(page, document);
            feed.archive_on_disk.remove_before(page_of(feed.journal().first()));
            feed.cache_page(page, &document);
            Ok(document)
        })
        .await
    }

    fn cache_page(&self, number: u64, page: &Representation) {
        self.archive_in_memory.insert(number, page.clone(), size_in_cache(page));
    }

    /// Returns a document of the filtered feed. It has no Last-Modified, because its link to the next document may
    /// change although none of its changes does.
    async fn filtered(self: &Arc<Self>, selection: Selection, permit: ReadPermit) -> Result<Representation, Problem> {
        let feed = Arc::clone(self);
        let page_permit = self.spool().page_permit().await;
        Spool::blocking(page_permit, move || {
            let page = filtered_feed::read_page(feed.journal(), &selection)?;
            let metadata = filtered_feed::metadata(feed.site(), &selection, &page, SUBTITLE, &permit);
            feed.renderer.document(metadata, page.changes.into_iter().map(Ok), CachePolicy::Revalidate)
        })
        .await
    }

    /// Returns the page of the newest change before `start`, unless part of it has been removed.
    async fn complete_page_before(&self, start: Seq) -> Result<Option<u64>, Problem> {
        let before = self.journal().number_before(start).await.map_err(journal_problem)?;
        Ok(before.map(page_of).filter(|page| first_of(*page) >= self.journal().first()))
    }
}

/// Runs work on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|failed| Err(Problem::internal(failed)))
}

#[cfg(test)]
mod tests;
