//! Under which number each object stands in the tables, as it was found the last time.
//!
//! From the URI of an object to its number it is a search through a tree of texts that begin alike, which took as long as to read the
//! object and its item. What stands here is a hint that spares it: whoever reads by a number looks whether the row is that of
//! the object, and goes by the URI where it is not. So nothing needs to be taken back here, whatever becomes of the tables.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::model::Uri;

/// How many places there are for hints. With the next, of 16 bytes each, it is 4 MiB, of which is used what has been written to.
const SETS: usize = 64 * 1024;

/// How many hints share a place: as many as a line of the processor's cache has room for.
const IN_A_SET: usize = 4;

/// A number for what hashes so; the tables give numbers from 1 on, so 0 is none.
type Hint = (u64, i64);

/// The hints. Where there are too many objects those that were asked for last stay.
pub(super) struct Numbers {
    hasher: RandomState,
    /// The newest of each set first.
    sets: Vec<[Hint; IN_A_SET]>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { hasher: RandomState::default(), sets: vec![[(0, 0); IN_A_SET]; SETS] }
    }
}

impl Numbers {
    /// The number that the object probably has.
    pub(super) fn of(&mut self, uri: &Uri) -> Option<i64> {
        let hash = self.hasher.hash_one(uri);
        let set = self.set(hash);
        let at = set.iter().position(|(held, number)| *held == hash && *number != 0)?;
        set[..=at].rotate_right(1);
        Some(set[0].1)
    }

    /// The object was found under this number.
    pub(super) fn found(&mut self, uri: &Uri, number: i64) {
        let hash = self.hasher.hash_one(uri);
        let set = self.set(hash);
        let at = set.iter().position(|(held, _)| *held == hash).unwrap_or(IN_A_SET - 1);
        set[..=at].rotate_right(1);
        set[0] = (hash, number);
    }

    fn set(&mut self, hash: u64) -> &mut [Hint; IN_A_SET] {
        let at = usize::try_from(hash % self.sets.len() as u64).unwrap_or_default();
        &mut self.sets[at]
    }
}

#[cfg(test)]
mod tests {
    use super::{IN_A_SET, Numbers, Uri};

    fn uri(number: i64) -> Uri {
        Uri::parse(&format!("http://h/{number}")).unwrap()
    }

    #[test]
    fn what_was_found_is_told_and_what_was_found_later_counts() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.of(&uri(1)), None);
        numbers.found(&uri(1), 7);
        numbers.found(&uri(2), 8);
        assert_eq!((numbers.of(&uri(1)), numbers.of(&uri(2)), numbers.of(&uri(3))), (Some(7), Some(8), None));
        numbers.found(&uri(1), 9);
        assert_eq!(numbers.of(&uri(1)), Some(9));
    }

    #[test]
    fn where_there_is_no_room_what_was_asked_for_last_stays() {
        let mut numbers = Numbers { sets: vec![[(0, 0); IN_A_SET]; 1], ..Numbers::default() };
        for number in 1..=4 {
            numbers.found(&uri(number), number);
        }
        assert_eq!(numbers.of(&uri(1)), Some(1));
        numbers.found(&uri(5), 5);
        let held = (1..=5).filter(|number| numbers.of(&uri(*number)).is_some()).collect::<Vec<_>>();
        assert_eq!(held, [1, 3, 4, 5]);
    }
}
