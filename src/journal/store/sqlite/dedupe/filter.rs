//! Bloom filters in memory for the sorted runs of event keys.
//!
//! Each run has a Bloom filter. The filters of 64 runs are bit-sliced: a row is a 64-bit word with one bit of each
//! filter, so a query reads a few rows for all 64 runs. Keys are digests, so they need no further hashing.

use std::collections::VecDeque;

use crate::journal::store::EventKey;

/// Number of runs in one group of bit-sliced filters.
const RUNS_PER_GROUP: u64 = u64::BITS as u64;

/// Number of rows per key of a run. Together with [`HASHES`] it gives a false-positive rate of 1 in 1700 per run.
const ROWS_PER_KEY: usize = 16;

/// Number of rows in which a key sets a bit.
const HASHES: u64 = 8;

/// Bloom filters of all runs.
pub(super) struct KeyFilter {
    /// Number of bits of a row number.
    bits: u32,
    /// Number of the first group in `groups`.
    first_group: u64,
    groups: VecDeque<Vec<u64>>,
}

impl KeyFilter {
    /// Creates filters for runs of about `keys` keys. The oldest run has the number `oldest`.
    pub(super) fn new(keys: usize, oldest: u64) -> Self {
        let bits = (keys.max(1) * ROWS_PER_KEY).next_power_of_two().trailing_zeros();
        Self { bits, first_group: oldest / RUNS_PER_GROUP, groups: VecDeque::new() }
    }

    /// Inserts keys of a run, which is either an existing run or newer than all of them.
    pub(super) fn insert(&mut self, run: u64, keys: impl Iterator<Item = EventKey>) {
        let bits = self.bits;
        let group = usize::try_from((run / RUNS_PER_GROUP).saturating_sub(self.first_group)).unwrap_or_default();
        while self.groups.len() <= group {
            self.groups.push_back(vec![0; 1 << bits]);
        }
        let bit = 1 << (run % RUNS_PER_GROUP);
        for key in keys {
            rows(bits, key).for_each(|row| self.groups[group][row] |= bit);
        }
    }

    /// Drops the filters of runs before this one, in whole groups.
    pub(super) fn remove_before(&mut self, run: u64) {
        while self.first_group < run / RUNS_PER_GROUP && !self.groups.is_empty() {
            self.groups.pop_front();
            self.first_group += 1;
        }
    }

    /// Returns the runs that may contain the key, newest first. No other run contains the key.
    pub(super) fn candidate_runs(&self, key: EventKey) -> impl Iterator<Item = u64> {
        let groups = self.groups.iter().enumerate().rev();
        groups.flat_map(move |(number, group)| {
            let mut candidates = u64::MAX;
            for row in rows(self.bits, key) {
                candidates &= group[row];
                if candidates == 0 {
                    break;
                }
            }
            let first = (self.first_group + number as u64) * RUNS_PER_GROUP;
            SetBits(candidates).map(move |bit| first + bit)
        })
    }
}

/// Iterator over the set bits of a word, the highest first.
struct SetBits(u64);

impl Iterator for SetBits {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let highest = self.0.checked_ilog2()?;
        self.0 &= !(1 << highest);
        Some(u64::from(highest))
    }
}

/// Returns the rows of a key by double hashing: the first half of the key is the start, the second half the step.
fn rows(bits: u32, EventKey(key): EventKey) -> impl Iterator<Item = usize> {
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| key[at + byte]));
    let (start, step) = (half(0), half(8) | 1);
    (0..HASHES).map(move |hash| {
        let row = start.wrapping_add(step.wrapping_mul(hash)) >> (u64::BITS - bits);
        usize::try_from(row).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn key(number: u64) -> EventKey {
        let mut key = [0; 16];
        key.copy_from_slice(&Sha256::digest(number.to_be_bytes())[..16]);
        EventKey(key)
    }

    fn keys(run: u64) -> impl Iterator<Item = EventKey> {
        (run * 100..run * 100 + 100).map(key)
    }

    #[test]
    fn a_key_is_found_in_its_run_and_rarely_in_another() {
        let mut filter = KeyFilter::new(100, 60);
        (60..200).for_each(|run| filter.insert(run, keys(run)));
        let mut others = 0;
        for run in 60..200 {
            for key in keys(run) {
                let candidates: Vec<_> = filter.candidate_runs(key).collect();
                assert!(candidates.contains(&run), "run {run}");
                assert!(candidates.is_sorted_by(|newer, older| newer > older), "{candidates:?}");
                others += candidates.len() - 1;
            }
        }
        // 14 000 keys with 139 other runs each: a rate of 1 in 1700 would be 1145 false positives.
        assert!(others < 2300, "{others}");
        let is_candidate = |number: &u64| filter.candidate_runs(key(1_000_000 + number)).next().is_some();
        let unknown = (0..10_000).filter(is_candidate).count();
        assert!(unknown < 1600, "{unknown}");
    }

    #[test]
    fn keys_added_later_are_found_and_old_runs_are_dropped() {
        let mut filter = KeyFilter::new(100, 0);
        filter.insert(3, keys(3));
        filter.insert(70, keys(70));
        filter.insert(70, keys(71));
        assert!(keys(71).all(|key| filter.candidate_runs(key).any(|run| run == 70)));
        filter.remove_before(64);
        assert!(keys(3).all(|key| filter.candidate_runs(key).all(|run| run >= 64)));
        assert!(keys(70).all(|key| filter.candidate_runs(key).any(|run| run == 70)));
    }
}
