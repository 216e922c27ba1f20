//! The documents of a stream as of one moment.

use std::io::Write;

use super::{
    ChangeStream, DocumentName, NumberedPages, PageProtocol, PageState, PagedView, Rendering, block_of, first_of,
    last_of, page_of, pages_of, rendering::DocumentUrls,
};
use crate::{model::Seq, view::cache_control::Lifetime, web::Problem};

/// Lifetime of documents that change with the journal. Caches serve many readers at the same moment with one of them.
pub(in crate::view) const CHANGING: Lifetime = Lifetime::Seconds(1);

/// Maximum number of pages that another node can have more. Requests for later ones cost no question to the database.
const MAX_PAGES_BEHIND: u64 = 1000;

/// The documents of a stream as of one moment.
pub(super) struct StreamSnapshot<P> {
    view: PagedView<P>,
    stream: ChangeStream,
    pages: NumberedPages,
    urls: DocumentUrls,
    /// Number of the first change that retention does not remove soon.
    first_linked: Seq,
    /// Oldest page that other documents link to.
    oldest: u64,
}

/// How clients and caches recognize a document.
pub(super) struct Validity {
    /// Numbers of the first and the last change, or page, on which the document depends.
    pub(super) span: (Seq, Seq),
    /// Text of everything else on which it depends, besides the stream and its URL.
    pub(super) kind: String,
    pub(super) lifetime: Lifetime,
}

impl<P: PageProtocol> StreamSnapshot<P> {
    /// Returns the documents of a stream as of now, at the gateway.
    ///
    /// # Errors
    /// `unavailable` if the journal cannot be read.
    pub(super) async fn of(view: &PagedView<P>, stream: &ChangeStream) -> Result<Self, Problem> {
        let urls = DocumentUrls::at_gateway(view.base(), P::PATH, P::NAMES, stream);
        Self::new(view, stream, NumberedPages::of(stream.journal()), urls).await
    }

    /// Returns the documents of a stream that has these pages.
    ///
    /// # Errors
    /// `unavailable` if the journal cannot be read.
    pub(super) async fn new(
        view: &PagedView<P>,
        stream: &ChangeStream,
        pages: NumberedPages,
        urls: DocumentUrls,
    ) -> Result<Self, Problem> {
        let linked = view.protocol().first_linked(&pages, stream.journal()).await?;
        // The newest change always stays.
        let first_linked = linked.max(pages.first()).min(pages.head().max(Seq(1)));
        let oldest = pages.range(page_of(first_linked), pages.newest()).next().unwrap_or(pages.newest());
        Ok(Self { view: view.clone(), stream: stream.clone(), pages, urls, first_linked, oldest })
    }

    /// Returns the number of the oldest page that other documents link to.
    pub(super) fn oldest_linked(&self) -> u64 {
        self.oldest
    }

    /// Returns the pages of the journal.
    pub(super) fn pages(&self) -> &NumberedPages {
        &self.pages
    }

    /// Returns the state of a document.
    pub(super) fn state(&self, document: DocumentName) -> PageState {
        match document {
            DocumentName::Entry => PageState::Open,
            // A block exists as long as one of its pages, although no document links to it any more.
            DocumentName::Block(block) => self.pages.block_state(block, self.pages.oldest()),
            DocumentName::Page(page) => self.pages.state(page),
        }
    }

    /// Returns whether another node may have a later state of the document: it is the newest page or one of those that follow.
    pub(super) fn may_be_behind(&self, document: DocumentName) -> bool {
        let newest = self.pages.newest();
        match document {
            DocumentName::Entry => false,
            DocumentName::Page(page) => (newest..=newest + MAX_PAGES_BEHIND).contains(&page),
            DocumentName::Block(block) => (block_of(newest) + 1..=block_of(newest + MAX_PAGES_BEHIND)).contains(&block),
        }
    }

    /// Returns how clients and caches recognize a document that exists.
    pub(super) fn validity(&self, document: DocumentName) -> Validity {
        let Self { view, pages, first_linked, oldest, .. } = self;
        let (protocol, begin) = (view.protocol(), self.begin(document));
        let of_page = |page| if page == pages.oldest() { "oldest page" } else { "page" }.to_owned();
        match (document, self.state(document)) {
            (DocumentName::Page(_), PageState::Open) => {
                // Its links depend on the oldest change.
                let span = (pages.first(), pages.head());
                Validity { span, kind: "newest page".to_owned(), lifetime: protocol.newest_lifetime() }
            }
            (DocumentName::Page(page), _) => {
                let lifetime = protocol.closed_lifetime(begin == first_of(page));
                Validity { span: (begin, last_of(page)), kind: of_page(page), lifetime }
            }
            (DocumentName::Block(block), _) => {
                let (first, last) = pages.listed_by(block, *oldest);
                // A full block only loses pages, so clients need not ask for it again.
                let is_full = pages_of(block).1 < pages.newest();
                let (kind, lifetime) = match is_full {
                    true => ("full block", protocol.closed_lifetime(false)),
                    false => ("block", CHANGING),
                };
                Validity { span: (pages.begin_of(first), self.newest_listed(last)), kind: kind.to_owned(), lifetime }
            }
            (DocumentName::Entry, _) => {
                let kind = format!("{oldest} {first_linked} {}", protocol.entry_description());
                Validity { span: (begin, self.newest_listed(pages.newest())), kind, lifetime: CHANGING }
            }
        }
    }

    /// Returns the newest of the pages that a document links to. An empty journal has the same pages as one with a change, and no
    /// windows.
    fn newest_listed(&self, page: u64) -> Seq {
        if self.pages.head() == Seq::ZERO { Seq::ZERO } else { Seq(page) }
    }

    /// Returns whether retention has meanwhile removed a change of a page. Other documents stay true: a window may begin
    /// earlier than its first change.
    pub(super) fn is_outdated(&self, document: DocumentName) -> bool {
        matches!(document, DocumentName::Page(_)) && self.stream.journal().first() > self.begin(document)
    }

    /// Returns the number of the first change on which a document depends.
    fn begin(&self, document: DocumentName) -> Seq {
        match document {
            DocumentName::Page(page) => self.pages.begin_of(page),
            DocumentName::Entry | DocumentName::Block(_) => self.pages.begin_of(self.oldest),
        }
    }

    /// Writes a document. It must run on a blocking thread.
    ///
    /// # Errors
    /// `gone` if retention removes a change of the document meanwhile; `damaged-change`; `unavailable` if the journal or
    /// the disk fails.
    pub(super) fn write(&self, document: DocumentName, out: &mut dyn Write) -> Result<(), Problem> {
        let Self { view, stream, pages, urls, first_linked, oldest } = self;
        let (pages, first_linked, oldest) = (pages.clone(), *first_linked, *oldest);
        let rendering = Rendering { stream, pages, first_linked, oldest, document, base: view.base(), urls };
        view.protocol().write(&rendering, out)
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::to_bytes, http::HeaderMap};
    use serde_json::Value;

    use super::{
        super::{DocumentName, NumberedPages, PageProtocol, PageState, PagedView, rendering::DocumentUrls},
        StreamSnapshot, Validity,
    };
    use crate::{
        journal::retention::Retention,
        model::{Filter, Seq},
        view::{
            iiif_discovery::{IiifDiscovery, IiifDiscoverySettings, Wording},
            ldes::{EventStream, Ldes, LdesSettings},
            test_journal::{append, journal_of, small_draft},
        },
        web::{ReadPermit, Spool},
    };

    /// Returns the bytes of documents as of now, and checks that each has the same ones when it is written again.
    async fn written<P: PageProtocol>(view: &PagedView<P>, documents: &'static [DocumentName]) -> Vec<Vec<u8>> {
        let snapshot = StreamSnapshot::of(view, &view.stream(Filter::default())).await.unwrap();
        let write = move || {
            let written = documents.iter().map(|document| {
                assert!(matches!(snapshot.state(*document), PageState::Closed | PageState::Open), "{document:?}");
                let [mut first, mut again] = [Vec::new(), Vec::new()];
                snapshot.write(*document, &mut first).unwrap();
                snapshot.write(*document, &mut again).unwrap();
                assert_eq!(first, again, "{document:?}");
                first
            });
            written.collect()
        };
        tokio::task::spawn_blocking(write).await.unwrap()
    }

    fn parsed(documents: &[Vec<u8>]) -> Vec<Value> {
        documents.iter().map(|document| serde_json::from_slice(document).unwrap()).collect()
    }

    #[tokio::test]
    async fn document_in_memory_is_that_of_the_present_journal() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 150, 10, folder.path()).await;
        let settings = IiifDiscoverySettings {
            class: "Object".to_owned(),
            manifest: None,
            wording: Wording::Publisher,
            has_retention: false,
        };
        let iiif = IiifDiscovery::new(journal.clone(), Spool::new(folder.path(), 1 << 20), "https://g", settings);
        let stream = iiif.stream(Filter::default()).id;
        let activities = async |name| {
            let request = (&ReadPermit::whole(), &HeaderMap::new());
            let response = iiif.document(request, (stream, name), Filter::default()).await.unwrap();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            serde_json::from_slice::<Value>(&body).unwrap()["orderedItems"].as_array().unwrap().len()
        };
        let both = async || (activities("page-1.json").await, activities("page-2.json").await);
        assert_eq!((both().await, both().await), ((100, 50), (100, 50)));
        append(&journal, small_draft(), 10).await;
        assert_eq!((both().await, both().await), ((100, 60), (100, 60)));
        append(&journal, small_draft(), 90).await;
        assert_eq!((both().await, both().await), ((100, 100), (100, 100)));
    }

    #[tokio::test]
    async fn full_block_keeps_its_tag_while_the_journal_grows() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 3, 10, folder.path()).await;
        let settings = LdesSettings { title: "t".to_owned(), polling_seconds: 60, retention: Retention::default() };
        let ldes = Ldes::new(journal, Spool::new(folder.path(), 1 << 20), "https://g", settings);
        let stream = ldes.stream(Filter::default());
        let validity = async |first, head, block| {
            let pages = NumberedPages { first: Seq(first), head: Seq(head), skipped: [].into() };
            let urls = DocumentUrls::at_gateway("https://g", "/ldes", EventStream::NAMES, &stream);
            let snapshot = StreamSnapshot::new(&ldes, &stream, pages, urls).await.unwrap();
            let Validity { span, kind, lifetime } = snapshot.validity(DocumentName::Block(block));
            (span, kind, lifetime)
        };
        let full = validity(1, 250_050, 1).await;
        assert_eq!(full, validity(1, 250_150, 1).await);
        assert_ne!(validity(1, 250_050, 3).await, validity(1, 250_150, 3).await);
        assert_ne!(full, validity(1, 100_000, 1).await, "no page follows yet");
        assert_ne!(full, validity(301, 250_050, 1).await, "it lists fewer pages");
    }

    #[tokio::test]
    async fn closed_documents_have_the_same_bytes_while_the_journal_grows() {
        use DocumentName::{Block, Entry, Page};
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 250, 10, folder.path()).await;
        let spool = Spool::new(folder.path(), 64 << 20);
        let settings = IiifDiscoverySettings {
            class: "Object".to_owned(),
            manifest: None,
            wording: Wording::Publisher,
            has_retention: false,
        };
        let iiif = IiifDiscovery::new(journal.clone(), spool.clone(), "https://g", settings);
        let of_iiif: &[DocumentName] = &[Page(1), Page(2), Page(3), Entry];
        let iiif_before = written(&iiif, of_iiif).await;
        let json = parsed(&iiif_before);
        let items = json.iter().filter_map(|document| document["orderedItems"].as_array());
        assert_eq!(items.map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
        let settings = LdesSettings { title: "t".to_owned(), polling_seconds: 60, retention: Retention::default() };
        let ldes = Ldes::new(journal.clone(), spool, "https://g", settings);
        let of_ldes: &[DocumentName] = &[Page(1), Page(2), Page(3), Block(1), Entry];
        let ldes_before = written(&ldes, of_ldes).await;
        let json = parsed(&ldes_before);
        let relations = |at: usize| json[at]["view"]["relation"].as_array().unwrap().len();
        assert_eq!((relations(3), relations(4)), (5, 5));
        append(&journal, small_draft(), 100).await;
        for (name, before, after) in
            [("IIIF", iiif_before, written(&iiif, of_iiif).await), ("LDES", ldes_before, written(&ldes, of_ldes).await)]
        {
            let same: Vec<_> = before.iter().zip(&after).map(|(before, after)| before == after).collect();
            // The third page is full now, and a fourth one has begun.
            assert_eq!(same[..3], [true, true, false], "{name}");
            assert!(!same[3], "{name}");
        }
    }
}
