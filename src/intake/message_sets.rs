//! Messages that a producer has put together. A few kilobytes of a set can inflate to millions of messages, so a bounded number
//! of each set is put into the quarantine.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::Incoming;
use crate::format::Rejection;

/// Set of messages that its broker keeps after they were read: a record batch of Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSet {
    /// Place of the set, for people. The sets of a place come one after the other.
    pub place: Arc<str>,
    /// Offsets of the messages in that place.
    pub offsets: Range<i64>,
}

/// Maximum number of messages of a set that are put into the quarantine, beside the one that says so.
const MAX_QUARANTINED: u32 = 1000;

/// Numbers of rejected messages: of the newest set of each place.
#[derive(Clone, Debug, Default)]
pub(super) struct RejectedSets(BTreeMap<Arc<str>, (Range<i64>, u32)>);

impl RejectedSets {
    /// Counts rejected messages, and returns those that are put into the quarantine. The last one of a set that has too many
    /// says that there are more, and where they are.
    pub(super) fn bounded(&mut self, rejected: &[(Incoming, Rejection)]) -> Vec<(Incoming, Rejection)> {
        let bounded = rejected.iter().filter_map(|(incoming, rejection)| {
            let Some(set) = &incoming.set else { return Some((incoming.clone(), rejection.clone())) };
            let (offsets, count) = self.0.entry(Arc::clone(&set.place)).or_insert_with(|| (set.offsets.clone(), 0));
            if *offsets != set.offsets {
                (*offsets, *count) = (set.offsets.clone(), 0);
            }
            *count = count.saturating_add(1);
            let mut rejection = rejection.clone();
            if *count > MAX_QUARANTINED {
                rejection.reason.push_str(&further(set));
            }
            (*count <= MAX_QUARANTINED + 1).then(|| (incoming.clone(), rejection))
        });
        bounded.collect()
    }
}

/// Returns the remark that further messages of a set are not in the quarantine.
fn further(MessageSet { place, offsets }: &MessageSet) -> String {
    let (first, last) = (offsets.start, offsets.end.saturating_sub(1));
    format!(
        "; more than {MAX_QUARANTINED} messages of a batch (offsets {first} to {last} of {place}) cannot be read, and the \
         further ones are not in the quarantine: read them with another client, and send them again"
    )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Incoming, MAX_QUARANTINED, MessageSet, RejectedSets, Rejection};
    use crate::format::{Headers, Location};

    fn rejected(set: Option<(&str, i64)>, count: usize) -> Vec<(Incoming, Rejection)> {
        let set = set.map(|(place, start)| MessageSet { place: place.into(), offsets: start..start + 100_000 });
        let incoming = Incoming {
            content_type: None,
            headers: Headers::default(),
            body: Bytes::new(),
            transport_id: None,
            redelivered: false,
            set,
        };
        vec![(incoming, Rejection::malformed(Location::Message, "no JSON")); count]
    }

    #[test]
    fn number_of_messages_of_a_set_is_bounded() {
        let mut sets = RejectedSets::default();
        let mut kept = Vec::new();
        for _ in 0..30 {
            kept.extend(sets.bounded(&rejected(Some(("partition 3 of t", 500)), 100)));
        }
        assert_eq!(kept.len(), MAX_QUARANTINED as usize + 1);
        let (last, others) = kept.split_last().unwrap();
        assert!(others.iter().all(|(_, rejection)| rejection.reason == "no JSON"));
        assert!(last.1.reason.contains("(offsets 500 to 100499 of partition 3 of t)"), "{}", last.1.reason);
    }

    #[test]
    fn other_sets_and_messages_without_one_are_kept() {
        let mut sets = RejectedSets::default();
        let many = MAX_QUARANTINED as usize + 1;
        for set in [Some(("a", 0)), Some(("b", 0)), Some(("a", 7)), None, None] {
            assert_eq!(sets.bounded(&rejected(set, many)).len(), many, "{set:?}");
        }
        assert!(sets.bounded(&rejected(Some(("b", 0)), many)).is_empty());
    }
}
