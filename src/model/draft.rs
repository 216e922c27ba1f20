//! Drafts: modifications as their source reported them, before the journal settles them.

use super::{
    ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, Digest, DraftLookup, EventId,
    ItemChange, ItemId, NonEmpty, OriginalContent, Reading, Report, Settlement, State, StatedDates, Text, Timestamp,
    Uri, User, VisibilityDates,
};

/// A dialect's result for one event. It may lack facts that the source cannot know: the state before, the items of
/// a purge, whether an item is new, and even the time and an identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Identifier of the change, if the source uses this data model and has assigned one.
    pub id: Option<ChangeId>,
    /// Identifier of the event in the source.
    pub event_id: Option<EventId>,
    /// Version of the source's software.
    pub software_version: Option<Text>,
    /// User who made the change.
    pub user: User,
    /// Time of the event.
    pub time: DraftTime,
    /// URI of the object.
    pub object: Uri,
    /// URI of the object's parent.
    pub parent: Option<Uri>,
    /// Types of the object; empty if the source does not report them.
    pub types: Vec<Uri>,
    /// Human-readable description of the event.
    pub description: Text,
    /// Message of the source about work on the object, to be passed on as a whole.
    pub report: Option<Report>,
    /// Items that the event concerns.
    pub items: DraftItems,
    /// Facts to look up in the repository, and the result of the lookup.
    pub lookup: DraftLookup,
    /// Parts that the dialect left out, and former spellings of URIs.
    pub reading: Reading,
}

/// Time of a draft's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftTime {
    /// Time by the source's clock. A time in whole seconds covers its second: within it, events are ordered by arrival.
    Reported(Timestamp),
    /// Order of arrival, because the source reports no time, and the message may have waited in a queue. The change
    /// shows the time of receipt, which the gateway made up: the source has not said it. The registry therefore orders
    /// the event by the newest time that it has for the object, so that the event is never late, and makes no later event
    /// with its own time late.
    Arrival,
    /// Time by the source's clock of the newest modification of a record that was read in the order of its list. The
    /// change shows this time. The registry orders the event by it, or by the newest time that it has for the object,
    /// so that the event is never late: a record may change without a new date.
    Observed(Timestamp),
    /// Time that has come, and at which a source has announced a change. The change shows this time. The registry orders it
    /// as the announcement, because whatever its source has said since is newer.
    Due(Timestamp),
}

impl From<Option<Timestamp>> for DraftTime {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Arrival, Self::Reported)
    }
}

impl DraftTime {
    /// Returns the time that the source reported.
    #[must_use]
    pub fn reported(self) -> Option<Timestamp> {
        match self {
            Self::Reported(time) | Self::Observed(time) | Self::Due(time) => Some(time),
            Self::Arrival => None,
        }
    }

    /// Returns whether the time distinguishes the event from all others about the object. A time in whole seconds does
    /// not, because a thing can change twice in a second.
    #[must_use]
    pub fn identifies_event(self) -> bool {
        self.reported().is_some_and(|time| !time.is_whole_second())
    }
}

/// Items that a draft concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftItems {
    /// Items that the source lists. The object may have others.
    Listed(NonEmpty<DraftItem>),
    /// All items that the object has, none if the object is absent. Every other item that the registry has is absent.
    Complete(Vec<DraftItem>),
    /// All items of a purged object, which the source does not list.
    Purge,
    /// Items of a change that another gateway has settled already. The change is kept as it is. Facts that are older than
    /// those of the registry are late besides.
    Relayed {
        /// The items, each with a reported change.
        items: NonEmpty<DraftItem>,
        /// Notes from settling at the other gateway.
        settlement: Box<Settlement>,
    },
}

impl DraftItems {
    /// Returns the items that the source lists.
    #[must_use]
    pub fn listed(&self) -> &[DraftItem] {
        match self {
            Self::Listed(items) | Self::Relayed { items, .. } => items,
            Self::Complete(items) => items,
            Self::Purge => &[],
        }
    }

    /// Returns whether the draft concerns all items that the registry has of the object.
    #[must_use]
    pub fn concerns_all(&self) -> bool {
        match self {
            Self::Listed(_) => false,
            Self::Complete(_) | Self::Purge => true,
            Self::Relayed { settlement, .. } => settlement.purge,
        }
    }
}

/// A source's report about one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftItem {
    /// Identifier of this part of the change, if the source uses this data model and has assigned one.
    pub id: Option<ItemId>,
    /// URI of the item.
    pub uri: Uri,
    /// Change of the item.
    pub change: DraftChange,
}

/// Change of an item, as far as the source can report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftChange {
    /// A change that the source reports in full; only the state before may be missing.
    Reported(ItemChange),
    /// New content. The source cannot know whether the item is new, so the registry decides between ADD and UPDATE.
    AddOrUpdate {
        /// Location of the content.
        content: Option<ContentLocation>,
        /// Default state of the item if it is new.
        initial_state: Option<State>,
    },
    /// New content and state. The registry decides between ADD and UPDATE, as for [`Self::AddOrUpdate`].
    AddOrUpdateWithState {
        /// Location of the content.
        content: Option<ContentLocation>,
        /// State of the item.
        state: State,
    },
    /// Presence of the item with this content and state: an ADD if the registry lacks the item, an UPDATE if the registry
    /// has other content, a change of state if it has only another state, and otherwise no change.
    Present {
        /// Location of the content.
        content: Option<ContentLocation>,
        /// State of the item; `None` if the source does not report it.
        state: Option<State>,
    },
    /// Presence of the item as [`Self::Present`], with content whose digest follows a newer rule. If the registry has the
    /// content with the former digest, nothing has changed, and the registry keeps that digest.
    Redigested {
        /// Location of the content, with the digest by the newer rule.
        content: ContentLocation,
        /// Digest by the former rule.
        former: Digest,
    },
    /// Absence of the item: a DELETE if the registry has the item, and otherwise no change.
    Absent,
    /// Presence of the item in a crawled repository: an ADD if the registry lacks the item, an UPDATE or a change
    /// of state if the registry has other, older facts, and otherwise no change.
    Crawled {
        /// Location of the content.
        content: Option<ContentLocation>,
        /// State of the item, if the repository has states.
        state: Option<State>,
        /// Time since which the item has this content and state.
        at: Timestamp,
    },
    /// State, or requested state, of an activity. Only an event newer than the end reopens a finished activity; older
    /// events that arrive afterwards are ignored.
    Activity {
        /// The state.
        after: State,
        /// States in which an activity is finished.
        over: &'static [State],
    },
    /// Result of an attempt to copy the content of the item. No change unless the item exists with the original as its
    /// content: a result that comes too late for newer content is dropped.
    Copied {
        /// Content of which a copy was requested.
        original: OriginalContent,
        /// The copy; `None` if it could not be made.
        copy: Option<ContentLocation>,
    },
    /// Result of a later lookup for an event that is in the journal already, or that may have changed nothing. Only
    /// facts that the registry lacks, or has with an older time, become a change. An ADD of an existing item is an
    /// UPDATE.
    FollowUp(ItemChange),
    /// Result of a later lookup for an event without a time, which the journal has. As the time of the event
    /// is unknown, the result is outdated if the registry no longer has the event's facts.
    FollowUpTo {
        /// Change that the event reported.
        reported: ItemChange,
        /// The same with the result of the lookup.
        change: ItemChange,
    },
    /// A change with announced dates of the item's visibility. The dates belong to the state: whatever reports a state
    /// replaces them.
    Dated {
        /// The change. It is not dated itself.
        change: Box<Self>,
        /// The dates.
        dates: VisibilityDates,
    },
    /// A change with what the repository states about the dates of the item. They restrict an item that its state shows, and
    /// say nothing about an item that its state hides. With [`Self::Present`] without content and state, they concern an item
    /// that the message does not name: no change if the registry lacks it.
    Restricted {
        /// The change. It has no dates itself.
        change: Box<Self>,
        /// The dates.
        dates: StatedDates,
    },
    /// Change of visibility that a source has announced for the time of the draft ([`DraftTime::Due`]). No change unless the
    /// registry still has that date for the item.
    Due,
    /// Change of properties, actual or possible, without new content.
    Properties {
        /// State that the event set together with the properties.
        after: Option<State>,
    },
}

impl DraftChange {
    /// Returns the change without its dates.
    #[must_use]
    pub fn undated(&self) -> &Self {
        match self {
            Self::Dated { change, .. } | Self::Restricted { change, .. } => change.undated(),
            change => change,
        }
    }

    /// Returns the location of the new content, if the change has content.
    #[must_use]
    pub fn content(&self) -> Option<&ContentLocation> {
        match self {
            Self::Reported(change) | Self::FollowUp(change) | Self::FollowUpTo { change, .. } => change.content(),
            Self::AddOrUpdate { content, .. }
            | Self::AddOrUpdateWithState { content, .. }
            | Self::Present { content, .. }
            | Self::Crawled { content, .. } => content.as_ref(),
            Self::Redigested { content, .. } => Some(content),
            Self::Copied { copy, .. } => copy.as_ref(),
            Self::Dated { change, .. } | Self::Restricted { change, .. } => change.content(),
            Self::Absent | Self::Activity { .. } | Self::Due | Self::Properties { .. } => None,
        }
    }

    /// Returns the location of the new content for modification, if the change has content.
    pub fn content_mut(&mut self) -> Option<&mut ContentLocation> {
        match self {
            Self::Reported(ItemChange::Add { content, .. } | ItemChange::Update { content, .. })
            | Self::FollowUp(ItemChange::Add { content, .. } | ItemChange::Update { content, .. })
            | Self::FollowUpTo {
                change: ItemChange::Add { content, .. } | ItemChange::Update { content, .. }, ..
            }
            | Self::AddOrUpdate { content, .. }
            | Self::AddOrUpdateWithState { content, .. }
            | Self::Present { content, .. }
            | Self::Crawled { content, .. } => content.as_mut(),
            Self::Redigested { content, .. } => Some(content),
            Self::Copied { copy, .. } => copy.as_mut(),
            Self::Dated { change, .. } | Self::Restricted { change, .. } => change.content_mut(),
            Self::Reported(_)
            | Self::FollowUp(_)
            | Self::FollowUpTo { .. }
            | Self::Absent
            | Self::Activity { .. }
            | Self::Due
            | Self::Properties { .. } => None,
        }
    }
}

impl DraftItem {
    /// Adds announced dates of the item's visibility, if there are any.
    #[must_use]
    pub fn dated(self, dates: VisibilityDates) -> Self {
        match self.change {
            change if dates.is_empty() => Self { change, ..self },
            change => Self { change: DraftChange::Dated { change: Box::new(change), dates }, ..self },
        }
    }

    /// Adds all dates of the item's visibility that its source knows. Without any, those that were announced have lapsed.
    #[must_use]
    pub fn with_all_dates(self, dates: VisibilityDates) -> Self {
        Self { change: DraftChange::Dated { change: Box::new(self.change), dates }, ..self }
    }

    /// Adds what the repository states about the dates of the item.
    #[must_use]
    pub fn restricted(self, dates: StatedDates) -> Self {
        Self { change: DraftChange::Restricted { change: Box::new(self.change), dates }, ..self }
    }

    /// Returns an item whose part of the change gets its identifier from the journal.
    #[must_use]
    pub fn new(uri: Uri, change: DraftChange) -> Self {
        Self { id: None, uri, change }
    }
}

impl From<ContentItemModification> for DraftItem {
    fn from(item: ContentItemModification) -> Self {
        Self { id: Some(item.id), uri: item.uri, change: DraftChange::Reported(item.change) }
    }
}

/// Converts a complete modification, for example from another gateway. The name of the source is dropped, because each
/// gateway has its own names for its sources.
impl From<ContentObjectModification> for Draft {
    fn from(modification: ContentObjectModification) -> Self {
        Self {
            id: Some(modification.id),
            event_id: modification.origin.event_id,
            software_version: modification.origin.software_version,
            user: modification.user,
            time: DraftTime::Reported(modification.time),
            object: modification.object,
            parent: modification.parent,
            types: modification.types,
            description: modification.description,
            report: modification.report,
            items: DraftItems::Listed(modification.items.map(DraftItem::from)),
            lookup: DraftLookup::default(),
            reading: Reading::default(),
        }
    }
}
