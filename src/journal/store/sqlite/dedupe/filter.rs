//! In which runs of event keys a key may be, without asking the file.
//!
//! A Bloom filter for each run, and the filters of 64 runs side by side: a row has one bit of each of them, so
//! that one look at a few rows answers for all 64. A key is a digest already, so it is its own hash.

use std::collections::VecDeque;

use crate::journal::store::EventKey;

/// How many runs stand side by side.
const RUNS: u64 = u64::BITS as u64;

/// How many rows there are for each key of a run. With [`LOOKS`], one key in 1700 is taken to be in a run where it is not.
const ROWS_FOR_EACH: usize = 16;

/// How many rows a key sets a bit in.
const LOOKS: u64 = 8;

/// The filters of the runs that there are.
pub(super) struct KeyFilter {
    /// Of how many bits the number of a row is.
    bits: u32,
    /// The group of 64 runs that `groups` begins with.
    first: u64,
    groups: VecDeque<Vec<u64>>,
}

impl KeyFilter {
    /// Filters for runs of about so many keys, of which the oldest has this number.
    pub(super) fn new(keys: usize, oldest: u64) -> Self {
        let bits = (keys.max(1) * ROWS_FOR_EACH).next_power_of_two().trailing_zeros();
        Self { bits, first: oldest / RUNS, groups: VecDeque::new() }
    }

    /// Takes in keys of a run, which is one that has been taken in already or comes after all of them.
    pub(super) fn insert(&mut self, run: u64, keys: impl Iterator<Item = EventKey>) {
        let bits = self.bits;
        let group = usize::try_from((run / RUNS).saturating_sub(self.first)).unwrap_or_default();
        while self.groups.len() <= group {
            self.groups.push_back(vec![0; 1 << bits]);
        }
        let bit = 1 << (run % RUNS);
        for key in keys {
            rows(bits, key).for_each(|row| self.groups[group][row] |= bit);
        }
    }

    /// Forgets the runs before this one, some of them later.
    pub(super) fn forget_before(&mut self, run: u64) {
        while self.first < run / RUNS && !self.groups.is_empty() {
            self.groups.pop_front();
            self.first += 1;
        }
    }

    /// The runs in which the key may be, newest first. It is in no other.
    pub(super) fn may_have(&self, key: EventKey) -> impl Iterator<Item = u64> {
        let groups = self.groups.iter().enumerate().rev();
        groups.flat_map(move |(number, group)| {
            let mut left = u64::MAX;
            for row in rows(self.bits, key) {
                left &= group[row];
                if left == 0 {
                    break;
                }
            }
            let first = (self.first + number as u64) * RUNS;
            Columns(left).map(move |column| first + column)
        })
    }
}

/// The bits that are set, the highest first.
struct Columns(u64);

impl Iterator for Columns {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let highest = self.0.checked_ilog2()?;
        self.0 &= !(1 << highest);
        Some(u64::from(highest))
    }
}

/// The rows of a key: as far apart as its second half says, beginning where its first half does.
fn rows(bits: u32, EventKey(key): EventKey) -> impl Iterator<Item = usize> {
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| key[at + byte]));
    let (begin, step) = (half(0), half(8) | 1);
    (0..LOOKS).map(move |look| {
        let row = begin.wrapping_add(step.wrapping_mul(look)) >> (u64::BITS - bits);
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
    fn a_key_is_found_in_its_run_and_seldom_in_another() {
        let mut filter = KeyFilter::new(100, 60);
        (60..200).for_each(|run| filter.insert(run, keys(run)));
        let mut others = 0;
        for run in 60..200 {
            for key in keys(run) {
                let found: Vec<_> = filter.may_have(key).collect();
                assert!(found.contains(&run), "run {run}");
                assert!(found.is_sorted_by(|newer, older| newer > older), "{found:?}");
                others += found.len() - 1;
            }
        }
        // 14 000 keys, 139 other runs each: one in 1700 of them would be 1145.
        assert!(others < 2300, "{others}");
        let strangers = (0..10_000).filter(|number| filter.may_have(key(1_000_000 + number)).next().is_some()).count();
        assert!(strangers < 1600, "{strangers}");
    }

    #[test]
    fn keys_that_come_to_a_run_later_are_found_and_old_runs_are_forgotten() {
        let mut filter = KeyFilter::new(100, 0);
        filter.insert(3, keys(3));
        filter.insert(70, keys(70));
        filter.insert(70, keys(71));
        assert!(keys(71).all(|key| filter.may_have(key).any(|run| run == 70)));
        filter.forget_before(64);
        assert!(keys(3).all(|key| filter.may_have(key).all(|run| run >= 64)));
        assert!(keys(70).all(|key| filter.may_have(key).any(|run| run == 70)));
    }
}
