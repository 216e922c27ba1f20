//! Aborted transactions of a fetch response.

use std::collections::{HashSet, VecDeque};

/// Aborted transactions that begin before the end of a fetch, as the broker lists them.
///
/// The batches of a partition are given to [`AbortedTransactions::hides`] in their order.
#[derive(Debug, Default)]
pub(super) struct AbortedTransactions {
    /// Producers with the first offsets of their aborted transactions, in order of the offsets.
    pending: VecDeque<(i64, i64)>,
    /// Producers whose transaction at this place was aborted.
    active: HashSet<i64>,
}

impl AbortedTransactions {
    /// Takes the list of a response: the producers and the first offsets of their transactions.
    pub(super) fn new(mut listed: Vec<(i64, i64)>) -> Self {
        listed.sort_unstable_by_key(|(_, first_offset)| *first_offset);
        Self { pending: listed.into(), active: HashSet::new() }
    }

    /// Returns whether the records of the next batch belong to an aborted transaction of this producer.
    pub(super) fn hides(&mut self, producer: i64, last_offset: i64) -> bool {
        while let Some((producer, _)) = self.pending.front().copied().filter(|(_, first)| *first <= last_offset) {
            self.active.insert(producer);
            self.pending.pop_front();
        }
        self.active.contains(&producer)
    }

    /// Notes the marker that ends the aborted transaction of a producer.
    pub(super) fn end(&mut self, producer: i64) {
        self.active.remove(&producer);
    }
}

#[cfg(test)]
mod tests {
    use super::AbortedTransactions;

    #[test]
    fn only_the_batches_between_begin_and_marker_are_hidden() {
        let mut aborted = AbortedTransactions::new(vec![(7, 30), (7, 10)]);
        assert!(!aborted.hides(7, 9), "an earlier transaction");
        assert!(aborted.hides(7, 10) && !aborted.hides(8, 15) && aborted.hides(7, 20));
        aborted.end(7);
        assert!(!aborted.hides(7, 29), "a committed transaction between them");
        assert!(aborted.hides(7, 31));
    }
}
