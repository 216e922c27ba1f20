//! The numbers of items that the registry knows of objects, for the bound on them.
//!
//! The store counts an object's items when the first new one comes, and the count is kept from then on: every new item of
//! the registry is settled by the same thread. Counts are dropped when many newer ones have come, long after the batches in
//! flight that they were made with.

use std::mem;

use foldhash::HashMap;

use crate::model::Uri;

/// The most counts in one generation; there are two.
const GENERATION: usize = 8192;

/// Counts of the objects that were settled last.
#[derive(Debug, Default)]
pub(super) struct ItemCounts {
    young: HashMap<Uri, usize>,
    old: HashMap<Uri, usize>,
}

impl ItemCounts {
    /// The count of an object, if it is here.
    pub(super) fn get(&self, object: &Uri) -> Option<usize> {
        self.young.get(object).or_else(|| self.old.get(object)).copied()
    }

    /// Keeps the count of an object.
    pub(super) fn set(&mut self, object: Uri, count: usize) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&object) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(object, count);
    }

    /// Drops all counts, as when a batch that they were made with could not be written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, ItemCounts, Uri};

    #[test]
    fn counts_are_kept_for_a_generation_and_bounded() {
        let uri = |number: usize| Uri::parse(&format!("http://h/{number}")).unwrap();
        let mut counts = ItemCounts::default();
        for number in 0..3 * GENERATION {
            counts.set(uri(number), number);
            assert_eq!(
                counts.get(&uri(number.saturating_sub(GENERATION - 1))),
                Some(number.saturating_sub(GENERATION - 1))
            );
        }
        assert_eq!(counts.get(&uri(0)), None);
        assert!(counts.young.len() + counts.old.len() <= 2 * GENERATION);
        counts.clear();
        assert_eq!(counts.get(&uri(3 * GENERATION - 1)), None);
    }
}
