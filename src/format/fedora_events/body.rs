//! Parses bodies: ActivityStreams 2 (Fedora 5, 6, Trellis) and PROV (Fedora 4.6, 4.7).

use super::{Event, agent::Agents, resource_uri::resource};
use crate::{
    format::{
        Rejection,
        json_ld::{Context, Node},
    },
    model::{EventId, Uri},
};

/// Parses a body of either form. `base_url` replaces a missing repository URL.
///
/// # Errors
/// Rejects a body of another form, or with a missing or invalid member.
pub(super) fn event<'a>(root: &Node<'a>, base_url: Option<&Uri>) -> Result<Event<'a>, Rejection> {
    if let Some(object) = root.member("object") {
        activity(root, &object.only()?, base_url)
    } else if let Some(generation) = root.member("wasGeneratedBy") {
        provenance(root, &generation.only()?, base_url)
    } else {
        Err(root.unprocessable("this is not an event of Fedora: it has neither \"object\" nor \"wasGeneratedBy\""))
    }
}

/// Parses an activity, whose object is the resource.
fn activity<'a>(root: &Node<'a>, object: &Node<'a>, base_url: Option<&Uri>) -> Result<Event<'a>, Rejection> {
    Ok(Event {
        resource: resource(object, base_url)?,
        parent: parent(object, base_url)?,
        types: Context::of(root).types(object.types()),
        kinds: root.types(),
        kinds_at: root.location(),
        time: root.member("published").map(|time| time.time()).transpose()?,
        event_id: root.id().and_then(|id| event_id(&id)),
        agents: Agents::read(root.member("actor").as_ref()),
        description: root.text_member("name"),
    })
}

/// Parses a resource with the activity that generated it.
fn provenance<'a>(root: &Node<'a>, generation: &Node<'a>, base_url: Option<&Uri>) -> Result<Event<'a>, Rejection> {
    Ok(Event {
        resource: resource(root, base_url)?,
        parent: parent(root, base_url)?,
        types: Context::of(root).types(root.types()),
        kinds: generation.types(),
        kinds_at: generation.location(),
        time: generation.member("atTime").map(|time| time.time()).transpose()?,
        event_id: generation.member("identifier").and_then(|id| event_id(&id.id()?)),
        agents: Agents::read(root.member("wasAttributedTo").as_ref()),
        description: None,
    })
}

fn parent(resource_told: &Node<'_>, base_url: Option<&Uri>) -> Result<Option<Uri>, Rejection> {
    resource_told.member("isPartOf").map(|parent| resource(&parent.only()?, base_url)).transpose()
}

fn event_id(id: &Node<'_>) -> Option<EventId> {
    id.text().and_then(EventId::parse)
}
