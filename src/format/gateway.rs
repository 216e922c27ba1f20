//! Changes and objects of another gateway, as its `/changes` and `/snapshot` return them.
//!
//! * A change is kept as it is, with its identifiers, times, states and marks. Facts that are older than those of the
//!   registry are late besides.
//! * A change whose identifier the journal has already is dropped: it has come back, or on a second way.
//! * The items of an object become the changes that bring the registry up to date: one for each time at which items have
//!   changed. Items that the other gateway has as deleted are absent. The identifier of their event names the journal, so
//!   that the other gateway recognizes them.
//! * The other gateway may have changed an object while its snapshot was read. The journal repeats such a change as a
//!   fact, so that it is no change if the registry has it.

use std::collections::BTreeMap;

use serde::Deserialize;
use uuid::Uuid;

use super::{
    Dialect, DialectKind, DuplicateDetection, Limits, Location, Message, MessageLimit, ParsedMessage, Rejection, json,
    parse_settings,
};
use crate::model::{
    Change, ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, EventId, ItemChange,
    NonEmpty, Reading, State, Text, Timestamp, Uri, User,
};

/// Returns the identifier of the events that the snapshot of a journal makes.
#[must_use]
pub fn snapshot_event(journal: Uuid) -> String {
    format!("snapshot of urn:uuid:{journal}")
}

/// The dialect `gateway`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "gateway",
    about: "changes and objects of another gateway, which the gateway harvests itself",
    accepts: &["application/json"],
    headers: &[],
    duplicates: DuplicateDetection::ByChange,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, limits| {
        let Settings {} = parse_settings(value)?;
        Ok(Box::new(Gateway { limits }))
    },
};

/// The dialect has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

struct Gateway {
    limits: Limits,
}

/// A message of the harvest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum GatewayMessage {
    /// A change of `/changes`.
    Change(Box<Change>),
    /// A change that happened while the snapshot was read.
    Repeat(Box<Change>),
    /// An object of `/snapshot`.
    Object(SnapshotObject),
}

/// An object of a snapshot.
#[derive(Deserialize)]
struct SnapshotObject {
    /// Identity of the journal.
    journal: Uuid,
    registered: RegisteredObject,
}

/// An object of a registry.
#[derive(Deserialize)]
struct RegisteredObject {
    uri: Uri,
    #[serde(default)]
    parent: Option<Uri>,
    #[serde(default)]
    types: Vec<Uri>,
    items: Vec<RegisteredItem>,
}

/// An item of a registry.
#[derive(Deserialize)]
struct RegisteredItem {
    uri: Uri,
    live: bool,
    #[serde(default)]
    since: Option<Timestamp>,
    #[serde(default)]
    state: Option<State>,
    #[serde(default)]
    content: Option<ContentLocation>,
}

impl Dialect for Gateway {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let drafts = match json::read(message.body)? {
            GatewayMessage::Change(change) => vec![relayed(*change)],
            GatewayMessage::Repeat(change) => vec![repeated(*change)],
            GatewayMessage::Object(SnapshotObject { journal, registered }) => registered.drafts(journal),
        };
        let items = drafts.iter().map(|draft| draft.items.listed().len()).sum::<usize>();
        if items > self.limits.items {
            let reason = format!("it has {items} items, and limits.items is {}", self.limits.items);
            return Err(Rejection::over_limit(MessageLimit::Items, Location::Message, reason));
        }
        Ok(match NonEmpty::try_from(drafts) {
            Ok(drafts) => ParsedMessage::Drafts(drafts),
            Err(_) => ParsedMessage::NoChange("the object has never had an item"),
        })
    }
}

/// Returns the draft of a change, which keeps it as it is.
fn relayed(change: Change) -> Draft {
    let Change { modification, settlement, .. } = change;
    let lookup = DraftLookup { mark: settlement.lookup, ..DraftLookup::default() };
    let draft = Draft::from(modification);
    let items = match draft.items {
        DraftItems::Listed(items) => DraftItems::Relayed { items, settlement: Box::new(settlement) },
        items => items,
    };
    Draft { items, lookup, ..draft }
}

/// Returns the draft of a change that the registry may have from a snapshot already. It keeps its identifiers.
fn repeated(change: Change) -> Draft {
    let draft = relayed(change);
    let items = match draft.items {
        DraftItems::Relayed { items, settlement } if !settlement.purge => {
            DraftItems::Listed(items.map(|item| DraftItem { change: without_repetition(item.change), ..item }))
        }
        items => items,
    };
    Draft { items, ..draft }
}

/// Returns the change of an item as a fact, which is no change if the registry has it.
fn without_repetition(change: DraftChange) -> DraftChange {
    match change {
        DraftChange::Reported(
            ItemChange::Add { content, after: None } | ItemChange::Update { content, after: None, .. },
        ) => DraftChange::Present { content, state: None },
        DraftChange::Reported(ItemChange::State { after, .. }) => {
            DraftChange::Reported(ItemChange::State { before: None, after })
        }
        change => change,
    }
}

impl RegisteredObject {
    /// Returns the drafts, oldest first. The registry orders an item by the time of its last change, so items with
    /// different times are in different drafts.
    fn drafts(self, journal: Uuid) -> Vec<Draft> {
        let Self { uri, parent, types, items } = self;
        let mut times: BTreeMap<Option<Timestamp>, Vec<RegisteredItem>> = BTreeMap::new();
        items.into_iter().for_each(|item| times.entry(item.since).or_default().push(item));
        let draft = |(since, items): (Option<Timestamp>, Vec<RegisteredItem>)| {
            let items = items.into_iter().map(|item| item.draft(since)).collect::<Vec<_>>();
            Some(Draft {
                id: None,
                event_id: EventId::parse(&snapshot_event(journal)),
                software_version: None,
                user: User::unknown(),
                time: since.map_or(DraftTime::Arrival, DraftTime::Reported),
                object: uri.clone(),
                parent: parent.clone(),
                types: types.clone(),
                description: Text::new("snapshot of another gateway"),
                items: DraftItems::Listed(NonEmpty::try_from(items).ok()?),
                report: None,
                lookup: DraftLookup::default(),
                reading: Reading::default(),
            })
        };
        times.into_iter().filter_map(draft).collect()
    }
}

impl RegisteredItem {
    fn draft(self, since: Option<Timestamp>) -> DraftItem {
        let Self { uri, live, state, content, .. } = self;
        let at = since.unwrap_or(Timestamp::EPOCH);
        let change = if live { DraftChange::Crawled { content, state, at } } else { DraftChange::Absent };
        DraftItem::new(uri, change)
    }
}
