//! The documents of a protocol with numbered pages: their names, their cache headers, and who gets them.
//!
//! The URL of a document names the stream, whose identity depends on the journal, on the settings, on the filter, and on what
//! the reader may see ([`ChangeStream::id`]). So a closed page never changes, and caches may keep it. After a restore
//! all documents have other URLs, and the former ones are `gone`.

use std::{io::Write, sync::Arc};

use axum::{
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, VARY},
    },
    response::{IntoResponse, Response},
};
use uuid::Uuid;

use super::{ChangeStream, NumberedPages, PageState, first_of, last_of};
use crate::{
    journal::Journal,
    model::{Filter, Seq},
    view::{
        cache_control::{self, Lifetime},
        page_gone,
    },
    web::{Content, Problem, ProblemCode, ReadPermit, Spool, negotiated_media_type, spool_problem},
};

/// Lifetime of documents that change with the journal. Caches serve many readers at the same moment with one of them.
const CHANGING: Lifetime = Lifetime::Seconds(1);

/// Names of the documents of a protocol.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Names {
    /// Name of the first document, without its extension.
    pub(in crate::view) entry: &'static str,
    /// Extension of all names.
    pub(in crate::view) extension: &'static str,
    /// Whether there are blocks between the first document and the pages.
    pub(in crate::view) blocks: bool,
}

/// Name of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::view) enum DocumentName {
    /// The first document, from which all others are reached.
    Entry,
    /// A document that links to a block of pages.
    Block(u64),
    /// A page.
    Page(u64),
}

impl Names {
    fn parse(self, name: &str) -> Option<DocumentName> {
        let stem = name.strip_suffix(self.extension)?.strip_suffix('.')?;
        if stem == self.entry {
            return Some(DocumentName::Entry);
        }
        let (kind, number) = stem.split_once('-')?;
        // One spelling for each document.
        let number = number.parse::<u64>().ok().filter(|parsed| parsed.to_string() == number)?;
        match kind {
            "page" => Some(DocumentName::Page(number)),
            "block" if self.blocks => Some(DocumentName::Block(number)),
            _ => None,
        }
    }

    /// Returns the name of a document: that of a file.
    pub(in crate::view) fn of(self, document: DocumentName) -> String {
        let extension = self.extension;
        match document {
            DocumentName::Entry => format!("{}.{extension}", self.entry),
            DocumentName::Block(number) => format!("block-{number}.{extension}"),
            DocumentName::Page(number) => format!("page-{number}.{extension}"),
        }
    }
}

/// Appends the query of a filter to a URL.
pub(in crate::view) fn with_query(url: &str, query: &str) -> String {
    if query.is_empty() { url.to_owned() } else { format!("{url}?{query}") }
}

/// A document that is being written.
pub(in crate::view) struct Rendering<'a> {
    pub(in crate::view) stream: &'a ChangeStream,
    pub(in crate::view) pages: NumberedPages,
    /// Oldest page that other documents link to.
    pub(in crate::view) oldest: u64,
    pub(in crate::view) document: DocumentName,
    /// URL of the gateway, without a trailing slash.
    pub(in crate::view) base: &'a str,
    path: &'static str,
    names: Names,
}

impl Rendering<'_> {
    /// Returns the URL of a document.
    pub(in crate::view) fn url(&self, document: DocumentName) -> String {
        let Self { stream, base, path, names, .. } = self;
        with_query(&format!("{base}{path}/{}/{}", stream.id, names.of(document)), &stream.query)
    }

    /// Returns the URL of a document, relative to that of any other.
    pub(in crate::view) fn relative_url(&self, document: DocumentName) -> String {
        with_query(&self.names.of(document), &self.stream.query)
    }
}

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

    /// Returns the oldest page that documents link to.
    fn oldest_linked(
        &self,
        pages: &NumberedPages,
        journal: &Journal,
    ) -> impl Future<Output = Result<u64, Problem>> + Send;

    /// Returns the lifetime of a closed page in caches.
    fn closed_lifetime(&self) -> Lifetime;

    /// Writes a document. It runs on a blocking thread.
    ///
    /// # Errors
    /// Fails if the journal or the disk fails.
    fn write(&self, rendering: &Rendering<'_>, out: &mut dyn Write) -> Result<(), Problem>;
}

/// A document for a static copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDocument {
    /// Path below the URL of the gateway, without a query: that of a file.
    pub path: String,
    /// Whether the document never changes.
    pub is_closed: bool,
    name: DocumentName,
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
}

#[expect(private_bounds, reason = "only this module has protocols")]
impl<P: PageProtocol> PagedView<P> {
    pub(in crate::view) fn of(journal: Journal, spool: Spool, public_url: &str, protocol: P) -> Self {
        let base = public_url.trim_end_matches('/').to_owned();
        Self(Arc::new(ViewState { journal, spool, base, protocol }))
    }

    /// Returns the redirection to the first document of the stream that a filter selects.
    pub(in crate::view) fn entry(&self, filter: Filter) -> Response {
        let ViewState { journal, base, protocol, .. } = &*self.0;
        let stream = ChangeStream::new(journal, filter, &protocol.description());
        let first = P::NAMES.of(DocumentName::Entry);
        let url = with_query(&format!("{base}{}/{}/{first}", P::PATH, stream.id), &stream.query);
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
        let ViewState { journal, spool, protocol, .. } = &*self.0;
        let stream = ChangeStream::new(journal, filter, &protocol.description());
        if stream.id != asked {
            return Err(other_stream::<P>(asked, &stream));
        }
        let document = P::NAMES.parse(name).ok_or_else(|| no_document::<P>(&stream, name))?;
        let pages = NumberedPages::of(journal);
        let oldest = protocol.oldest_linked(&pages, journal).await?;
        let state = match document {
            DocumentName::Entry => PageState::Open,
            DocumentName::Block(block) => pages.block_state(block, oldest),
            DocumentName::Page(page) => pages.state(page),
        };
        let (span, kind, lifetime) = match (document, state) {
            (_, PageState::Unknown) => return Err(no_document::<P>(&stream, name)),
            (DocumentName::Page(page), PageState::Removed) => return Err(page_gone(page, pages.first())),
            (_, PageState::Removed) => return Err(block_gone(pages.first())),
            (DocumentName::Page(page), PageState::Closed) => {
                let kind = if page == pages.oldest() { "oldest page" } else { "page" };
                ((first_of(page), last_of(page)), kind.to_owned(), protocol.closed_lifetime())
            }
            (DocumentName::Page(_), PageState::Open) => {
                ((pages.first(), pages.head()), "newest page".to_owned(), CHANGING)
            }
            _ => ((Seq(oldest), Seq(pages.newest())), protocol.entry_description(), CHANGING),
        };
        let tag = cache_control::tag(stream.id, span, permit, &kind);
        let mut response = if cache_control::is_known(headers, &tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let (copy, page_permit) = (self.copy_of(&stream, pages, oldest), spool.page_permit().await);
            let work = move || {
                let mut out = copy.view.0.spool.writer();
                copy.write_named(document, &mut out)?;
                out.finish().map_err(spool_problem)
            };
            with_content(media_type, &Spool::blocking(page_permit, work).await?)
        };
        // Checked after the changes were read, so that no change of a later journal is in the stream of an earlier one.
        if !stream.is_current() {
            return Err(other_stream::<P>(asked, &stream));
        }
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if permit.is_public() {
            // Pages of other sites may show what everybody may read.
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        cache_control::add(headers, lifetime.header(permit), tag);
        Ok(response)
    }

    /// Returns all documents of the stream that a filter selects, as of now.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub async fn copy(&self, filter: Filter) -> Result<PagedCopy<P>, Problem> {
        let ViewState { journal, protocol, .. } = &*self.0;
        let stream = ChangeStream::new(journal, filter, &protocol.description());
        let pages = NumberedPages::of(journal);
        let oldest = protocol.oldest_linked(&pages, journal).await?;
        Ok(self.copy_of(&stream, pages, oldest))
    }

    fn copy_of(&self, stream: &ChangeStream, pages: NumberedPages, oldest: u64) -> PagedCopy<P> {
        PagedCopy { view: self.clone(), stream: stream.clone(), pages, oldest }
    }
}

/// The documents of a stream as of one moment, such as for files that a web server serves.
pub struct PagedCopy<P> {
    view: PagedView<P>,
    stream: ChangeStream,
    pages: NumberedPages,
    oldest: u64,
}

#[expect(private_bounds, reason = "only this module has protocols")]
impl<P: PageProtocol> PagedCopy<P> {
    /// Returns the documents. Each one links only to documents before it, and pages to the pages beside them.
    pub fn documents(&self) -> impl Iterator<Item = PageDocument> {
        let newest = self.pages.newest();
        let pages = self.pages.range(self.oldest, newest).map(DocumentName::Page);
        let blocks = self.pages.blocks(self.oldest).filter(|_| P::NAMES.blocks).map(DocumentName::Block);
        pages.chain(blocks).chain([DocumentName::Entry]).map(move |name| PageDocument {
            path: format!("{}/{}/{}", &P::PATH[1..], self.stream.id, P::NAMES.of(name)),
            is_closed: matches!(name, DocumentName::Page(page) if page != newest),
            name,
        })
    }

    /// Writes a document. It must run on a blocking thread.
    ///
    /// # Errors
    /// `gone` if the page has been removed, or the journal is another one now; `damaged-change`; `unavailable` if the
    /// journal or the disk fails.
    pub fn write(&self, document: &PageDocument, out: &mut dyn Write) -> Result<(), Problem> {
        self.write_named(document.name, out)?;
        if self.stream.is_current() { Ok(()) } else { Err(other_stream::<P>(self.stream.id, &self.stream)) }
    }

    fn write_named(&self, document: DocumentName, out: &mut dyn Write) -> Result<(), Problem> {
        let Self { view, stream, pages, oldest } = self;
        let (pages, oldest, base) = (pages.clone(), *oldest, &view.0.base);
        let rendering = Rendering { stream, pages, oldest, document, base, path: P::PATH, names: P::NAMES };
        view.0.protocol.write(&rendering, out)
    }
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{DocumentName, Filter, Names, PageDocument, PageProtocol, PagedView, Spool};
    use crate::{
        journal::retention::Retention,
        view::{
            iiif_discovery::{IiifDiscovery, IiifDiscoverySettings, Wording},
            ldes::{Ldes, LdesSettings},
            test_journal::{journal_of, small_draft},
        },
    };

    /// Returns the documents of a view with their JSON, and checks that each has the same bytes when it is written again.
    async fn documents<P: PageProtocol>(view: PagedView<P>) -> Vec<(PageDocument, Value)> {
        let copy = view.copy(Filter::default()).await.unwrap();
        let write = move || {
            let documents: Vec<_> = copy.documents().collect();
            let written = documents.into_iter().map(|document| {
                let [mut first, mut again] = [Vec::new(), Vec::new()];
                copy.write(&document, &mut first).unwrap();
                copy.write(&document, &mut again).unwrap();
                assert_eq!(first, again, "{document:?}");
                let json = serde_json::from_slice(&first).unwrap();
                (document, json)
            });
            written.collect()
        };
        tokio::task::spawn_blocking(write).await.unwrap()
    }

    fn names(documents: &[(PageDocument, Value)]) -> Vec<(&str, bool)> {
        let name = |document: &PageDocument| document.path.rfind('/').map_or(0, |slash| slash + 1);
        documents.iter().map(|(document, _)| (&document.path[name(document)..], document.is_closed)).collect()
    }

    #[tokio::test]
    async fn copy_has_all_documents_as_files() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 250, 10, folder.path()).await;
        let spool = Spool::new(folder.path(), 64 << 20);
        let settings = IiifDiscoverySettings {
            class: "Object".to_owned(),
            manifest: None,
            wording: Wording::Publisher,
            has_retention: false,
        };
        let iiif = documents(IiifDiscovery::new(journal.clone(), spool.clone(), "https://g", settings)).await;
        let pages = [("page-1.json", true), ("page-2.json", true), ("page-3.json", false), ("collection.json", false)];
        assert_eq!(names(&iiif), pages);
        let items = iiif.iter().filter_map(|(_, document)| document["orderedItems"].as_array());
        assert_eq!(items.map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
        assert!(iiif.iter().all(|(document, json)| json["id"] == format!("https://g/{}", document.path)));
        let settings = LdesSettings { title: "t".to_owned(), polling_seconds: 60, retention: Retention::default() };
        let ldes = documents(Ldes::new(journal, spool, "https://g", settings)).await;
        assert_eq!(names(&ldes)[3..], [("block-1.jsonld", false), ("root.jsonld", false)]);
        let relations = |at: usize| ldes[at].1["view"]["relation"].as_array().unwrap().len();
        assert_eq!((relations(3), relations(4)), (5, 5));
    }

    #[test]
    fn each_document_has_one_name() {
        let names = Names { entry: "root", extension: "jsonld", blocks: true };
        for document in [DocumentName::Entry, DocumentName::Block(1), DocumentName::Page(1_801_000_000_000)] {
            assert_eq!(names.parse(&names.of(document)), Some(document));
        }
        for name in
            ["", "root", "root.json", "page-01.jsonld", "page-+1.jsonld", "page-.jsonld", "rootjsonld", "leaf-1.jsonld"]
        {
            assert_eq!(names.parse(name), None, "{name}");
        }
        assert_eq!(Names { blocks: false, ..names }.parse("block-1.jsonld"), None);
    }
}
