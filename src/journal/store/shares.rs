//! Shares of sources in the quarantine. When the quarantine is full, the oldest message of the source with the most goes
//! first, so that no source can push out the messages of another.

use std::collections::{BTreeMap, VecDeque};

use super::StoreLimits;
use crate::journal::quarantine::{QuarantineId, QuarantineSize};

/// Number of messages of a source that a store reads first for an [`Eviction`], because usually one goes for each that
/// comes. Each later read has twice as many.
const FIRST_READ: usize = 1;

/// Maximum number of messages of a source that a store reads at a time.
const LARGEST_READ: usize = 1024;

/// Messages that a store must read: the oldest of a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldestOf {
    /// The source.
    pub(super) source: String,
    /// Identifier after which the messages begin.
    pub(super) after: QuarantineId,
    /// Number of messages.
    pub(super) limit: usize,
}

/// Sizes of the messages of each source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QuarantineShares(BTreeMap<String, QuarantineSize>);

impl QuarantineShares {
    /// Adds messages of a source.
    pub(super) fn add(&mut self, source: &str, size: QuarantineSize) {
        if !self.0.contains_key(source) {
            self.0.insert(source.to_owned(), QuarantineSize::default());
        }
        if let Some(share) = self.0.get_mut(source) {
            share.messages += size.messages;
            share.bytes += size.bytes;
        }
    }

    /// Removes a message of a source.
    pub(super) fn remove(&mut self, source: &str, bytes: u64) {
        let Some(share) = self.0.get_mut(source) else { return };
        share.remove(bytes);
        if share.messages == 0 {
            self.0.remove(source);
        }
    }

    /// Returns the size of all messages.
    pub(super) fn total(&self) -> QuarantineSize {
        self.0.values().fold(QuarantineSize::default(), |sum, share| QuarantineSize {
            messages: sum.messages + share.messages,
            bytes: sum.bytes + share.bytes,
        })
    }
}

impl QuarantineSize {
    /// Subtracts a message.
    pub(super) fn remove(&mut self, bytes: u64) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns whether messages must go. The newest message always stays.
    pub(super) fn exceeds(&self, limits: StoreLimits) -> bool {
        self.messages > 1 && (self.messages > limits.quarantine_entries || self.bytes > limits.quarantine_bytes)
    }
}

/// Choice of the messages that must go. The store reads the oldest messages of a source when the choice needs them.
pub(super) struct Eviction {
    limits: StoreLimits,
    newest: QuarantineId,
    total: QuarantineSize,
    sources: BTreeMap<String, Candidate>,
    chosen: Vec<QuarantineId>,
}

/// A source whose messages may have to go.
struct Candidate {
    size: QuarantineSize,
    /// Oldest messages that were read and not chosen, with their sizes.
    oldest: VecDeque<(QuarantineId, u64)>,
    read_up_to: QuarantineId,
    next_read: usize,
    /// Whether the source has no other message than the newest of all.
    is_exhausted: bool,
}

impl Eviction {
    /// Begins a choice for the sizes of all sources.
    pub(super) fn new(limits: StoreLimits, shares: &QuarantineShares, newest: QuarantineId) -> Self {
        let candidate = |size| Candidate {
            size,
            oldest: VecDeque::new(),
            read_up_to: QuarantineId(0),
            next_read: FIRST_READ,
            is_exhausted: false,
        };
        let sources = shares.0.iter().map(|(source, size)| (source.clone(), candidate(*size))).collect();
        Self { limits, newest, total: shares.total(), sources, chosen: Vec::new() }
    }

    /// Chooses among the messages that were read. Returns the messages that must be read now; `None` at the end.
    pub(super) fn choose(&mut self) -> Option<OldestOf> {
        while self.total.exceeds(self.limits) {
            let by_number = self.total.messages > self.limits.quarantine_entries;
            let amount = |size: QuarantineSize| if by_number { size.messages } else { size.bytes };
            let eligible = self.sources.iter_mut().filter(|(_, candidate)| !candidate.is_exhausted);
            let (source, candidate) = eligible.max_by_key(|(_, candidate)| amount(candidate.size))?;
            match candidate.oldest.pop_front() {
                Some((id, bytes)) if id < self.newest => {
                    candidate.size.remove(bytes);
                    self.total.remove(bytes);
                    self.chosen.push(id);
                }
                Some(_) => candidate.is_exhausted = true,
                None => {
                    let (after, limit) = (candidate.read_up_to, candidate.next_read);
                    candidate.next_read = (2 * limit).min(LARGEST_READ);
                    return Some(OldestOf { source: source.clone(), after, limit });
                }
            }
        }
        None
    }

    /// Adds the next oldest messages of a source, in their order.
    pub(super) fn add(&mut self, source: &str, oldest: Vec<(QuarantineId, u64)>) {
        let Some(candidate) = self.sources.get_mut(source) else { return };
        match oldest.last() {
            Some((last, _)) => candidate.read_up_to = *last,
            None => candidate.is_exhausted = true,
        }
        candidate.oldest.extend(oldest);
    }

    /// Returns the chosen messages.
    pub(super) fn chosen(self) -> Vec<QuarantineId> {
        self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, OldestOf, QuarantineId, QuarantineShares, QuarantineSize, StoreLimits};

    /// Chooses among messages, each a source and a size, whose identifiers begin with 1.
    fn chosen(entries: u64, bytes: u64, messages: &[(&str, u64)]) -> Vec<u64> {
        let limits = StoreLimits { quarantine_entries: entries, quarantine_bytes: bytes, ..StoreLimits::default() };
        let mut shares = QuarantineShares::default();
        for (source, size) in messages {
            shares.add(source, QuarantineSize { messages: 1, bytes: *size });
        }
        let mut eviction = Eviction::new(limits, &shares, QuarantineId(messages.len() as u64));
        while let Some(OldestOf { source, after, limit }) = eviction.choose() {
            let numbered = (1..).map(QuarantineId).zip(messages);
            let of_source = numbered.filter(|(id, (name, _))| *name == source && *id > after);
            eviction.add(&source, of_source.take(limit).map(|(id, (_, size))| (id, *size)).collect());
        }
        eviction.chosen().into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_oldest_message_of_the_largest_source_goes_first() {
        let flood = [("quiet", 1), ("loud", 1), ("loud", 1), ("loud", 1), ("loud", 1), ("loud", 1), ("loud", 1)];
        assert_eq!(chosen(3, 1000, &flood), [2, 3, 4, 5]);
        assert_eq!(chosen(7, 1000, &flood), [0; 0]);
        let large = [("many", 10), ("many", 10), ("many", 10), ("large", 500), ("large", 400), ("many", 10)];
        assert_eq!(chosen(10, 500, &large), [4]);
        // First by number, then by size.
        assert_eq!(chosen(4, 45, &[("a", 1), ("a", 1), ("a", 1), ("b", 50), ("b", 5)]), [1, 4]);
    }

    #[test]
    fn the_newest_message_stays() {
        assert_eq!(chosen(10, 100, &[("a", 60), ("b", 20), ("a", 30), ("b", 900)]), [2, 1, 3]);
        assert_eq!(chosen(10, 100, &[("a", 900)]), [0; 0]);
        assert_eq!(chosen(0, 100, &[("a", 1), ("a", 1)]), [1]);
    }
}
