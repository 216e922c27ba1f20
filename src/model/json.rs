//! The JSON shape of the model, as documented in `docs/json.md`.
//!
//! This JSON shape has three uses: the journal stores [`Change`]s in it, `GET /changes` returns it, and the
//! `content-change` dialect parses [`Draft`]s from it. A draft may lack the members that the gateway adds
//! (identifiers, number, source, time). Unknown members are ignored.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

use super::{
    AspectSet, Change, ChangeId, ChangeType, ContentItemModification, ContentLocation, ContentObjectModification,
    Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DroppedPart, EventId, InvalidVisibilityDates, ItemChange,
    ItemChangeError, ItemId, ItemNotes, LookupMark, NonEmpty, Origin, Reading, Report, Seq, Settlement, SourceName,
    State, Text, Timestamp, Uri, User, VisibilityDates, deserialize_str,
    lenient::{ReportedTime, null_is_missing},
};

/// A modification of one object: the changes that its source made at the same time. Later versions may add members.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", expecting = "a change, an object")]
#[schema(as = Change)]
pub(super) struct Wire<'a> {
    /// Number of the change in the journal, from 1, without gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Seq, required = true)]
    seq: Option<Seq>,
    /// Permanent identifier of the change.
    #[serde(default)]
    #[schema(value_type = ChangeId, required = true)]
    id: Option<ChangeId>,
    /// Name of the configured source.
    #[serde(default)]
    #[schema(value_type = SourceName, required = true)]
    source: Option<SourceName>,
    /// Identifier of the event in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = EventId)]
    source_event_id: Option<EventId>,
    /// Version of the source's software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Text)]
    source_version: Option<Cow<'a, Text>>,
    /// Time at which the gateway received the event, by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = true)]
    received: Option<Timestamp>,
    /// Time of the change, by the source's clock.
    #[serde(default)]
    #[schema(value_type = Timestamp, required = true)]
    time: Option<ReportedTime>,
    /// User who made the change.
    #[serde(default)]
    #[schema(value_type = User, required = true)]
    user: Option<Cow<'a, User>>,
    /// URI of the object.
    object: Uri,
    /// URI of the object's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    parent: Option<Uri>,
    /// Types of the object.
    #[serde(default, deserialize_with = "null_is_missing", skip_serializing_if = "is_empty")]
    #[schema(value_type = Vec<Uri>)]
    types: Cow<'a, [Uri]>,
    /// Human-readable description; may be empty.
    #[serde(default, deserialize_with = "null_is_missing")]
    #[schema(value_type = Text, required = true)]
    description: Cow<'a, Text>,
    /// Message of the source about work on the object, such as the result of an ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    report: Option<Report>,
    /// Whether the object was purged, with all items that it ever had.
    #[serde(default, deserialize_with = "null_is_missing", skip_serializing_if = "std::ops::Not::not")]
    purge: bool,
    /// Aspects of the object that come from the registry and not from the source.
    #[serde(default, deserialize_with = "null_is_missing", skip_serializing_if = "AspectSet::is_empty")]
    filled: AspectSet,
    /// Aspects of the object that are older than in the registry.
    #[serde(default, deserialize_with = "null_is_missing", skip_serializing_if = "AspectSet::is_empty")]
    late: AspectSet,
    /// Time by which the registry ordered a change that is ordered by arrival, because its source reported no time, or an
    /// older time than the registry has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp)]
    as_of: Option<Timestamp>,
    /// Result of the lookup; absent if no lookup was made or the repository answered completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = LookupMark)]
    lookup: Option<LookupMark>,
    /// Whether the gateway made the change at a time that the source had announced before.
    #[serde(default, deserialize_with = "null_is_missing", skip_serializing_if = "std::ops::Not::not")]
    due: bool,
    /// Modified items, in order.
    #[serde(default, deserialize_with = "null_is_missing")]
    #[schema(value_type = Vec<WireItemParts>, required = true, min_items = 1)]
    items: Vec<WireItem<'a>>,
}

fn is_empty(types: &[Uri]) -> bool {
    types.is_empty()
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "WireItemParts")]
struct WireItem<'a> {
    id: Option<ItemId>,
    uri: Uri,
    #[serde(flatten)]
    change: WireItemChange<'a>,
    /// Whether the sender leaves it to the registry to decide between ADD and UPDATE.
    #[serde(skip)]
    is_undecided: bool,
    #[serde(skip_serializing_if = "AspectSet::is_empty")]
    late: AspectSet,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inferred: bool,
    #[serde(rename = "beginsIn", skip_serializing_if = "Option::is_none")]
    initial_state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visible_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visible_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denies: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    came: Option<Timestamp>,
}

/// An item's change by reference for writing, by value after reading.
struct WireItemChange<'a>(Cow<'a, ItemChange>);

/// A modification of one item.
// Also the parts of an item before their combination is validated.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", expecting = "an object with the URI of the item")]
#[schema(as = ChangeItem)]
struct WireItemParts {
    /// Permanent identifier of this part of the change.
    #[serde(default)]
    #[schema(value_type = ItemId, required = true)]
    id: Option<ItemId>,
    /// URI of the item; the object's own URI if the change concerns the object as a whole.
    uri: Uri,
    /// Change type; absent if only the state changed.
    #[serde(default)]
    #[schema(value_type = ChangeType)]
    change: Option<ChangeType>,
    /// Location of the new content; only with ADD and UPDATE.
    #[serde(default)]
    #[schema(value_type = ContentLocation)]
    content: Option<ContentLocation>,
    /// The state until now; never with ADD.
    #[serde(default)]
    #[schema(value_type = State)]
    state_before: Option<State>,
    /// The state from now on.
    #[serde(default)]
    #[schema(value_type = State)]
    state_after: Option<State>,
    /// Aspects of the item that are older than in the registry.
    #[serde(default, deserialize_with = "null_is_missing")]
    late: AspectSet,
    /// Whether the gateway inferred ADD or UPDATE from the registry, because the source only reported new content.
    #[serde(default, deserialize_with = "null_is_missing")]
    inferred: bool,
    /// Default state of a new item, valid until a source reports a state.
    #[serde(default, rename = "beginsIn")]
    #[schema(value_type = State)]
    initial_state: Option<State>,
    /// Time to come from which the public may see the item.
    #[serde(default)]
    #[schema(value_type = Timestamp)]
    visible_from: Option<TimeOrDay>,
    /// Time to come until which the public may see the item.
    #[serde(default)]
    #[schema(value_type = Timestamp)]
    visible_until: Option<TimeOrDay>,
    /// Time at which the gateway had changed the visibility of the item as announced, if the source now says another date.
    #[serde(default)]
    #[schema(value_type = Timestamp)]
    denies: Option<TimeOrDay>,
    /// Announced time at which the gateway had changed the visibility of the item; only if the change is the result of a
    /// download, which leaves that as it is.
    #[serde(default)]
    #[schema(value_type = Timestamp)]
    came: Option<TimeOrDay>,
}

/// A time, or a day, which stands for its begin in UTC. A message with another text is refused: without its date an item
/// under embargo would become public.
#[derive(Clone, Copy)]
struct TimeOrDay(Timestamp);

impl<'de> Deserialize<'de> for TimeOrDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Timestamp::parse_or_day).map(Self)
    }
}

/// Error for parts of an item that contradict each other.
#[derive(Debug, thiserror::Error)]
enum InvalidItem {
    #[error(transparent)]
    Change(#[from] ItemChangeError),
    #[error(transparent)]
    Dates(#[from] InvalidVisibilityDates),
}

impl Serialize for WireItemChange<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let change = &self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(change_type) = change.change_type() {
            map.serialize_entry("change", &change_type)?;
        }
        if let Some(content) = change.content() {
            map.serialize_entry("content", content)?;
        }
        if let Some(before) = change.before() {
            map.serialize_entry("stateBefore", before)?;
        }
        if let Some(after) = change.after() {
            map.serialize_entry("stateAfter", after)?;
        }
        map.end()
    }
}

impl TryFrom<WireItemParts> for WireItem<'_> {
    type Error = InvalidItem;

    fn try_from(parts: WireItemParts) -> Result<Self, InvalidItem> {
        let time = |date: Option<TimeOrDay>| date.map(|TimeOrDay(time)| time);
        let (visible_from, visible_until) = (time(parts.visible_from), time(parts.visible_until));
        VisibilityDates::new(visible_from, visible_until)?;
        let has_state = parts.state_before.is_some() || parts.state_after.is_some();
        let is_undecided = parts.change.is_none() && parts.content.is_some() && !has_state;
        let change = if is_undecided { Some(ChangeType::Update) } else { parts.change };
        let change = ItemChange::from_parts(change, parts.content, parts.state_before, parts.state_after)?;
        Ok(Self {
            is_undecided,
            id: parts.id,
            uri: parts.uri,
            change: WireItemChange(Cow::Owned(change)),
            late: parts.late,
            inferred: parts.inferred,
            initial_state: parts.initial_state,
            visible_from,
            visible_until,
            denies: time(parts.denies),
            came: time(parts.came),
        })
    }
}

impl<'a> WireItem<'a> {
    fn of(item: &'a ContentItemModification, notes: ItemNotes) -> Self {
        Self {
            id: Some(item.id),
            uri: item.uri.clone(),
            change: WireItemChange(Cow::Borrowed(&item.change)),
            is_undecided: false,
            late: notes.late,
            inferred: notes.inferred,
            initial_state: notes.initial_state,
            visible_from: notes.dates.from(),
            visible_until: notes.dates.until(),
            denies: notes.denies,
            came: notes.came,
        }
    }

    fn notes(&self) -> ItemNotes {
        let initial_state = self.initial_state.clone();
        ItemNotes {
            late: self.late,
            inferred: self.inferred,
            initial_state,
            dates: self.dates(),
            denies: self.denies,
            came: self.came,
        }
    }

    fn dates(&self) -> VisibilityDates {
        // They are in order, because an item is read with its dates in order, and written from such dates.
        VisibilityDates::new(self.visible_from, self.visible_until).unwrap_or_default()
    }
}

impl<'a> Wire<'a> {
    fn of(modification: &'a ContentObjectModification, settlement: &Settlement) -> Self {
        let items = modification.items.iter().enumerate();
        Self {
            seq: None,
            id: Some(modification.id),
            source: Some(modification.origin.source.clone()),
            source_event_id: modification.origin.event_id.clone(),
            source_version: modification.origin.software_version.as_ref().map(Cow::Borrowed),
            received: None,
            time: Some(ReportedTime::Read(modification.time)),
            user: Some(Cow::Borrowed(&modification.user)),
            object: modification.object.clone(),
            parent: modification.parent.clone(),
            types: Cow::Borrowed(&modification.types),
            description: Cow::Borrowed(&modification.description),
            report: modification.report.clone(),
            purge: settlement.purge,
            filled: settlement.filled,
            late: settlement.late,
            as_of: settlement.as_of,
            lookup: settlement.lookup,
            due: settlement.due,
            items: items.map(|(index, item)| WireItem::of(item, settlement.item(index))).collect(),
        }
    }

    fn into_modification<E: serde::de::Error>(self) -> Result<(ContentObjectModification, Settlement), E> {
        let settlement = Settlement {
            filled: self.filled,
            late: self.late,
            purge: self.purge,
            as_of: self.as_of,
            lookup: self.lookup,
            due: self.due,
            items: self.items.iter().map(WireItem::notes).collect(),
        };
        let items = self.items.into_iter().map(|item| {
            let id = item.id.ok_or_else(|| E::missing_field("id"))?;
            Ok(ContentItemModification { id, uri: item.uri, change: item.change.0.into_owned() })
        });
        let modification = ContentObjectModification {
            id: self.id.ok_or_else(|| E::missing_field("id"))?,
            user: self.user.map(Cow::into_owned).ok_or_else(|| E::missing_field("user"))?,
            time: self.time.and_then(ReportedTime::read).ok_or_else(|| E::missing_field("time"))?,
            object: self.object,
            parent: self.parent,
            types: self.types.into_owned(),
            description: self.description.into_owned(),
            report: self.report,
            origin: Origin {
                source: self.source.ok_or_else(|| E::missing_field("source"))?,
                event_id: self.source_event_id,
                software_version: self.source_version.map(Cow::into_owned),
            },
            items: NonEmpty::try_from(items.collect::<Result<Vec<_>, E>>()?).map_err(E::custom)?,
        };
        Ok((modification, settlement.without_trailing_empty_notes()))
    }
}

impl Settlement {
    /// Removes empty notes from the end of the list.
    fn without_trailing_empty_notes(mut self) -> Self {
        while self.items.last().is_some_and(|notes| *notes == ItemNotes::default()) {
            self.items.pop();
        }
        self
    }
}

impl Serialize for ContentObjectModification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire::of(self, &Settlement::default()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ContentObjectModification {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Wire::deserialize(deserializer)?.into_modification()?.0)
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut wire = Wire::of(&self.modification, &self.settlement);
        wire.seq = Some(self.seq);
        wire.received = Some(self.received);
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let seq = wire.seq.ok_or_else(|| D::Error::missing_field("seq"))?;
        let received = wire.received.ok_or_else(|| D::Error::missing_field("received"))?;
        let (modification, settlement) = wire.into_modification()?;
        Ok(Self { seq, received, modification, settlement })
    }
}

/// Parses the shape of a change as a client sends it: all members except `object` and the items may be missing, and
/// `"purge": true` may replace the list of items.
impl<'de> Deserialize<'de> for Draft {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let items = wire.items.into_iter().map(|item| {
            let dates = item.dates();
            let change = match item.change.0.into_owned() {
                ItemChange::Update { content, .. } if item.is_undecided => {
                    DraftChange::AddOrUpdate { content, initial_state: None }
                }
                change => DraftChange::Reported(change),
            };
            DraftItem { id: item.id, uri: item.uri, change }.dated(dates)
        });
        let items = match NonEmpty::try_from(items.collect::<Vec<_>>()) {
            Ok(items) => DraftItems::Listed(items),
            Err(_) if wire.purge => DraftItems::Purge,
            Err(no_items) => return Err(D::Error::custom(no_items)),
        };
        let is_unreadable = wire.time == Some(ReportedTime::Unreadable);
        let dropped = is_unreadable.then_some(DroppedPart::Time).into_iter().collect();
        Ok(Self {
            id: wire.id,
            event_id: wire.source_event_id,
            software_version: wire.source_version.map(Cow::into_owned),
            user: wire.user.map_or_else(User::unknown, Cow::into_owned),
            time: wire.time.and_then(ReportedTime::read).into(),
            object: wire.object,
            parent: wire.parent,
            types: wire.types.into_owned(),
            description: wire.description.into_owned(),
            report: wire.report,
            items,
            lookup: DraftLookup { mark: wire.lookup, ..DraftLookup::default() },
            reading: Reading { dropped, ..Reading::default() },
        })
    }
}

#[cfg(test)]
mod tests;
