//! The objects that the list of a repository had.

use foldhash::{HashSet, HashSetExt, fast::FixedState};
use std::hash::BuildHasher;

use crate::model::Uri;

/// Maximum number of remembered objects: about 40 MB.
const MAX_SEEN: usize = 2 << 20;

/// Objects that the list of a repository had, as 64-bit hashes. It saves requests: an object that is not remembered is
/// requested by itself. So it may be incomplete, and is lost when the gateway stops. Of a million objects, two have the same
/// hash with a probability of one in ten million.
pub(super) struct SeenObjects {
    hashes: HashSet<u64>,
    hasher: FixedState,
}

impl SeenObjects {
    pub(super) fn new() -> Self {
        // A random seed, so that no repository can choose URIs with equal hashes.
        Self { hashes: HashSet::new(), hasher: FixedState::with_seed(fastrand::u64(..)) }
    }

    /// Remembers an object if there is room. Returns whether it is remembered.
    pub(super) fn insert(&mut self, object: &Uri) -> bool {
        let hash = self.hasher.hash_one(object.as_str());
        if self.hashes.len() < MAX_SEEN {
            self.hashes.insert(hash);
            return true;
        }
        self.hashes.contains(&hash)
    }

    /// Returns whether objects may have been left out.
    pub(super) fn is_full(&self) -> bool {
        self.hashes.len() >= MAX_SEEN
    }

    pub(super) fn contains(&self, object: &Uri) -> bool {
        self.hashes.contains(&self.hasher.hash_one(object.as_str()))
    }
}
