//! A modification as its source told it, before the journal has settled it.

use super::{
    ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, DraftLookup, EventId, ItemChange,
    ItemId, NonEmpty, State, Text, Timestamp, Uri, User,
};

/// What a dialect makes of one event. It may lack what the source cannot know: the state before,
/// the items of a purge, whether something is new, even the time and an identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The change's identifier, where the source speaks our model and has given one.
    pub id: Option<ChangeId>,
    /// The source's own identifier of the event.
    pub event_id: Option<EventId>,
    /// The version of the source's software.
    pub software_version: Option<Text>,
    /// Who made the change.
    pub user: User,
    /// When it was made.
    pub time: DraftTime,
    /// The object.
    pub object: Uri,
    /// The object that it belongs to.
    pub parent: Option<Uri>,
    /// What kinds of object it is; empty where the source does not say.
    pub types: Vec<Uri>,
    /// What was done, for people.
    pub description: Text,
    /// What happened to which items.
    pub items: DraftItems,
    /// What its repository is to be asked, and what came of that.
    pub lookup: DraftLookup,
}

/// When a draft's event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftTime {
    /// Then, by the source's clock.
    Reported(Timestamp),
    /// The source does not say, and sends at once: the time of receipt is taken.
    Receipt,
    /// The source does not say, and the message may have waited in a queue: the time of receipt
    /// is shown, and the event takes its place by arrival. It is as old as the newest of what is
    /// known of its object, so that it is never late and makes nothing late that comes after it
    /// with a time of its own.
    Arrival,
}

impl From<Option<Timestamp>> for DraftTime {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Receipt, Self::Reported)
    }
}

impl DraftTime {
    /// The time that the source told.
    #[must_use]
    pub fn reported(self) -> Option<Timestamp> {
        match self {
            Self::Reported(time) => Some(time),
            Self::Receipt | Self::Arrival => None,
        }
    }
}

/// Which items a draft speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftItems {
    /// These.
    Listed(NonEmpty<DraftItem>),
    /// The object is gone with every item it had; the source does not list them.
    Purge,
}

/// What a source told of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftItem {
    /// The item's part of the change, where the source speaks our model and has given an identifier.
    pub id: Option<ItemId>,
    /// The item.
    pub uri: Uri,
    /// What happened to it.
    pub change: DraftChange,
}

/// What happened to an item, as far as the source can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftChange {
    /// The source knows what happened; only the state before may be missing.
    Reported(ItemChange),
    /// There is new content, and the source cannot tell whether the item is new: the registry can.
    AddOrUpdate {
        /// Where the content is.
        content: Option<ContentLocation>,
        /// The state that such an item begins in, if it turns out to be new.
        initial_state: Option<State>,
    },
    /// It is there, with that content: an ADD where it was not known, an UPDATE where other content
    /// was, and nothing where it was known to be so.
    Present {
        /// Where the content is.
        content: Option<ContentLocation>,
    },
    /// A walk through the repository found it there: an ADD where it was not known, an UPDATE or a change of state
    /// where it is known otherwise and these are newer, and nothing where it is known so.
    Crawled {
        /// Where the content is.
        content: Option<ContentLocation>,
        /// Its state, where the repository has states.
        state: Option<State>,
        /// Since when it has been so.
        at: Timestamp,
    },
    /// An activity is told, or asked, to be in that state. One that is over goes on only where the
    /// event is newer than its end: what comes behind tells nothing any more.
    Activity {
        /// The state.
        after: State,
        /// The states in which an activity is over.
        over: &'static [State],
    },
    /// The repository says so of an event that is in the journal already, or of one that may have changed nothing. It
    /// counts as far as the registry neither holds it so nor knows anything newer; what is told to be new there
    /// may be known already, and is an UPDATE then.
    FollowUp(ItemChange),
    /// Properties changed, or may have changed; content stands as it was.
    Properties {
        /// The state that was set along with them.
        after: Option<State>,
    },
}

impl DraftChange {
    /// Where the new content is, of a change that has some.
    #[must_use]
    pub fn content(&self) -> Option<&ContentLocation> {
        match self {
            Self::Reported(change) | Self::FollowUp(change) => change.content(),
            Self::AddOrUpdate { content, .. } | Self::Present { content } | Self::Crawled { content, .. } => {
                content.as_ref()
            }
            Self::Activity { .. } | Self::Properties { .. } => None,
        }
    }

    /// Where the new content is, of a change that was told and has some.
    pub fn content_mut(&mut self) -> Option<&mut ContentLocation> {
        match self {
            Self::Reported(ItemChange::Add { content, .. } | ItemChange::Update { content, .. })
            | Self::FollowUp(ItemChange::Add { content, .. } | ItemChange::Update { content, .. })
            | Self::AddOrUpdate { content, .. }
            | Self::Present { content }
            | Self::Crawled { content, .. } => content.as_mut(),
            Self::Reported(_) | Self::FollowUp(_) | Self::Activity { .. } | Self::Properties { .. } => None,
        }
    }
}

impl DraftItem {
    /// An item whose part of the change gets its identifier from the journal.
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

/// A modification told in full, as by another gateway. The source's name is left out: it is the
/// reader's own name for whom it hears this from.
impl From<ContentObjectModification> for Draft {
    fn from(told: ContentObjectModification) -> Self {
        Self {
            id: Some(told.id),
            event_id: told.origin.event_id,
            software_version: told.origin.software_version,
            user: told.user,
            time: DraftTime::Reported(told.time),
            object: told.object,
            parent: told.parent,
            types: told.types,
            description: told.description,
            items: DraftItems::Listed(told.items.map(DraftItem::from)),
            lookup: DraftLookup::default(),
        }
    }
}
