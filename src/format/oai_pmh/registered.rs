//! Records of the registry of another gateway, in the format `content-change`: the state of an object with all its items.

use crate::{
    format::{Location, Rejection},
    model::{
        Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, ItemChange, Reading, Text, Timestamp, Uri,
        User,
    },
};

/// Returns the draft of a record. `message` adds the items that the object has; a deleted record has none.
pub(super) fn draft(identifier: &str, message: Option<Draft>, date: Option<Timestamp>) -> Result<Draft, Rejection> {
    let unprocessable = |reason| Rejection::unprocessable(Location::Message, reason);
    let object = Uri::parse(identifier)
        .map_err(|error| unprocessable(format!("the identifier of the record is not the URI of an object: {error}")))?;
    // Otherwise a deleted record, which has only the identifier, would delete another object.
    if let Some(message) = message.as_ref().filter(|message| message.object != object) {
        return Err(unprocessable(format!("the message is about {}, and not about the identifier", message.object)));
    }
    let (parent, types, items) = message.map_or_else(Default::default, |Draft { parent, types, items, .. }| {
        let items = items.listed().iter().map(present);
        (parent, types, items.collect())
    });
    Ok(Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::unknown(),
        time: date.map_or(DraftTime::Arrival, DraftTime::Observed),
        object,
        parent,
        types,
        description: Text::new(&format!("record {identifier}")),
        items: DraftItems::Complete(items),
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    })
}

/// Returns an item as present with the content and the state that the message adds it with.
fn present(item: &DraftItem) -> DraftItem {
    let (content, state) = match &item.change {
        DraftChange::Reported(ItemChange::Add { content, after } | ItemChange::Update { content, after, .. }) => {
            (content.clone(), after.clone())
        }
        _ => (None, None),
    };
    DraftItem::new(item.uri.clone(), DraftChange::Present { content, state })
}
