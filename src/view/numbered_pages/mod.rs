//! Numbered pages of the journal, for protocols whose documents are append-only pages.
//!
//! Changes `(n-1)*100+1` to `n*100` are page `n`, as in the archived feed. The newest page grows. A page is *closed* once a
//! later page has begun: no change is added to it any more. Retention removes the changes of the oldest page one after the
//! other, and the page with the last of them; the newest page stays. A restore from a backup skips numbers at the end of a
//! page, and therefore pages.

mod names;
mod protocol;
mod published;
mod rendering;
mod snapshot;
mod stream;

use std::sync::Arc;

pub use self::protocol::PagedView;
pub(super) use self::{
    names::{DocumentName, Names, with_query},
    protocol::{PageProtocol, answer},
    rendering::Rendering,
    snapshot::CHANGING,
    stream::ChangeStream,
};
use crate::{journal::Journal, model::Seq, publish::Edition};

/// Number of changes on a page. It is part of the meaning of a page's URL, so it must never change or become configurable.
pub(super) const PAGE_CHANGES: u64 = 100;

/// Number of pages in a block, for protocols with documents that list pages.
pub(super) const BLOCK_PAGES: u64 = 1000;

/// Returns the number of the page that contains a change.
pub(super) fn page_of(seq: Seq) -> u64 {
    seq.0.div_ceil(PAGE_CHANGES)
}

/// Returns the number of a page's first change.
pub(super) fn first_of(page: u64) -> Seq {
    Seq(page.saturating_sub(1).saturating_mul(PAGE_CHANGES)).next()
}

/// Returns the number of the last change that a page has room for.
pub(super) fn last_of(page: u64) -> Seq {
    Seq(page.saturating_mul(PAGE_CHANGES))
}

/// Returns the number of the block that contains a page.
pub(super) fn block_of(page: u64) -> u64 {
    page.div_ceil(BLOCK_PAGES)
}

/// Returns the numbers of the first and the last page that a block has room for.
pub(super) fn pages_of(block: u64) -> (u64, u64) {
    (block.saturating_sub(1).saturating_mul(BLOCK_PAGES).saturating_add(1), block.saturating_mul(BLOCK_PAGES))
}

/// State of a page, or of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// Later pages exist, and the page has all of its changes.
    Closed,
    /// Later pages exist, and retention has removed the oldest changes of the page.
    Truncated,
    /// It is the newest page.
    Open,
    /// Retention has removed all of its changes.
    Removed,
    /// There has never been such a page, or not yet.
    Unknown,
}

/// The pages that the journal has at one moment.
#[derive(Clone, Debug)]
pub(super) struct NumberedPages {
    /// Number of the oldest change.
    first: Seq,
    /// Number of the newest change.
    head: Seq,
    /// Ranges of numbers that restores and failovers have skipped: after the first number, up to the second.
    skipped: Arc<[(Seq, Seq)]>,
}

impl NumberedPages {
    /// Returns the pages that the journal has at present.
    pub(super) fn of(journal: &Journal) -> Self {
        let head = journal.head();
        Self { first: journal.first(), head, skipped: journal.skipped_ranges() }
    }

    /// Returns the pages of an edition of a published copy.
    pub(super) fn of_edition(edition: &Edition) -> Self {
        Self { first: edition.first, head: edition.head, skipped: Arc::clone(&edition.skipped) }
    }

    /// Returns the number of the oldest change.
    pub(super) fn first(&self) -> Seq {
        self.first
    }

    /// Returns the number of the newest change.
    pub(super) fn head(&self) -> Seq {
        self.head
    }

    /// Returns the number of the newest page. An empty journal has the empty page 1.
    pub(super) fn newest(&self) -> u64 {
        page_of(self.head).max(1)
    }

    /// Returns the number of the oldest page that has a change, or else of the newest page.
    pub(super) fn oldest(&self) -> u64 {
        page_of(self.first).clamp(1, self.newest())
    }

    /// Returns the number of the first change that a page has.
    pub(super) fn begin_of(&self, page: u64) -> Seq {
        first_of(page).max(self.first)
    }

    /// Returns the state of a page.
    pub(super) fn state(&self, page: u64) -> PageState {
        if page == 0 || page > self.newest() || self.skipped_at(first_of(page)).is_some() {
            PageState::Unknown
        } else if page == self.newest() {
            PageState::Open
        } else if page < self.oldest() {
            PageState::Removed
        } else if self.begin_of(page) > first_of(page) {
            PageState::Truncated
        } else {
            PageState::Closed
        }
    }

    /// Returns the page before another, even if it has been removed.
    pub(super) fn before(&self, page: u64) -> Option<u64> {
        Some(page_of(self.cursor_before(page))).filter(|before| *before > 0)
    }

    /// Returns the number that precedes the first one of a page in the numbering: the cursor of a reader of the page.
    pub(super) fn cursor_before(&self, page: u64) -> Seq {
        let mut before = Seq(first_of(page).0 - 1);
        while let Some((from, _)) = self.skipped_at(before) {
            before = from;
        }
        before
    }

    /// Returns the page after another, if it has begun.
    pub(super) fn after(&self, page: u64) -> Option<u64> {
        let mut after = page.saturating_add(1);
        while let Some((_, to)) = self.skipped_at(first_of(after)) {
            after = page_of(to.next());
        }
        Some(after).filter(|after| first_of(*after) <= self.head)
    }

    /// Returns the pages from one on, up to another.
    pub(super) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let exists = from <= self.newest() && self.skipped_at(first_of(from)).is_none();
        let first = if exists { Some(from) } else { self.after(from) };
        std::iter::successors(first, |page| self.after(*page)).take_while(move |page| *page <= to)
    }

    /// Returns the state of a block, if no page before `oldest` is listed.
    pub(super) fn block_state(&self, block: u64, oldest: u64) -> PageState {
        let (first, last) = pages_of(block);
        match self.range(first.max(oldest), last).next() {
            Some(_) if block > 0 => PageState::Open,
            _ if (1..block_of(oldest)).contains(&block) => PageState::Removed,
            _ => PageState::Unknown,
        }
    }

    /// Returns the first and the last page that a block lists, if no document links to a page before `linked`. A block of pages that
    /// are still there, though no longer linked, lists these, for clients that have read a former entry.
    pub(super) fn listed_by(&self, block: u64, linked: u64) -> (u64, u64) {
        let (first, last) = pages_of(block);
        let oldest = if last < linked { self.oldest() } else { linked };
        (first.max(oldest), last.min(self.newest()))
    }

    /// Returns the blocks of the pages from `oldest` on.
    pub(super) fn blocks(&self, oldest: u64) -> impl Iterator<Item = u64> {
        let next = |block: &u64| self.range(pages_of(*block).1 + 1, self.newest()).next().map(block_of);
        std::iter::successors(Some(block_of(oldest)), next)
    }

    /// Returns the range of skipped numbers that contains this number.
    fn skipped_at(&self, seq: Seq) -> Option<(Seq, Seq)> {
        self.skipped.iter().copied().find(|(from, to)| *from < seq && seq <= *to)
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberedPages, PageState, Seq};

    fn pages(first: u64, head: u64, skipped: &[(u64, u64)]) -> NumberedPages {
        let skipped = skipped.iter().map(|(from, to)| (Seq(*from), Seq(*to))).collect();
        NumberedPages { first: Seq(first), head: Seq(head), skipped }
    }

    #[test]
    fn a_page_is_closed_when_the_next_one_has_begun() {
        use PageState::{Closed, Open, Unknown};
        let states = |pages: &NumberedPages| [0, 1, 2, 3].map(|page| pages.state(page));
        assert_eq!(states(&pages(1, 0, &[])), [Unknown, Open, Unknown, Unknown]);
        assert_eq!(states(&pages(1, 100, &[])), [Unknown, Open, Unknown, Unknown]);
        assert_eq!(states(&pages(1, 101, &[])), [Unknown, Closed, Open, Unknown]);
        let two = pages(1, 101, &[]);
        assert_eq!([two.before(1), two.before(2), two.after(1), two.after(2)], [None, Some(1), Some(2), None]);
        assert_eq!((two.oldest(), two.newest()), (1, 2));
    }

    #[test]
    fn retention_removes_a_page_with_its_last_change() {
        use PageState::{Closed, Open, Removed, Truncated};
        for (first, head, states) in [
            (100, 350, [Truncated, Closed, Closed, Open]),
            (101, 350, [Removed, Closed, Closed, Open]),
            (102, 350, [Removed, Truncated, Closed, Open]),
            (200, 350, [Removed, Truncated, Closed, Open]),
            (201, 350, [Removed, Removed, Closed, Open]),
            (301, 350, [Removed, Removed, Removed, Open]),
            (340, 350, [Removed, Removed, Removed, Open]),
            (400, 400, [Removed, Removed, Removed, Open]),
        ] {
            let pages = pages(first, head, &[]);
            assert_eq!([1, 2, 3, 4].map(|page| pages.state(page)), states, "{first}");
            let oldest = (1..=4).find(|page| pages.state(*page) != Removed).unwrap();
            assert_eq!((pages.oldest(), pages.begin_of(oldest), pages.newest()), (oldest, Seq(first), 4), "{first}");
        }
        // The rest of a page that a restore has skipped belongs to no page.
        assert_eq!(pages(901, 950, &[(320, 900)]).state(4), Removed);
        // The next change of an empty journal, after all have been removed.
        assert_eq!(pages(351, 350, &[]).oldest(), 4);
    }

    #[test]
    fn skipped_pages_are_passed() {
        // Two losses in a row, and one at the end of a page.
        let restored = pages(1, 1710, &[(320, 900), (900, 1200), (1400, 1600)]);
        assert_eq!(restored.range(1, 99).collect::<Vec<_>>(), [1, 2, 3, 4, 13, 14, 17, 18]);
        assert_eq!(restored.range(5, 16).collect::<Vec<_>>(), [13, 14]);
        assert_eq!((restored.before(13), restored.after(4), restored.before(17)), (Some(4), Some(13), Some(14)));
        assert_eq!([4, 5, 13, 15].map(|page| restored.state(page)), {
            use PageState::{Closed, Unknown};
            [Closed, Unknown, Closed, Unknown]
        });
        assert_eq!(restored.blocks(1).collect::<Vec<_>>(), [1]);
        let far = pages(1, 900_300, &[(320, 900_000)]);
        assert_eq!(far.blocks(1).collect::<Vec<_>>(), [1, 10]);
        let states = [0, 1, 2, 10, 11, u64::MAX].map(|block| far.block_state(block, 9001));
        assert_eq!(states, {
            use PageState::{Open, Removed, Unknown};
            [Unknown, Removed, Removed, Open, Unknown, Unknown]
        });
        // No change since the restore.
        let still = pages(1, 320, &[(320, 900)]);
        assert_eq!((still.newest(), still.after(4), still.state(4)), (4, None, PageState::Open));
        assert_eq!([5, u64::MAX].map(|page| still.state(page)), [PageState::Unknown; 2]);
    }
}
