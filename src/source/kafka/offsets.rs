//! Next offset of each partition, as the journal stores it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

/// Next offset of each partition, by topic. Topics that the source no longer reads remain, in case it reads them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offsets {
    kafka: BTreeMap<String, BTreeMap<i32, i64>>,
}

impl Offsets {
    /// Parses the text in the journal; `None` if another transport has written it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text for the journal.
    #[expect(clippy::expect_used, reason = "maps from strings and integers to integers have a JSON form")]
    pub(super) fn to_text(&self) -> Arc<str> {
        serde_json::to_string(self).expect("offsets have a JSON form").into()
    }

    /// Returns whether the topic was read before.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.kafka.contains_key(topic)
    }

    /// Returns the next offset of a partition.
    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        self.kafka.get(topic)?.get(&partition).copied()
    }

    /// Sets the next offset of a partition.
    pub(super) fn set(&mut self, topic: &str, partition: i32, next: i64) {
        match self.kafka.get_mut(topic) {
            Some(partitions) => {
                partitions.insert(partition, next);
            }
            None => {
                self.kafka.insert(topic.to_owned(), BTreeMap::from([(partition, next)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Offsets;

    #[test]
    fn text_of_the_journal_is_parsed_again() {
        let mut offsets = Offsets::default();
        offsets.set("a.b", 0, 7);
        offsets.set("a.b", 11, 1 << 40);
        offsets.set("a.b", 0, 8);
        let text = offsets.to_text();
        assert_eq!(&*text, r#"{"kafka":{"a.b":{"0":8,"11":1099511627776}}}"#);
        let parsed = Offsets::parse(&text).unwrap();
        assert_eq!((parsed.get("a.b", 11), parsed.get("a.b", 1), parsed.has("a")), (Some(1 << 40), None, false));
        assert!(Offsets::parse(r#"{"feed":1}"#).is_none() && Offsets::parse("").is_none());
    }
}
