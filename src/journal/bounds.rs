//! Bounds on the size of one change. A purge of more items than one change may have becomes several changes, in
//! order: each deletes some of the items, and the last one purges the object.

use crate::model::{
    Aspect, ChangeId, ContentItemModification, ContentObjectModification, NonEmpty, Settlement, json_size,
};

/// Bounds on one change and on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeBounds {
    /// Maximum number of items of one change.
    pub items: usize,
    /// Maximum number of items of one object in the registry, including deleted items.
    pub object_items: usize,
    /// Maximum number of types that a change gets from the registry.
    pub types: usize,
    /// Maximum size of the JSON of one change, in bytes.
    pub bytes: usize,
}

/// The defaults of the configuration; a test compares the two.
impl Default for ChangeBounds {
    fn default() -> Self {
        Self { items: 10_000, object_items: 100_000, types: 256, bytes: 16 * 1024 * 1024 }
    }
}

impl ChangeBounds {
    /// Divides a purge into changes within the bounds. Returns any other change unchanged, because the intake
    /// checks its bounds.
    ///
    /// A registry from before the bound on types may have more types of an object; the excess types are dropped.
    #[must_use]
    pub fn divide(
        &self,
        mut modification: ContentObjectModification,
        mut settlement: Settlement,
    ) -> Vec<(ContentObjectModification, Settlement)> {
        if settlement.filled.contains(Aspect::Types) {
            modification.types.truncate(self.types);
        }
        if !settlement.purge {
            return vec![(modification, settlement)];
        }
        let max_bytes = self.bytes.saturating_sub(json_size::of_change(&modification));
        let lengths = self.lengths(&modification.items, max_bytes);
        if lengths.len() < 2 {
            return vec![(modification, settlement)];
        }
        let empty = NonEmpty::one(modification.items[0].clone());
        let mut items = std::mem::replace(&mut modification.items, empty).into_vec().into_iter();
        let mut notes = std::mem::take(&mut settlement.items).into_iter();
        let last = lengths.len() - 1;
        let part = |(index, length): (usize, usize)| {
            let mut part = modification.clone();
            if index > 0 {
                part.id = ChangeId::mint();
            }
            part.items = NonEmpty::try_from(items.by_ref().take(length).collect::<Vec<_>>()).ok()?;
            let notes = notes.by_ref().take(length).collect();
            Some((part, Settlement { purge: index == last, items: notes, ..settlement.clone() }))
        };
        lengths.into_iter().enumerate().filter_map(part).collect()
    }

    /// Returns the number of items of each part, at least 1. The items of a part have at most `max_bytes` of JSON.
    fn lengths(&self, items: &[ContentItemModification], max_bytes: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        let (mut length, mut bytes) = (0, 0);
        for item in items {
            let size = json_size::of_item(item);
            if length > 0 && (length >= self.items || bytes + size > max_bytes) {
                lengths.push(length);
                (length, bytes) = (0, 0);
            }
            length += 1;
            bytes += size;
        }
        lengths.push(length);
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangeBounds, json_size};
    use crate::model::Change;

    /// Returns a purge of five items.
    fn purge() -> Change {
        let item = |number| {
            let id = format!("urn:uuid:00000000-0000-4000-8000-00000000000{number}");
            serde_json::json!({ "id": id, "uri": format!("http://h/1/{number}"), "change": "DELETE" })
        };
        let change = serde_json::json!({
            "seq": 1, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a49", "source": "s", "user": { "name": "u" },
            "received": "2026-01-02T03:04:05.006Z", "time": "2026-01-02T03:04:05.000Z", "object": "http://h/1",
            "description": "", "purge": true, "items": (1..=5).map(item).collect::<Vec<_>>(),
        });
        serde_json::from_str(&change.to_string()).unwrap()
    }

    #[test]
    fn a_purge_of_too_many_bytes_is_divided() {
        let Change { modification, settlement, .. } = purge();
        let bytes = json_size::of_change(&modification) + 2 * json_size::of_item(&modification.items[0]);
        let bounds = ChangeBounds { bytes, ..ChangeBounds::default() };
        let parts = bounds.divide(modification, settlement);
        let parts: Vec<_> = parts.iter().map(|(part, settlement)| (part.items.len(), settlement.purge)).collect();
        assert_eq!(parts, [(2, false), (2, false), (1, true)]);
    }
}
