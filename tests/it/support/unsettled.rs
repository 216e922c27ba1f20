//! Output for a reading without a journal: drafts that list all of their items are converted to modifications.

use tidings::{
    format::{self, ParsedMessage},
    model::{
        ChangeId, ContentItemModification, ContentObjectModification, Draft, DraftChange, DraftItem, DraftItems,
        ItemId, NonEmpty, Origin, SourceName, Timestamp,
    },
};

/// Returns the modifications that need no settling; none for a source that does not know the change types.
pub(crate) fn modifications(reading: &ParsedMessage) -> Vec<ContentObjectModification> {
    match reading {
        ParsedMessage::Drafts(drafts) => drafts.iter().filter_map(complete_modification).collect(),
        ParsedMessage::NoChange(_) => Vec::new(),
    }
}

/// Writes the modification in the format with that name.
pub(crate) fn as_format(name: &str, modification: &ContentObjectModification) -> Vec<u8> {
    (format::format(name).unwrap().write_modification)(modification)
}

fn complete_modification(draft: &Draft) -> Option<ContentObjectModification> {
    let draft = draft.clone();
    let DraftItems::Listed(items) = draft.items else { return None };
    let items = items.iter().map(complete_item).collect::<Option<Vec<_>>>()?;
    Some(ContentObjectModification {
        id: draft.id.unwrap_or_else(ChangeId::mint),
        user: draft.user,
        time: draft.time.reported().unwrap_or_else(Timestamp::now),
        object: draft.object,
        parent: draft.parent,
        types: draft.types,
        description: draft.description,
        report: draft.report,
        origin: Origin {
            source: SourceName::parse("a-source").unwrap(),
            event_id: draft.event_id,
            software_version: draft.software_version,
        },
        items: NonEmpty::try_from(items).unwrap(),
    })
}

fn complete_item(item: &DraftItem) -> Option<ContentItemModification> {
    let DraftChange::Reported(change) = &item.change else { return None };
    let id = item.id.unwrap_or_else(ItemId::mint);
    Some(ContentItemModification { id, uri: item.uri.clone(), change: change.clone() })
}
