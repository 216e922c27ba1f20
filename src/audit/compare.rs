//! The differences between a repository and the registry in an object, as a draft that corrects the registry.
//!
//! A fact that only one side has is no difference: a message of Fedora 3 has no size, and a list no parent. A state that hides
//! an item is one, because an item without a state is public. So the facts
//! that both sides have are compared, and the date of the content if the repository's is newer. Content with the same digest
//! or version is the same nevertheless. A registry without a date, because the messages have none, says nothing about dates.
//! Parents and types are not compared, because messages and repositories report different ones.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::report::{Difference, DifferenceKind};
use crate::{
    journal::registry::ObjectState,
    model::{
        Aspect, ContentItemModification, ContentLocation, ContentObjectModification, CrawledItem, CrawledObject, Draft,
        DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, EventId, ItemChange, NonEmpty, OriginalContent,
        Reading, State, Text, Uri, User, is_public,
    },
};

/// Description of the changes that an audit makes, in place of a method name.
const DESCRIPTION: &str = "corrected by an audit";

/// Returns the draft that brings the registry up to date about an object of the repository; `None` if the registry has
/// everything.
pub(super) fn draft_of_present(audit: Uuid, object: CrawledObject, registered: &ObjectState) -> Option<Draft> {
    let time = DraftTime::Observed(object.newest());
    let is_new = !registered.is_live(&object.object);
    let CrawledObject { object, parent, types, items, .. } = object;
    let listed: Vec<Uri> = items.iter().map(|item| item.uri.clone()).collect();
    let mut drafts: Vec<_> = items.into_vec().into_iter().filter_map(|item| present(item, registered)).collect();
    drafts.extend(absent(registered).filter(|item| !listed.contains(&item.uri)));
    let items = NonEmpty::try_from(drafts).ok()?;
    let (parent, types) = if is_new { (parent, types) } else { (None, Vec::new()) };
    Some(Draft { parent, types, ..draft(audit, object, time, items) })
}

/// Returns the draft that deletes all items of an object that the repository does not have; `None` if the registry has none.
pub(super) fn draft_of_absent(audit: Uuid, object: &Uri, registered: &ObjectState) -> Option<Draft> {
    let mut items: Vec<_> = absent(registered).collect();
    if !items.is_empty() && registered.is_gone(object) {
        items.push(DraftItem::new(object.clone(), DraftChange::Absent));
    }
    let items = NonEmpty::try_from(items).ok()?;
    Some(draft(audit, object.clone(), DraftTime::Arrival, items))
}

fn absent(registered: &ObjectState) -> impl Iterator<Item = DraftItem> {
    registered.live_items().map(|(uri, _)| DraftItem::new(uri.clone(), DraftChange::Absent))
}

fn present(item: CrawledItem, registered: &ObjectState) -> Option<DraftItem> {
    let CrawledItem { uri, at, content, state } = item;
    if registered.is_live(&uri) {
        let known = registered.content(&uri).and_then(|known| known.parse().ok());
        let is_newer = registered.is_newer(&uri, Aspect::Content, at) && !registered.is_undated(&uri, Aspect::Content);
        let content = content.filter(|content| match &known {
            Some(known) => contradicts(known, content) || (is_newer && !is_same_version(known, content)),
            None => is_newer,
        });
        // A list has no dates, so it says that an item is active before they come, and after they end.
        let is_of_dates = registered.is_decided_by_dates(&uri);
        let is_other = |state: &State, known: &State| known != state && !(is_of_dates && is_public(Some(state)));
        // Without a state, an item is public.
        let differs = |state: &State| match registered.state(&uri) {
            Some(known) => is_other(state, known),
            None => !is_public(Some(state)),
        };
        let state = state.filter(differs);
        // The content is newer, although the registry has the same facts about it.
        let is_known = |content: &ContentLocation| known.as_ref().is_some_and(|known| says_all_of(known, content));
        let change = match (content, state) {
            (None, None) => return None,
            (Some(content), None) if is_known(&content) => {
                DraftChange::AddOrUpdate { content: Some(content), initial_state: None }
            }
            (Some(content), Some(state)) if is_known(&content) => {
                DraftChange::AddOrUpdateWithState { content: Some(content), state }
            }
            (content, state) => DraftChange::Present { content, state },
        };
        return Some(DraftItem::new(uri, change));
    }
    Some(DraftItem::new(uri, DraftChange::Present { content, state }))
}

/// Returns whether two locations cannot be about the same content. Of a copy, the original counts.
fn contradicts(known: &ContentLocation, found: &ContentLocation) -> bool {
    fn differ<T: PartialEq>(known: Option<&T>, found: Option<&T>) -> bool {
        known.zip(found).is_some_and(|(known, found)| known != found)
    }
    let (known, found) = (known.reported(), found.reported());
    // A message may name the content without the date of its version.
    let digests = known.digest.as_ref().zip(found.digest.as_ref());
    (has_version(&known) == has_version(&found) && known.url != found.url)
        || differ(known.media_type.as_ref(), found.media_type.as_ref())
        || differ(known.size.as_ref(), found.size.as_ref())
        || digests.is_some_and(|(known, found)| known.algorithm() == found.algorithm() && known != found)
}

/// Returns whether a location has every fact of another one.
fn says_all_of(known: &ContentLocation, found: &ContentLocation) -> bool {
    known == found || known.is_copy_of(found)
}

/// Returns whether two locations are certainly about the same content: they have the same facts, and a digest or a version
/// is among them.
fn is_same_version(known: &ContentLocation, found: &ContentLocation) -> bool {
    says_all_of(known, found) && (found.digest.is_some() || has_version(&found.reported()))
}

/// Returns whether the URL of the content has the date of its version, as in Fedora 3.
fn has_version(content: &OriginalContent) -> bool {
    content.url.as_str().contains('?')
}

/// Returns the draft of a harvested record without the facts that an audit does not compare.
pub(super) fn comparable(draft: Draft, registered: &ObjectState) -> Draft {
    let is_known = registered.live_items().next().is_some();
    if is_known { Draft { parent: None, types: Vec::new(), ..draft } } else { draft }
}

/// Returns the draft of a harvested record as a correction.
pub(super) fn as_correction(audit: Uuid, draft: Draft) -> Draft {
    let event_id = event_id(audit, &draft.object, &draft.items);
    Draft { event_id, description: Text::new(DESCRIPTION), ..draft }
}

/// Returns the identifier of a correction. The audit and the correction identify the event, so that a correction that is
/// repeated after a crash is a duplicate.
fn event_id(audit: Uuid, object: &Uri, items: &DraftItems) -> Option<EventId> {
    let identity = format!("{object} {items:?}");
    EventId::parse(&format!("audit:{audit}:{}", hex::encode(&Sha256::digest(identity)[..16])))
}

fn draft(audit: Uuid, object: Uri, time: DraftTime, items: NonEmpty<DraftItem>) -> Draft {
    let items = DraftItems::Listed(items);
    Draft {
        id: None,
        event_id: event_id(audit, &object, &items),
        software_version: None,
        user: User::unknown(),
        time,
        object,
        parent: None,
        types: Vec::new(),
        description: Text::new(DESCRIPTION),
        items,
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Returns a number that is another one after a report about the object.
pub(super) fn state_mark(registered: &ObjectState) -> u64 {
    FixedState::default().hash_one(format!("{registered:?}"))
}

/// Returns a number that is the same for two looks at an item that have found the same difference.
pub(super) fn fingerprint(item: &ContentItemModification) -> u64 {
    let difference = match &item.change {
        ItemChange::Add { .. } => "missing".to_owned(),
        ItemChange::Delete { .. } => "extra".to_owned(),
        ItemChange::State { after, .. } => after.to_string(),
        ItemChange::Update { content, after, .. } => format!("{content:?} {after:?}"),
    };
    FixedState::default().hash_one((item.uri.as_str(), difference))
}

/// Returns those differences that a change would end, and whose items count.
pub(super) fn differences(
    change: &ContentObjectModification,
    registered: &ObjectState,
    counts: impl Fn(&ContentItemModification) -> bool,
) -> Vec<Difference> {
    let difference = |item: &ContentItemModification| {
        let (kind, members) = match &item.change {
            ItemChange::Add { .. } => (DifferenceKind::Missing, Vec::new()),
            ItemChange::Delete { .. } => (DifferenceKind::Extra, Vec::new()),
            ItemChange::State { .. } => (DifferenceKind::Different, vec!["state"]),
            ItemChange::Update { content, after, .. } => {
                let known = registered.content(&item.uri).and_then(|known| known.parse().ok());
                let mut members =
                    content.as_ref().map_or_else(Vec::new, |found| differing_members(known.as_ref(), found));
                members.extend(after.as_ref().map(|_| "state"));
                (DifferenceKind::Different, members)
            }
        };
        Difference {
            kind,
            object: change.object.clone(),
            item: item.uri.clone(),
            members: members.into_iter().map(str::to_owned).collect(),
        }
    };
    change.items.iter().filter(|item| counts(item)).map(difference).collect()
}

fn differing_members(known: Option<&ContentLocation>, found: &ContentLocation) -> Vec<&'static str> {
    let Some(known) = known else { return vec!["content"] };
    let members = [
        ("content.url", known.url != found.url),
        ("content.mediaType", known.media_type != found.media_type),
        ("content.size", known.size != found.size),
        ("content.digest", known.digest != found.digest),
    ];
    let members: Vec<_> = members.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect();
    if members.is_empty() { vec!["content"] } else { members }
}

#[cfg(test)]
mod tests {
    use super::{
        CrawledItem, DraftChange, DraftItem, DraftTime, ItemChange, NonEmpty, ObjectState, State, Uri, Uuid, draft,
        present,
    };
    use crate::{
        journal::settle::{ReceiptClock, SourcePolicy, settle},
        model::{SourceName, Timestamp},
    };

    /// A message about a new object of Fedora 3 has no state, and a message about another state can be lost.
    #[test]
    fn state_that_hides_an_item_without_a_state_is_a_difference() {
        let uri = Uri::parse("http://h/a").unwrap();
        let [first, second] = [1, 2].map(|second| Timestamp::from_millis(second * 1000).unwrap());
        let policy = SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false };
        let mut registered = ObjectState::default();
        let add = DraftChange::Reported(ItemChange::Add { content: None, after: None });
        let items = NonEmpty::one(DraftItem::new(uri.clone(), add));
        let added = draft(Uuid::nil(), uri.clone(), DraftTime::Reported(first), items);
        let settled = settle(added, &policy, ReceiptClock::at(second), &registered);
        let (modification, settlement) = settled.change.unwrap();
        registered.apply(settled.ordering_time, &modification, &settlement);
        for (state, is_difference) in [(State::ACTIVE, false), (State::INACTIVE, true), (State::DELETED, true)] {
            let found = CrawledItem { uri: uri.clone(), at: first, content: None, state: Some(state.clone()) };
            let expected = DraftChange::Present { content: None, state: Some(state) };
            let expected = is_difference.then(|| DraftItem::new(uri.clone(), expected));
            assert_eq!(present(found.clone(), &registered), expected);
            let Some(correction) = expected else { continue };
            // The correction ends the difference.
            let mut corrected = registered.clone();
            let items = NonEmpty::one(correction);
            let correction = draft(Uuid::nil(), uri.clone(), DraftTime::Observed(first), items);
            let settled = settle(correction, &policy, ReceiptClock::at(second), &corrected);
            let (modification, settlement) = settled.change.unwrap();
            corrected.apply(settled.ordering_time, &modification, &settlement);
            assert_eq!(present(found, &corrected), None);
        }
    }
}
