//! Methods of API-M, the management API of Fedora 3 (interface `Management`, 3.0 to 3.8), and the effects of
//! their calls.

use super::call::Call;
use crate::{
    format::Rejection,
    model::{ContentLocation, DraftChange, DraftItem, DraftItems, ItemChange, MissingFacts, NonEmpty, State, Uri},
};

/// A method of API-M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Ingest,
    ModifyObject,
    PurgeObject,
    AddDatastream,
    ModifyDatastreamByReference,
    ModifyDatastreamByValue,
    PurgeDatastream,
    SetDatastreamState,
    SetDatastreamVersionable,
    AddRelationship,
    PurgeRelationship,
    /// A method that changes no object.
    ReadOnly,
}

/// Effect of a call.
pub(super) enum Effect {
    /// The modified items, and the data that the message lacks.
    Items(DraftItems, MissingFacts),
    /// No effect, for this reason.
    Nothing(&'static str),
}

impl Method {
    /// Returns the method with this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ingest" => Self::Ingest,
            "modifyObject" => Self::ModifyObject,
            "purgeObject" => Self::PurgeObject,
            "addDatastream" => Self::AddDatastream,
            "modifyDatastreamByReference" => Self::ModifyDatastreamByReference,
            "modifyDatastreamByValue" => Self::ModifyDatastreamByValue,
            "purgeDatastream" => Self::PurgeDatastream,
            "setDatastreamState" => Self::SetDatastreamState,
            "setDatastreamVersionable" => Self::SetDatastreamVersionable,
            "addRelationship" => Self::AddRelationship,
            "purgeRelationship" => Self::PurgeRelationship,
            "getObjectXML"
            | "export"
            | "stream"
            | "getDatastream"
            | "getDatastreams"
            | "getDatastreamHistory"
            | "compareDatastreamChecksum"
            | "getRelationships"
            | "validate"
            | "putTempStream"
            | "getTempStream"
            | "getNextPID" => Self::ReadOnly,
            _ => return None,
        })
    }

    /// Returns whether the subject may be a datastream.
    pub(super) fn is_of_relationships(self) -> bool {
        matches!(self, Self::AddRelationship | Self::PurgeRelationship)
    }

    /// Returns the effect of a call. This function is the table of all methods.
    pub(super) fn effect(self, call: &Call<'_>) -> Result<Effect, Rejection> {
        Ok(match self {
            // The message does not list the datastreams, so the object itself is the new item.
            Self::Ingest => item(call.object()?, added(None, None), MissingFacts::Items),
            // A change of the object's state does not affect its datastreams. Label and owner are properties
            // too.
            Self::ModifyObject => item(call.object()?, properties(call.state("state")?), MissingFacts::Object),
            Self::PurgeObject => Effect::Items(DraftItems::Purge, MissingFacts::Nothing),
            // A new datastream has one version, whose date the message lacks; the datastream's own URI
            // therefore identifies it.
            Self::AddDatastream => {
                let datastream = call.new_datastream()?;
                let initial_state = call.state("dsState")?.unwrap_or(State::ACTIVE);
                item(datastream.clone(), added(Some(datastream), Some(initial_state)), MissingFacts::Content)
            }
            Self::ModifyDatastreamByReference => modified(call, "dsLocation")?,
            Self::ModifyDatastreamByValue => modified(call, "dsContent")?,
            Self::PurgeDatastream => purged(call)?,
            Self::SetDatastreamState => {
                let after = call.state("dsState")?.ok_or_else(|| call.lacks("dsState", "the state that was set"))?;
                let change = DraftChange::Reported(ItemChange::State { before: None, after });
                item(call.datastream()?, change, MissingFacts::Object)
            }
            Self::SetDatastreamVersionable => item(call.datastream()?, properties(None), MissingFacts::Object),
            // Fedora also sends a message if the relationship already existed, or did not exist.
            Self::AddRelationship | Self::PurgeRelationship if !call.returned_true()? => {
                Effect::Nothing("the method returned false: the relationships are as they were")
            }
            // The first relationship creates the datastream in state A; only the registry knows whether this is
            // the first.
            Self::AddRelationship => {
                let datastream = call.relationships()?;
                let content = Some(ContentLocation::at(datastream.clone()));
                let change = DraftChange::AddOrUpdate { content, initial_state: Some(State::ACTIVE) };
                item(datastream, change, MissingFacts::Content)
            }
            // Without relationships the datastream remains, empty.
            Self::PurgeRelationship => {
                let datastream = call.relationships()?;
                item(datastream.clone(), updated(datastream), MissingFacts::Content)
            }
            Self::ReadOnly => Effect::Nothing("the method changes no object"),
        })
    }
}

/// Returns the effect of modifying a datastream: its content if the parameter `source` is given, otherwise only
/// its properties.
///
/// The method returns the creation date of the new version, to the millisecond; `updated` is the slightly
/// different time of the call. Messages of Fedora always contain the date. A message without it still reports
/// new content, at the datastream's own URI.
fn modified(call: &Call<'_>, source: &str) -> Result<Effect, Rejection> {
    let datastream = call.datastream()?;
    let created = call.returned_date()?;
    let (change, missing) = match (call.entry.parameter(source), created) {
        (None, _) => (properties(None), MissingFacts::Object),
        (Some(_), Some(created)) => (updated(call.version(&datastream, created)?), MissingFacts::Content),
        (Some(_), None) => (updated(datastream.clone()), MissingFacts::Content),
    };
    Ok(item(datastream, change, missing))
}

/// Returns the effect of purging a datastream, or its versions between two dates.
///
/// The message does not say which versions were purged. If the latest one was among them, the previous version
/// is now the content; otherwise nothing relevant changed. The purge counts as an update, so that no change is
/// lost. The datastream's own URI returns the latest remaining version, or 404 if there is none.
fn purged(call: &Call<'_>) -> Result<Effect, Rejection> {
    let datastream = call.datastream()?;
    let (change, missing) = match (call.date("startDT")?, call.date("endDT")?) {
        (None, None) => (DraftChange::Reported(ItemChange::Delete { before: None, after: None }), MissingFacts::Object),
        _ => (updated(datastream.clone()), MissingFacts::RemainingVersions),
    };
    Ok(item(datastream, change, missing))
}

fn item(uri: Uri, change: DraftChange, missing: MissingFacts) -> Effect {
    Effect::Items(DraftItems::Listed(NonEmpty::one(DraftItem::new(uri, change))), missing)
}

fn added(content: Option<Uri>, after: Option<State>) -> DraftChange {
    DraftChange::Reported(ItemChange::Add { content: content.map(ContentLocation::at), after })
}

fn updated(content: Uri) -> DraftChange {
    let content = Some(ContentLocation::at(content));
    DraftChange::Reported(ItemChange::Update { content, before: None, after: None })
}

fn properties(after: Option<State>) -> DraftChange {
    DraftChange::Properties { after }
}
