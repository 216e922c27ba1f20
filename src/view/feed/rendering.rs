//! Rendering of the documents of the feed, at the gateway and in a published copy.

use std::sync::Arc;

use super::{
    super::{
        atom::{FeedMetadata, MEDIA_TYPE, Site, page_link},
        block_on,
        feed_document::FeedWriter,
        filtered_feed::feed_id,
        journal_problem,
        newest_first::NewestFirst,
        numbered_pages::{PAGE_CHANGES, first_of, last_of, page_of},
        page_gone, store_problem, without_large_caches, write_problem,
    },
    SUBTITLE,
};
use crate::{
    journal::{Journal, RecordedChange, store::StoreError},
    model::{Filter, ReaderView, Seq, Timestamp},
    web::{CachePolicy, DocumentWriter, Problem, ProblemCode, Representation, Spool, spool_problem},
};

/// Everything that rendering needs.
pub(super) struct Renderer {
    pub(super) journal: Journal,
    pub(super) site: Site,
    pub(super) spool: Spool,
    /// Part of the journal that the documents show; `None` for everything.
    pub(super) view: Option<Arc<ReaderView>>,
}

/// A rendered subscription document.
pub(super) struct Newest {
    pub(super) document: Representation,
    /// Number of its oldest change.
    pub(super) oldest: Seq,
    /// Time at which its newest change was received.
    pub(super) received: Option<Timestamp>,
}

impl Renderer {
    /// Renders the subscription document. It ends before a damaged change: instead of the archive, its link `next` leads
    /// to the older changes, where the damaged one is reported.
    pub(super) fn newest(&self, start: Seq, head: Seq, prev: Option<u64>) -> Result<Newest, Problem> {
        let archive = prev.map(|page| page_link("prev-archive", self.site.archive(page)));
        match self.newest_from(start, head, archive) {
            Err(problem) if problem.code() == ProblemCode::DamagedChange && self.site.copy.is_none() => {
                let Some(oldest) = self.oldest_intact(start, head)? else { return Err(problem) };
                let older = format!("{}?before={oldest}", self.site.feed());
                self.newest_from(oldest, head, Some(page_link("next", older)))
            }
            rendered => rendered,
        }
    }

    /// Returns the oldest change of a range from which on all changes up to the newest are intact.
    fn oldest_intact(&self, first: Seq, last: Seq) -> Result<Option<Seq>, Problem> {
        let mut oldest = None;
        for change in NewestFirst::open(&self.journal, first, last)? {
            let Ok(change) = change else { break };
            if change.without_caches().change().is_err() {
                break;
            }
            oldest = Some(change.seq());
        }
        Ok(oldest)
    }

    fn newest_from(&self, start: Seq, head: Seq, older: Option<atom_syndication::Link>) -> Result<Newest, Problem> {
        let received = self.received(start, head)?;
        let mut links = vec![page_link("self", self.site.feed()), page_link("current", self.site.feed())];
        links.extend(self.site.service_link());
        links.extend(self.site.hub_link());
        links.extend(older);
        let metadata = self.metadata(received, links, false);
        let mut changes = NewestFirst::open(&self.journal, start, head)?;
        let document = self.document(metadata, self.visible_changes(&mut changes), CachePolicy::Revalidate)?;
        Ok(Newest { document, oldest: changes.oldest().unwrap_or(Seq::ZERO), received })
    }

    /// Renders an archive page. Its links depend only on the numbers of the journal and not on the presence of other
    /// pages, so the page never changes. A copy has no link to the next page, whose file may not be there yet.
    pub(super) fn archive(&self, page: u64, prev: Option<u64>) -> Result<Representation, Problem> {
        let (first, last) = (first_of(page), last_of(page));
        let mut changes = NewestFirst::open(&self.journal, first, last)?;
        let next = self.page_after(page, changes.peek().map(|newest| newest.seq()))?;
        let received = self.received(first, last)?;
        let mut links = vec![page_link("self", self.site.archive(page)), page_link("current", self.site.feed())];
        links.extend(self.site.service_link());
        links.extend(self.site.copy.is_none().then(|| page_link("next-archive", self.site.archive(next))));
        links.extend(prev.map(|page| page_link("prev-archive", self.site.archive(page))));
        let metadata = self.metadata(received, links, true);
        let document = self.document(metadata, self.visible_changes(&mut changes), CachePolicy::Immutable)?;
        if changes.oldest() != Some(first) {
            return Err(page_gone(page, self.journal.first()));
        }
        Ok(document.last_modified(received.unwrap_or(Timestamp::EPOCH).datetime()))
    }

    fn metadata(&self, received: Option<Timestamp>, links: Vec<atom_syndication::Link>, archive: bool) -> FeedMetadata {
        let id = feed_id(self.site.journal, self.view.as_deref(), "");
        let updated = received.unwrap_or(Timestamp::EPOCH);
        FeedMetadata { id, subtitle: SUBTITLE.to_owned(), updated, links, archive }
    }

    /// Writes a document.
    pub(super) fn document(
        &self,
        metadata: FeedMetadata,
        changes: impl Iterator<Item = Result<Arc<RecordedChange>, Problem>>,
        cache: CachePolicy,
    ) -> Result<Representation, Problem> {
        let writer = FeedWriter::begin(&self.site, metadata, DocumentWriter::new(&self.spool));
        let mut writer = writer.map_err(write_problem)?;
        for change in changes {
            writer.change(&*change?).map_err(write_problem)?;
        }
        writer.finish().map_err(write_problem)?.finish(MEDIA_TYPE, cache).map_err(spool_problem)
    }

    /// Returns the changes that the documents show, each as they show it.
    fn visible_changes(
        &self,
        changes: &mut NewestFirst<'_>,
    ) -> impl Iterator<Item = Result<Arc<RecordedChange>, Problem>> {
        let filter = self.view.clone().map(|view| Filter { view: Some(view), ..Filter::default() });
        changes.filter_map(move |change| match (&filter, change) {
            (Some(filter), Ok(change)) => {
                without_large_caches(change).filtered(filter).map_err(store_problem).transpose()
            }
            (_, change) => Some(change),
        })
    }

    /// Returns the time at which the newest change that the documents show was received. That of a hidden one is hidden,
    /// too.
    fn received(&self, first: Seq, last: Seq) -> Result<Option<Timestamp>, Problem> {
        let newest = if self.view.is_none() {
            let newest = block_on(self.journal.before_within(last.next(), 1, 1)).map_err(journal_problem)?;
            newest.into_iter().next().filter(|newest| newest.seq() >= first)
        } else {
            let mut changes = NewestFirst::open(&self.journal, first, last)?;
            self.visible_changes(&mut changes).next().transpose()?
        };
        let received = |newest| Ok(without_large_caches(newest).change()?.received);
        newest.map(received).transpose().map_err(store_problem)
    }

    /// Returns the page of the first change after an archive page whose newest change is `newest`. This is the
    /// following page, unless a restore has skipped numbers, which it does only at the end of a page.
    fn page_after(&self, page: u64, newest: Option<Seq>) -> Result<u64, Problem> {
        let Some(newest) = newest else {
            let first = self.journal.first();
            if first > first_of(page) {
                return Err(page_gone(page, first));
            }
            let detail = format!("There is no archive page {page}: a restore from a backup skipped its numbers.");
            return Err(Problem::new(ProblemCode::NotFound, detail));
        };
        let next = block_on(self.journal.after_within(newest, 1, 1)).map_err(journal_problem)?;
        let next = next.first().map_or(page + 1, |next| page_of(next.seq()));
        if newest.0 % PAGE_CHANGES != 0 && next == page + 1 {
            let missing = newest.next();
            return Err(store_problem(StoreError::DamagedChange { seq: missing, what: "it is missing".to_owned() }));
        }
        Ok(next)
    }
}
