//! Effect of a change on its object as a whole, for formats and protocols that know resources and no items.

use super::{Change, ChangeType, ContentItemModification, ItemChange, Uri};

/// Effect of a change on its object.
///
/// An object is created, updated or deleted as the item is that has its URI. A purge deletes it. A change of other items alone
/// is an update: whether the object has more items is not known from the change. If the object has no web URL (as in
/// Islandora) and the items are not below its URI, the items are its representations: if all are new, the object is new;
/// if all are deleted, it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectChange {
    /// The object is new.
    Create,
    /// The object has changed.
    Update,
    /// The object is deleted.
    Delete,
}

impl ObjectChange {
    /// Returns the effect of a change on the item itself. A change of state alone is an update.
    #[must_use]
    pub fn of_item(change: &ItemChange) -> Self {
        match change.change_type() {
            Some(ChangeType::Add) => Self::Create,
            Some(ChangeType::Delete) => Self::Delete,
            Some(ChangeType::Update) | None => Self::Update,
        }
    }

    /// Returns the effect of changes of these items on their object, and of its purge.
    #[must_use]
    pub fn of(object: &Uri, items: &[&ContentItemModification], purge: bool) -> Self {
        // A change may list an item twice, and the last entry then has the last word.
        let itself = items.iter().rev().find(|item| item.uri == *object);
        match itself {
            _ if items.is_empty() => Self::Update,
            _ if purge => Self::Delete,
            Some(itself) => Self::of_item(&itself.change),
            None if items.iter().any(|item| item.is_part_of(object)) => Self::Update,
            None => Self::of_all(items),
        }
    }

    /// Returns the common effect on all items, or an update if the effects differ.
    fn of_all(items: &[&ContentItemModification]) -> Self {
        let mut kinds = items.iter().map(|item| Self::of_item(&item.change));
        let first = kinds.next().unwrap_or(Self::Update);
        if kinds.all(|kind| kind == first) { first } else { Self::Update }
    }

    /// Returns the type of the activity (ActivityStreams 2 Vocabulary, section 3.1).
    #[must_use]
    pub fn activity_type(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
        }
    }
}

impl ContentItemModification {
    /// Returns whether the item is a part of its object, and neither the object itself nor a representation of it.
    #[must_use]
    pub fn is_part_of(&self, object: &Uri) -> bool {
        let is_address = ["http://", "https://"].iter().any(|scheme| object.as_str().starts_with(scheme));
        self.uri != *object && (is_address || self.uri.as_str().starts_with(object.as_str()))
    }
}

impl Change {
    /// Returns the effect of the change on its object; `None` if all that it says is older than what was known.
    #[must_use]
    pub fn object_change(&self) -> Option<ObjectChange> {
        let items: Vec<_> = self.items_on_time().collect();
        let effect = || ObjectChange::of(&self.modification.object, &items, self.settlement.purge);
        (!items.is_empty()).then(effect)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Change, ObjectChange};

    fn effect(object: &str, purge: bool, items: &Value) -> Option<ObjectChange> {
        let mut change = json!({
            "seq": 1, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48", "source": "s", "description": "",
            "received": "2026-01-02T03:04:05.006Z", "time": "2011-01-02T03:04:05Z", "user": { "name": "u" },
            "object": object, "items": items,
        });
        if purge {
            change["purge"] = json!(true);
        }
        for (number, item) in change["items"].as_array_mut().unwrap().iter_mut().enumerate() {
            item["id"] = json!(format!("urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa{number}"));
        }
        serde_json::from_value::<Change>(change).unwrap().object_change()
    }

    #[test]
    fn an_object_changes_as_the_item_with_its_uri_does() {
        use ObjectChange::{Create, Delete, Update};
        let (a, urn) = ("http://h/a", "urn:x:1");
        for (object, purge, items, expected) in [
            (
                a,
                false,
                json!([{ "uri": a, "change": "ADD" }, { "uri": "http://h/a/1", "change": "ADD" }]),
                Some(Create),
            ),
            (a, false, json!([{ "uri": a, "stateAfter": "INACTIVE" }]), Some(Update)),
            (a, false, json!([{ "uri": a, "change": "DELETE" }]), Some(Delete)),
            (a, false, json!([{ "uri": a, "change": "DELETE" }, { "uri": a, "change": "ADD" }]), Some(Create)),
            (a, false, json!([{ "uri": "http://h/a/1", "change": "DELETE" }]), Some(Update)),
            (a, true, json!([{ "uri": "http://h/a/1", "change": "DELETE" }]), Some(Delete)),
            (a, false, json!([{ "uri": a, "change": "DELETE", "late": ["existence"] }]), None),
            (urn, false, json!([{ "uri": "http://h/1?json", "change": "DELETE" }]), Some(Delete)),
            (
                urn,
                false,
                json!([{ "uri": "http://h/1", "change": "ADD" }, { "uri": "http://h/2" , "change": "UPDATE" }]),
                Some(Update),
            ),
            (urn, false, json!([{ "uri": "urn:x:1:part", "change": "ADD" }]), Some(Update)),
        ] {
            assert_eq!(effect(object, purge, &items), expected, "{object} {purge} {items}");
        }
    }
}
