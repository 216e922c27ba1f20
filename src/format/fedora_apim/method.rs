//! The methods of API-M, Fedora 3's management API (its interface `Management`, 3.0 to 3.8), and
//! the table of what a call of each did.

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
    /// Any that leaves every object as it is.
    ReadOnly,
}

/// What a call did.
pub(super) enum Effect {
    /// This, to these items, and what the message could not tell of it.
    Items(DraftItems, MissingFacts),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Method {
    /// The method of that name.
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

    /// Whether its subject may be a datastream.
    pub(super) fn is_of_relationships(self) -> bool {
        matches!(self, Self::AddRelationship | Self::PurgeRelationship)
    }

    /// What the call did: the table.
    pub(super) fn effect(self, call: &Call<'_>) -> Result<Effect, Rejection> {
        Ok(match self {
            // The message does not list the datastreams; the object itself is what is new.
            Self::Ingest => item(call.object()?, added(None, None), MissingFacts::Items),
            // No datastream's state follows the object's. Label and owner are properties too.
            Self::ModifyObject => item(call.object()?, properties(call.state("state")?), MissingFacts::Object),
            Self::PurgeObject => Effect::Items(DraftItems::Purge, MissingFacts::Nothing),
            // A new datastream has one version, so its own address does; no date of it is told.
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
            // One that was there already, or that was not there to be purged, is told all the same.
            Self::AddRelationship | Self::PurgeRelationship if !call.returned_true()? => {
                Effect::Nothing("the method returned false: the relationships are as they were")
            }
            // The first relationship brings the datastream about, in state A; the registry knows
            // whether this was the first.
            Self::AddRelationship => {
                let datastream = call.relationships()?;
                let content = Some(ContentLocation::at(datastream.clone()));
                let change = DraftChange::AddOrUpdate { content, initial_state: Some(State::ACTIVE) };
                item(datastream, change, MissingFacts::Content)
            }
            // With its last relationship gone the datastream stays, empty.
            Self::PurgeRelationship => {
                let datastream = call.relationships()?;
                item(datastream.clone(), updated(datastream), MissingFacts::Content)
            }
            Self::ReadOnly => Effect::Nothing("the method changes no object"),
        })
    }
}

/// A modification of a datastream: of its content if the parameter `source` was given, otherwise of
/// its properties alone.
///
/// What the method returned is the date of the version that it made, to the millisecond; `updated`
/// is the time of the call and differs by some. A message that has no date in that place (Fedora's
/// own always do) still tells of new content, and the datastream's own address has it.
fn modified(call: &Call<'_>, source: &str) -> Result<Effect, Rejection> {
    let datastream = call.datastream()?;
    let created = call.returned_date()?;
    let (change, untold) = match (call.entry.parameter(source), created) {
        (None, _) => (properties(None), MissingFacts::Object),
        (Some(_), Some(created)) => (updated(call.version(&datastream, created)?), MissingFacts::Content),
        (Some(_), None) => (updated(datastream.clone()), MissingFacts::Content),
    };
    Ok(item(datastream, change, untold))
}

/// A purge of a datastream, or only of those of its versions that were made between two dates.
///
/// Which versions these were, if any, the message does not tell. If the latest was among them, the
/// one before it is now the content; if not, nothing changed that matters here. So that no change
/// is lost it counts as an update, and the datastream's own address answers with what is now the
/// latest, or with 404 if none was left.
fn purged(call: &Call<'_>) -> Result<Effect, Rejection> {
    let datastream = call.datastream()?;
    let (change, untold) = match (call.date("startDT")?, call.date("endDT")?) {
        (None, None) => (DraftChange::Reported(ItemChange::Delete { before: None, after: None }), MissingFacts::Object),
        _ => (updated(datastream.clone()), MissingFacts::RemainingVersions),
    };
    Ok(item(datastream, change, untold))
}

fn item(uri: Uri, change: DraftChange, untold: MissingFacts) -> Effect {
    Effect::Items(DraftItems::Listed(NonEmpty::one(DraftItem::new(uri, change))), untold)
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
