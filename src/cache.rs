//! In-memory cache with limits on the number and size of its entries.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Cache that evicts the least recently used values. A lookup compares all keys, so it is for a few hundred entries.
///
/// Its limits hold after each insertion. The crate `moka` evicts only after up to 64 insertions, each of which may be
/// a megabyte here.
#[derive(Debug)]
pub(crate) struct LruCache<K, V> {
    max_entries: usize,
    max_bytes: usize,
    /// Entries in the order of their last use.
    entries: Mutex<VecDeque<Entry<K, V>>>,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    bytes: usize,
}

impl<K: PartialEq, V: Clone> LruCache<K, V> {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { max_entries, max_bytes, entries: Mutex::default() }
    }

    /// Returns the value of a key and marks it as used.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut entries = self.lock();
        let index = entries.iter().position(|entry| entry.key == *key)?;
        let entry = entries.remove(index)?;
        let value = entry.value.clone();
        entries.push_back(entry);
        Some(value)
    }

    /// Caches a value of `bytes` bytes and evicts others if needed. A value larger than the cache is not cached.
    pub(crate) fn insert(&self, key: K, value: V, bytes: usize) {
        if bytes > self.max_bytes {
            return;
        }
        let mut entries = self.lock();
        entries.retain(|entry| entry.key != key);
        entries.push_back(Entry { key, value, bytes });
        let mut total: usize = entries.iter().map(|entry| entry.bytes).sum();
        while total > self.max_bytes || entries.len() > self.max_entries {
            total -= entries.pop_front().map_or(total, |entry| entry.bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry<K, V>>> {
        // The entries are consistent whenever the lock is free, even after a panic.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::LruCache;

    fn cached<const N: usize>(cache: &LruCache<u64, ()>, keys: [u64; N]) -> [bool; N] {
        let entries = cache.lock();
        keys.map(|key| entries.iter().any(|entry| entry.key == key))
    }

    #[test]
    fn least_recently_used_values_are_evicted_first() {
        let cache = LruCache::new(10, 300);
        (1..=3).for_each(|key| cache.insert(key, (), 100));
        assert!(cache.get(&1).is_some() && cache.get(&9).is_none());
        cache.insert(4, (), 100);
        assert_eq!(cached(&cache, [1, 2, 3, 4]), [true, false, true, true]);
        cache.insert(4, (), 100);
        assert_eq!(cached(&cache, [1, 2, 3, 4]), [true, false, true, true]);
        cache.insert(5, (), 301);
        assert_eq!(cached(&cache, [1, 2, 3, 4, 5]), [true, false, true, true, false]);
    }

    #[test]
    fn number_of_entries_is_limited() {
        let cache = LruCache::new(2, 300);
        (1..=3).for_each(|key| cache.insert(key, (), 0));
        assert_eq!(cached(&cache, [1, 2, 3]), [false, true, true]);
    }
}
