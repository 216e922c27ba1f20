//! Cache of the numbers of items per object, which the limit on items needs.
//!
//! Counting the items of a large object reads all their rows. The store therefore counts them when an object gets a
//! new item for the first time, and updates the number with each commit. The cache has two generations, which
//! bounds its size.

use std::mem;

use foldhash::HashMap;

use crate::model::Uri;

/// Maximum number of counts in one generation; there are two generations.
const GENERATION: usize = 8192;

/// Numbers of items of the objects that got new items most recently.
#[derive(Debug, Default)]
pub(in super::super) struct ItemCounts {
    young: HashMap<Uri, usize>,
    old: HashMap<Uri, usize>,
}

impl ItemCounts {
    /// Returns the number of items of an object, if it is cached.
    pub(in super::super) fn get(&self, object: &Uri) -> Option<usize> {
        self.young.get(object).or_else(|| self.old.get(object)).copied()
    }

    /// Sets the number of items of an object.
    pub(in super::super) fn set(&mut self, object: Uri, count: usize) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&object) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(object, count);
    }
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, ItemCounts, Uri};

    #[test]
    fn counts_stay_for_a_generation_and_are_bounded() {
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
    }
}
