//! The feed as files of a published copy: `feed.atom`, its style, and a file for each archive page.
//!
//! The pages have the same changes as those of the gateway, so a page can be empty if the copy shows only a part of the
//! journal.

use sha2::{Digest, Sha256};

use super::{
    super::{
        atom::{CopyUrls, Site},
        numbered_pages::{NumberedPages, PAGE_CHANGES, first_of, page_of},
    },
    FeedView, RENDERING,
    current::FeedSettings,
    rendering::Renderer,
    style,
};
use crate::{
    publish::{DocumentName, Edition, Face, LISTED},
    web::{Problem, Representation},
};

/// Paths of the open documents.
const STYLE: &str = "feed.css";
const NEWEST: &str = "feed.atom";

impl FeedSettings {
    /// Returns the renderer of an edition. The links of entries to their changes lead to the gateway.
    fn renderer(&self, edition: &Edition) -> Renderer {
        let Self { journal, base, spool, labels, .. } = self;
        let copy = Some(CopyUrls { base: edition.url.clone(), archive: edition.folder.clone() });
        let site = Site { base: base.clone(), journal: edition.journal, hub: None, labels: labels.clone(), copy };
        Renderer { journal: journal.clone(), site, spool: spool.clone(), view: edition.view.clone() }
    }
}

/// Returns the number of the page that is the first one in the subscription document.
fn newest_complete(edition: &Edition) -> u64 {
    (edition.head.0 / PAGE_CHANGES).max(1)
}

/// Returns the page before another, unless retention has removed a part of it: the copy has no file of such a page.
fn complete_page_before(page: u64, edition: &Edition) -> Option<u64> {
    NumberedPages::of_edition(edition).before(page).filter(|before| first_of(*before) >= edition.first)
}

impl Face for FeedView {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn closed_word(&self) -> &'static str {
        ""
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

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        let page = page_of(edition.first).max(1);
        Ok(page + u64::from(first_of(page) < edition.first))
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let first = self.first(edition)?.max(after.saturating_add(1));
        let pages = NumberedPages::of_edition(edition);
        let pages = pages.range(first, newest_complete(edition) - 1).take(LISTED);
        Ok(pages.map(|page| DocumentName::closed(format!("{}/{page}.atom", edition.folder), page)).collect())
    }

    fn open(&self, _: &Edition) -> Result<Vec<DocumentName>, Problem> {
        Ok(vec![DocumentName::open(STYLE), DocumentName::open(NEWEST)])
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        let renderer = self.settings().renderer(edition);
        match document.number {
            Some(page) => renderer.archive(page, complete_page_before(page, edition)),
            None if document.path == STYLE => Ok(style::STYLE.clone()),
            None => {
                let page = newest_complete(edition);
                let prev = complete_page_before(page, edition);
                Ok(renderer.newest(first_of(page), edition.head, prev)?.document)
            }
        }
    }
}
