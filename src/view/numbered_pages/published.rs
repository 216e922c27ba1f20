//! The documents of a protocol with numbered pages as files of a published copy.
//!
//! The first document has one path in all editions. Pages, and the documents between, are in the folder of their edition: the
//! newest page is open under the path that it keeps when it is closed. The oldest page is open too, because it has no link to
//! the page before, which retention has removed. A block between the first and the last one lists the same pages as long as it is
//! between, so it is fixed.

use super::{
    DocumentName, NumberedPages, PageProtocol, PageState, PagedView, block_of, names::PAGE_WORD,
    rendering::DocumentUrls, snapshot::StreamSnapshot,
};
use crate::{
    model::Filter,
    publish::{DocumentName as FileName, Edition, Face, LISTED},
    view::{block_on, cache_control::Lifetime},
    web::{CachePolicy, DocumentWriter, Problem, Representation, spool_problem},
};

#[expect(private_bounds, reason = "only this module has protocols")]
impl<P: PageProtocol> PagedView<P> {
    fn snapshot(&self, edition: &Edition) -> Result<StreamSnapshot<P>, Problem> {
        let stream = self.stream(Filter { view: edition.view.clone(), ..Filter::default() });
        let urls = DocumentUrls::in_copy(edition, self.name(), P::NAMES);
        block_on(StreamSnapshot::new(self, &stream, NumberedPages::of_edition(edition), urls))
    }
}

/// Returns the path of a document that is in the folder of its edition.
fn path<P: PageProtocol>(edition: &Edition, document: DocumentName) -> String {
    format!("{}/{}", edition.folder, P::NAMES.of(document))
}

impl<P: PageProtocol> Face for PagedView<P> {
    fn name(&self) -> &'static str {
        P::PATH.trim_start_matches('/')
    }

    fn closed_word(&self) -> &'static str {
        PAGE_WORD
    }

    fn fingerprint(&self) -> String {
        // The documents link to the gateway.
        format!("{} {}", self.base(), self.protocol().description())
    }

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        Ok(NumberedPages::of_edition(edition).oldest())
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<FileName>, Problem> {
        let pages = NumberedPages::of_edition(edition);
        let first = after.max(pages.oldest()).saturating_add(1);
        let closed = pages.range(first, pages.newest()).filter(|page| pages.state(*page) == PageState::Closed);
        let name = |page| FileName::closed(path::<P>(edition, DocumentName::Page(page)), page);
        Ok(closed.take(LISTED).map(name).collect())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<FileName>, Problem> {
        let snapshot = self.snapshot(edition)?;
        let pages = snapshot.pages();
        let ends = [pages.oldest(), pages.newest()];
        let ends = &ends[usize::from(ends[0] == ends[1])..];
        let oldest_block = block_of(snapshot.oldest_linked());
        let newest_block = block_of(pages.newest());
        let name = |document| path::<P>(edition, document);
        let block = |block: u64| match oldest_block < block && block < newest_block {
            true => FileName::fixed(name(DocumentName::Block(block))),
            false => FileName::open(name(DocumentName::Block(block))),
        };
        let blocks = pages.blocks(snapshot.oldest_linked()).filter(|_| P::NAMES.blocks);
        let blocks = blocks.take_while(|block| *block <= newest_block).map(block);
        let pages = ends.iter().map(|page| FileName::open(name(DocumentName::Page(*page))));
        let entry = format!("{}/{}", self.name(), P::NAMES.of(DocumentName::Entry));
        Ok(pages.chain(blocks).chain([FileName::open(entry)]).collect())
    }

    fn render(&self, edition: &Edition, document: &FileName) -> Result<Representation, Problem> {
        let name = document.path.rsplit('/').next().unwrap_or_default();
        let listed = P::NAMES.parse(name);
        let listed = listed.ok_or_else(|| Problem::internal(format!("a copy has no document {name}")))?;
        let cache = match self.protocol().closed_lifetime(true) {
            Lifetime::Fixed if document.number.is_some() => CachePolicy::Immutable,
            _ => CachePolicy::Revalidate,
        };
        let mut out = DocumentWriter::new(self.spool());
        self.snapshot(edition)?.write(listed, &mut out)?;
        out.finish(P::MEDIA_TYPES[0], cache).map_err(spool_problem)
    }
}

#[cfg(test)]
mod tests {
    use super::{Edition, Face};
    use crate::{
        journal::retention::Retention,
        model::Seq,
        view::{
            ldes::{Ldes, LdesSettings},
            test_journal::{journal_of, small_draft},
        },
        web::Spool,
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn blocks_between_the_first_and_the_last_are_fixed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 3, 10, folder.path()).await;
        let settings = LdesSettings { title: "t".to_owned(), polling_seconds: 60, retention: Retention::default() };
        let ldes = Ldes::new(journal, Spool::new(folder.path(), 1 << 20), "https://g", settings);
        let edition = Edition {
            journal: uuid::Uuid::nil(),
            head: Seq(350_000),
            first: Seq(1),
            skipped: [].into(),
            view: None,
            url: "http://copy".to_owned(),
            folder: "ldes/0123456789abcdef".to_owned(),
            fixed: std::sync::Arc::default(),
        };
        let listed = tokio::task::spawn_blocking(move || ldes.open(&edition).unwrap()).await.unwrap();
        let blocks = listed.iter().filter_map(|name| {
            let block = name.path.rsplit('/').next()?.strip_prefix("block-")?;
            Some((block.trim_end_matches(".jsonld").to_owned(), name.is_fixed))
        });
        let expected = [("1", false), ("2", true), ("3", true), ("4", false)];
        assert!(blocks.eq(expected.map(|(block, is_fixed)| (block.to_owned(), is_fixed))), "{listed:?}");
    }
}
