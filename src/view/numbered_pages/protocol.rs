//! The documents of a protocol with numbered pages: their names, their cache headers, and who gets them.
//!
//! The URL of a document names the stream, whose identity depends on the journal, on the URL of the gateway, on the settings,
//! on the filter, and on what the reader may see ([`ChangeStream::id`]). So nothing is added to a closed page, and caches may
//! keep it. After a restore all documents have other URLs, and the former ones are `gone`.

use std::{io::Write, sync::Arc, time::Duration};

use axum::{
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, VARY},
    },
    response::{IntoResponse, Response},
};
use uuid::Uuid;

use super::{
    ChangeStream, DocumentName, Names, NumberedPages, PageState, Rendering,
    rendering::DocumentUrls,
    snapshot::{CHANGING, StreamSnapshot},
    with_query,
};
use crate::{
    cache::LruCache,
    journal::Journal,
    model::{Filter, Seq},
    view::{
        cache_control::{self, Lifetime},
        journal_problem, page_gone,
    },
    web::{Content, Problem, ProblemCode, ReadPermit, RenderPermit, Spool, negotiated_media_type, spool_problem},
};

/// Maximum number of attempts to write a document while retention removes changes of it.
const MAX_ATTEMPTS: u32 = 5;

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of documents that a view keeps in memory.
const MAX_KEPT: usize = 256;

/// Maximum size of the documents that a view keeps in memory, in bytes.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// A protocol whose documents are numbered pages, and documents that link to these.
pub(in crate::view) trait PageProtocol: Send + Sync + 'static {
    /// Path of the entry, which redirects to the first document.
    const PATH: &'static str;
    const NAMES: Names;
    /// Media types of the documents, the preferred one first.
    const MEDIA_TYPES: &'static [&'static str];

    /// Describes how documents are written: the settings and the version of the rendering.
    fn description(&self) -> String;

    /// Describes what the first document has besides its links, which is no part of the identity of the stream.
    fn entry_description(&self) -> String {
        String::new()
    }

    /// Returns the number of the first change that readers of the documents still find when they follow the links: the
    /// pages before it are not linked.
    fn first_linked(
        &self,
        pages: &NumberedPages,
        journal: &Journal,
    ) -> impl Future<Output = Result<Seq, Problem>> + Send;

    /// Returns the lifetime in caches of the newest page.
    fn newest_lifetime(&self) -> Lifetime {
        CHANGING
    }

    /// Returns the lifetime in caches of a closed page, which is whole or has lost changes to retention.
    fn closed_lifetime(&self, is_whole: bool) -> Lifetime;

    /// Writes a document. It runs on a blocking thread.
    ///
    /// # Errors
    /// Fails if the journal or the disk fails.
    fn write(&self, rendering: &Rendering<'_>, out: &mut dyn Write) -> Result<(), Problem>;
}

/// The view of a protocol. Clones share it.
pub struct PagedView<P>(Arc<ViewState<P>>);

impl<P> Clone for PagedView<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct ViewState<P> {
    journal: Journal,
    spool: Spool,
    base: String,
    protocol: P,
    /// Documents that were written last, by their names and tags. A tag names everything that the bytes of a document depend on.
    kept: LruCache<(DocumentName, HeaderValue), Content>,
}

#[expect(private_bounds, reason = "only this module has protocols")]
impl<P: PageProtocol> PagedView<P> {
    pub(in crate::view) fn of(journal: Journal, spool: Spool, public_url: &str, protocol: P) -> Self {
        let base = public_url.trim_end_matches('/').to_owned();
        Self(Arc::new(ViewState { journal, spool, base, protocol, kept: LruCache::new(MAX_KEPT, MAX_KEPT_BYTES) }))
    }

    pub(super) fn protocol(&self) -> &P {
        &self.0.protocol
    }

    /// Returns the URL of the gateway, without a trailing slash.
    pub(super) fn base(&self) -> &str {
        &self.0.base
    }

    /// Returns the space for documents that are being written.
    pub(super) fn spool(&self) -> &Spool {
        &self.0.spool
    }

    /// Returns the stream that a filter selects.
    pub(super) fn stream(&self, filter: Filter) -> ChangeStream {
        let ViewState { journal, base, protocol, .. } = &*self.0;
        ChangeStream::new(journal, filter, base, &protocol.description())
    }

    /// Returns the redirection to the first document of the stream that a filter selects.
    pub(in crate::view) fn entry(&self, filter: Filter) -> Response {
        let stream = self.stream(filter);
        let url = DocumentUrls::at_gateway(self.base(), P::PATH, P::NAMES, &stream).url(DocumentName::Entry);
        let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.extend(HeaderValue::from_str(&url).ok().map(|url| (LOCATION, url)));
        response
    }

    /// Returns a document of a stream.
    ///
    /// # Errors
    /// `gone` if the stream is another one now, or the page has been removed; `not-found`; `not-acceptable`;
    /// `damaged-change`; `unavailable` if the journal cannot be read.
    pub(in crate::view) async fn document(
        &self,
        (permit, headers): (&ReadPermit, &HeaderMap),
        (asked, name): (Uuid, &str),
        filter: Filter,
    ) -> Result<Response, Problem> {
        let media_type = negotiated_media_type(headers, P::MEDIA_TYPES)?;
        let stream = self.stream(filter);
        if stream.id != asked {
            return Err(other_stream::<P>(asked, &stream));
        }
        let document = P::NAMES.parse(name).ok_or_else(|| no_document::<P>(&stream, name))?;
        let mut is_published = false;
        for _ in 0..MAX_ATTEMPTS {
            let mut snapshot = StreamSnapshot::of(self, &stream).await?;
            if !is_published && snapshot.may_be_behind(document) {
                // Another node may have linked the document, or the page after it.
                stream.journal().until_published().await.map_err(journal_problem)?;
                is_published = true;
                snapshot = StreamSnapshot::of(self, &stream).await?;
            }
            match (document, snapshot.state(document)) {
                (_, PageState::Unknown) => return Err(no_document::<P>(&stream, name)),
                (DocumentName::Page(page), PageState::Removed) => {
                    return Err(page_gone(page, snapshot.pages().first()));
                }
                (_, PageState::Removed) => return Err(block_gone(snapshot.pages().first())),
                (_, PageState::Closed | PageState::Truncated | PageState::Open) => {}
            }
            let validity = snapshot.validity(document);
            let tag = cache_control::tag(stream.id, validity.span, permit, &validity.kind);
            let response = if cache_control::is_known(headers, &tag) {
                Some(StatusCode::NOT_MODIFIED.into_response())
            } else {
                let content = self.kept_or_written(snapshot, (document, tag.clone())).await?;
                content.map(|content| with_content(media_type, &content))
            };
            // Checked after the changes were read, so that no change of a later journal is in the stream of an earlier one.
            if !stream.is_current() {
                return Err(other_stream::<P>(asked, &stream));
            }
            if let Some(mut response) = response {
                let headers = response.headers_mut();
                headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
                cache_control::add(headers, validity.lifetime.header(permit), tag);
                return Ok(response);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let detail = "Retention removes the changes of this document at present.";
        Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(Duration::from_secs(1)))
    }

    /// Returns a document with its tag from memory, or writes it; `None` if retention has removed changes of it meanwhile.
    async fn kept_or_written(
        &self,
        snapshot: StreamSnapshot<P>,
        key: (DocumentName, HeaderValue),
    ) -> Result<Option<Content>, Problem> {
        if let Some(content) = self.0.kept.get(&key) {
            return Ok(Some(content));
        }
        let page_permit = self.0.spool.page_permit().await;
        // Another reader may have waited for the same document.
        if let Some(content) = self.0.kept.get(&key) {
            return Ok(Some(content));
        }
        let written = self.written(page_permit, snapshot, key.0).await?;
        if let Some(content @ Content::Memory(bytes)) = &written {
            self.0.kept.insert(key, content.clone(), bytes.len());
        }
        Ok(written)
    }

    /// Writes a document; `None` if retention has removed changes of it meanwhile.
    async fn written(
        &self,
        page_permit: RenderPermit,
        snapshot: StreamSnapshot<P>,
        document: DocumentName,
    ) -> Result<Option<Content>, Problem> {
        let snapshot = Arc::new(snapshot);
        let writing = (self.0.spool.clone(), Arc::clone(&snapshot));
        let work = move || {
            let (spool, snapshot) = writing;
            let mut out = spool.writer();
            snapshot.write(document, &mut out)?;
            out.finish().map_err(spool_problem)
        };
        match Spool::blocking(page_permit, work).await {
            Err(problem) if problem.code() == ProblemCode::Gone => Ok(None),
            _ if snapshot.is_outdated(document) => Ok(None),
            written => written.map(Some),
        }
    }
}

/// Returns the response of a handler to this reader. Pages of other sites may show what everybody may read, and the reason
/// why it is not there.
pub(in crate::view) async fn answer(
    permit: &ReadPermit,
    response: impl Future<Output = Result<Response, Problem>>,
) -> Response {
    let mut response = response.await.into_response();
    if permit.is_public() {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}

fn with_content(media_type: &'static str, content: &Content) -> Response {
    let mut response = Response::new(content.body());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(content.length()));
    response
}

/// Returns the problem of a reader whose stream has ended.
fn other_stream<P: PageProtocol>(asked: Uuid, stream: &ChangeStream) -> Problem {
    let path = with_query(P::PATH, &stream.query);
    let detail = format!(
        "The stream {asked} is not here any more: a restore or a failover has replaced the journal, or the settings of the \
         stream or what you may see have changed. Start again at {path}, which leads to the present stream. A mirror \
         that must not miss a deletion begins with the current registry: /snapshot."
    );
    Problem::new(ProblemCode::Gone, detail).with("start", path).with("snapshot", "/snapshot")
}

fn block_gone(first: Seq) -> Problem {
    let detail = format!(
        "All pages of this block have been removed: the oldest change has the number {first}. The current state of the \
         objects is in the registry: read it page by page from /snapshot."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}

fn no_document<P: PageProtocol>(stream: &ChangeStream, name: &str) -> Problem {
    let first = P::NAMES.of(DocumentName::Entry);
    let detail = format!(
        "There is no document {name:?} yet, or a restore from a backup has skipped it. Start at {}/{}/{first} and follow \
         its links.",
        P::PATH,
        stream.id
    );
    Problem::new(ProblemCode::NotFound, detail)
}
