//! Pages in memory, within a bound.

use std::{collections::VecDeque, sync::Arc};

/// Maximum size of the pages in memory, in bytes on the wire, except that the newest page always stays.
const MAX_CACHED_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of pages in memory.
const MAX_PAGES: usize = 64;

/// Pages of one kind, in the order in which they were read.
#[derive(Debug)]
pub(super) struct Cache<P> {
    pages: VecDeque<Arc<P>>,
    bytes: usize,
}

impl<P> Default for Cache<P> {
    fn default() -> Self {
        Self { pages: VecDeque::new(), bytes: 0 }
    }
}

/// A page in memory.
pub(super) trait Page {
    /// Returns the approximate size of the records on the wire, in bytes.
    fn bytes(&self) -> usize;
}

impl<P: Page> Cache<P> {
    /// Returns the newest page that satisfies a condition.
    pub(super) fn find(&self, is_wanted: impl Fn(&P) -> bool) -> Option<Arc<P>> {
        self.pages.iter().rev().find(|page| is_wanted(page)).cloned()
    }

    /// Adds a page, and drops the oldest ones.
    pub(super) fn add(&mut self, page: Arc<P>) {
        self.bytes += page.bytes();
        self.pages.push_back(page);
        while self.pages.len() > 1
            && (self.bytes > MAX_CACHED_BYTES || self.pages.len() > MAX_PAGES)
            && let Some(oldest) = self.pages.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Cache, MAX_CACHED_BYTES, MAX_PAGES, Page};

    /// A page with a number and a size.
    #[derive(Debug)]
    struct Numbered(usize, usize);

    impl Page for Numbered {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn oldest_pages_are_dropped() {
        let has = |cache: &Cache<Numbered>, number: usize| cache.find(|page| page.0 == number).is_some();
        let mut cache = Cache::default();
        (0..=MAX_PAGES).for_each(|number| cache.add(Arc::new(Numbered(number, 1))));
        assert!(!has(&cache, 0) && has(&cache, 1) && has(&cache, MAX_PAGES));
        cache.add(Arc::new(Numbered(1000, MAX_CACHED_BYTES + 1)));
        assert!(has(&cache, 1000) && !has(&cache, MAX_PAGES), "the newest page always stays");
        cache.add(Arc::new(Numbered(1001, 1)));
        assert!(has(&cache, 1001) && !has(&cache, 1000));
        assert_eq!((cache.pages.len(), cache.bytes), (1, 1));
    }
}
