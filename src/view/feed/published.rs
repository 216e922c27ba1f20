//! The feed as files of a published copy: `feed.atom`, its style, and a file for each archive page.
//!
//! The pages have the same changes as those of the gateway, so a page can be empty if the copy shows only a part of the
//! journal.

use sha2::{Digest, Sha256};

use super::{
    super::{
        atom::{CopyUrls, Site},
        block_on, journal_problem,
        numbered_pages::{PAGE_CHANGES, first_of, page_of},
    },
    FeedView, RENDERING,
    current::FeedSettings,
    rendering::Renderer,
    style,
};
use crate::{
    model::Seq,
    publish::{Document, Edition, Face},
    web::Problem,
};

impl FeedSettings {
    /// Returns the renderer of an edition. The links of entries to their changes lead to the gateway.
    fn renderer(&self, edition: &Edition) -> Renderer {
        let Self { journal, base, spool, labels, .. } = self;
        let copy = Some(CopyUrls { base: edition.url.clone(), archive: edition.folder.clone() });
        let site = Site { base: base.clone(), journal: edition.journal, hub: None, labels: labels.clone(), copy };
        Renderer { journal: journal.clone(), site, spool: spool.clone(), view: edition.view.clone() }
    }

    /// Returns the page of the newest change before `start`, unless retention has removed a part of it: the copy has no file
    /// of such a page.
    fn complete_page_before(&self, start: Seq, edition: &Edition) -> Result<Option<u64>, Problem> {
        let before = block_on(self.journal.number_before(start)).map_err(journal_problem)?;
        Ok(before.map(page_of).filter(|page| first_of(*page) >= edition.first))
    }
}

/// Returns the number of the page that is the first one in the subscription document.
fn newest_complete(edition: &Edition) -> u64 {
    (edition.head.0 / PAGE_CHANGES).max(1)
}

impl Face for FeedView {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn fingerprint(&self) -> String {
        let FeedSettings { base, labels, .. } = self.settings();
        let texts = [Some(base), Some(&labels.title), labels.author.as_ref()].into_iter().flatten();
        let digest = Sha256::new().chain_update(RENDERING.to_be_bytes());
        let digest = texts.fold(digest, |digest, text| {
            // The length separates the texts.
            digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text)
        });
        hex::encode(digest.finalize())
    }

    fn first_closed(&self, edition: &Edition) -> u64 {
        page_of(edition.first) + u64::from(first_of(page_of(edition.first)) < edition.first)
    }

    fn next_closed(&self, edition: &Edition, after: u64) -> Result<Option<u64>, Problem> {
        let after = after.max(self.first_closed(edition) - 1);
        // A restore skips numbers, and therefore pages.
        let next = block_on(self.settings().journal.after_within(Seq(after * PAGE_CHANGES), 1, 1));
        let next = next.map_err(journal_problem)?.first().map(|next| page_of(next.seq()));
        Ok(next.filter(|page| *page < newest_complete(edition)))
    }

    fn closed_name(&self, edition: &Edition, number: u64) -> String {
        format!("{}/{number}.atom", edition.folder)
    }

    fn closed(&self, edition: &Edition, number: u64) -> Result<Vec<Document>, Problem> {
        let settings = self.settings();
        let prev = settings.complete_page_before(first_of(number), edition)?;
        let content = settings.renderer(edition).archive(number, prev)?;
        Ok(vec![Document { name: self.closed_name(edition, number), content }])
    }

    fn open(&self, edition: &Edition) -> Result<Vec<Document>, Problem> {
        let start = first_of(newest_complete(edition));
        let prev = self.settings().complete_page_before(start, edition)?;
        let newest = self.settings().renderer(edition).newest(start, edition.head, prev)?.document;
        Ok(vec![
            Document { name: "feed.css".to_owned(), content: style::STYLE.clone() },
            Document { name: "feed.atom".to_owned(), content: newest },
        ])
    }
}
