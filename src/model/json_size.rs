//! Upper bounds on the JSON of a change, in bytes, known before it is settled: they include everything that
//! settling may add.
//!
//! JSON escapes quotation marks, backslashes and line breaks with one more byte each. URIs, states and digests
//! contain none of these, and text contains no other control characters.

use super::{
    ContentItemModification, ContentLocation, ContentObjectModification, Draft, DraftItem, EventId, MediaType, Report,
    Uri, User,
};

/// Bytes for the names of members, identifiers, times, the source's name and notes of a change.
const CHANGE: usize = 1024;

/// Bytes for the names of members, the identifier, the states and the notes of an item.
const ITEM: usize = 480;

/// Bytes for the names of members, size and digest of a content location.
const CONTENT: usize = 300;

/// Bytes for quotation marks and a comma.
const QUOTED: usize = 3;

/// Returns an upper bound on the JSON of a change without its items.
#[must_use]
pub fn of_change(change: &ContentObjectModification) -> usize {
    let ContentObjectModification { user, object, parent, types, description, report, origin, .. } = change;
    let parent = parent.as_ref().map_or(0, |parent| parent.as_str().len());
    let event_id = origin.event_id.as_ref().map_or(0, |id| 2 * id.as_str().len());
    let version = origin.software_version.as_ref().map_or(0, |version| 2 * version.as_str().len());
    let about = of_user(user) + object.as_str().len() + parent + event_id + version;
    CHANGE + about + of_types(types) + 2 * description.as_str().len() + of_report(report.as_ref())
}

/// Returns an upper bound on the JSON of one item of a change.
#[must_use]
pub fn of_item(item: &ContentItemModification) -> usize {
    ITEM + item.uri.as_str().len() + item.change.content().map_or(0, of_content)
}

/// Returns an upper bound on the JSON of the change that a draft may become. A draft without parent or types may get a
/// parent and at most `types` types from the registry. Items that the draft does not list are not included.
#[must_use]
pub fn of_draft(draft: &Draft, types: usize) -> usize {
    let Draft { event_id, software_version, user, object, parent, description, report, items, .. } = draft;
    let parent = parent.as_ref().map_or(Uri::MAX_BYTES, |parent| parent.as_str().len());
    let types =
        if draft.types.is_empty() { types.saturating_mul(Uri::MAX_BYTES + QUOTED) } else { of_types(&draft.types) };
    let event_id = event_id.as_ref().map_or(0, |id: &EventId| 2 * id.as_str().len());
    let version = software_version.as_ref().map_or(0, |version| 2 * version.as_str().len());
    let about = of_user(user) + object.as_str().len() + parent + event_id + version;
    let items: usize = items.listed().iter().map(of_draft_item).sum();
    CHANGE + about + types + 2 * description.as_str().len() + of_report(report.as_ref()) + items
}

/// Returns the size of a report; its kind is among the names of members.
fn of_report(report: Option<&Report>) -> usize {
    report.map_or(0, |report| report.document().as_str().len())
}

fn of_draft_item(item: &DraftItem) -> usize {
    ITEM + item.uri.as_str().len() + item.change.content().map_or(0, of_content)
}

fn of_content(content: &ContentLocation) -> usize {
    let ContentLocation { url, media_type, generated_by, original, .. } = content;
    let of_media_type = |media_type: &MediaType| 2 * media_type.as_str().len();
    let media_type_size = media_type.as_ref().map_or(0, of_media_type);
    let original = original.as_ref().map_or(0, |original| {
        CONTENT + original.url.as_str().len() + original.media_type.as_ref().map_or(0, of_media_type)
    });
    let generated_by = generated_by.as_ref().map_or(0, |uri| uri.as_str().len());
    CONTENT + url.as_str().len() + media_type_size + generated_by + original
}

fn of_user(user: &User) -> usize {
    2 * user.name().len() + user.uri().map_or(0, |uri| uri.as_str().len())
}

fn of_types(types: &[Uri]) -> usize {
    types.iter().map(|kind| kind.as_str().len() + QUOTED).sum()
}
