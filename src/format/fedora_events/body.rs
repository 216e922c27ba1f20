//! Parses bodies: ActivityStreams 2 (Fedora 5, 6, Trellis), PROV (Fedora 4.6, 4.7), and those of the HTTP forwarding
//! service of Fedora's Camel toolbox.

use super::{
    Event,
    agent::Agents,
    event_kind::EventKinds,
    jms::Jms,
    resource_uri::{ResourceUris, resource},
};
use crate::{
    format::{
        Rejection,
        json_ld::{Context, Node},
    },
    model::{DroppedPart, EventId, Reading, Timestamp, Uri},
};

/// Parses a body of any form. The headers supply the event if the body is an empty object.
///
/// # Errors
/// Rejects a body of another form, or without a valid URI of the resource.
pub(super) fn event<'a>(root: &Node<'a>, uris: ResourceUris<'_>, jms: Jms<'a>) -> Result<Event<'a>, Rejection> {
    if let Some(object) = root.member("object") {
        activity(root, &object.only()?, uris)
    } else if let Some(generation) = root.member("wasGeneratedBy") {
        provenance(root, &generation.only()?, uris)
    } else if names_resource(root) && EventKinds::parse(root.types()).is_some() {
        forwarded(root, uris, jms)
    } else if jms.names_event() {
        jms.event(uris)
    } else {
        Err(root.unprocessable("this is not an event of Fedora: it has neither \"object\" nor \"wasGeneratedBy\""))
    }
}

/// Returns whether the identifier can be that of a resource. The URN of an activity is not.
fn names_resource(root: &Node<'_>) -> bool {
    root.id().and_then(|id| id.text().map(|text| !text.starts_with("urn:"))).unwrap_or_default()
}

/// Parses an activity, whose object is the resource.
fn activity<'a>(root: &Node<'a>, object: &Node<'a>, uris: ResourceUris<'_>) -> Result<Event<'a>, Rejection> {
    let mut reading = Reading::default();
    let base = base_url(object);
    Ok(Event {
        resource: resource(object, uris, base, &mut reading)?,
        parent: parent(object, uris, &mut reading),
        types: Context::of(root).types(object.types()),
        kinds: root.types(),
        kinds_at: root.location(),
        // LAKEsuperior has the time in the object.
        time: time(root, "published", &mut reading).or_else(|| time(object, "updated", &mut reading)),
        event_id: root.id().and_then(|id| event_id(&id)),
        agents: Agents::read(root.member("actor").as_ref()),
        description: root.text_member("name"),
        reading,
    })
}

/// Parses a resource with the activity that generated it.
fn provenance<'a>(root: &Node<'a>, generation: &Node<'a>, uris: ResourceUris<'_>) -> Result<Event<'a>, Rejection> {
    let mut reading = Reading::default();
    Ok(Event {
        resource: resource(root, uris, base_url(root), &mut reading)?,
        parent: parent(root, uris, &mut reading),
        types: Context::of(root).types(root.types()),
        kinds: generation.types(),
        kinds_at: generation.location(),
        time: time(generation, "atTime", &mut reading),
        event_id: generation.member("identifier").and_then(|id| event_id(&id.id()?)),
        agents: Agents::read(root.member("wasAttributedTo").as_ref()),
        description: None,
        reading,
    })
}

/// Parses a resource with the kind of event, as the HTTP forwarding service sends it. The headers supply the rest, if the
/// sender has passed them on.
fn forwarded<'a>(root: &Node<'a>, uris: ResourceUris<'_>, jms: Jms<'a>) -> Result<Event<'a>, Rejection> {
    let mut reading = Reading::default();
    Ok(Event {
        resource: resource(root, uris, jms.base_url(), &mut reading)?,
        parent: None,
        types: Vec::new(),
        kinds: root.types(),
        kinds_at: root.location(),
        time: None,
        event_id: None,
        agents: Agents::Nobody,
        description: None,
        reading,
    })
}

/// Returns the base URL in the message: Fedora 5 and 6 name it as the whole that the resource is a part of.
fn base_url<'a>(told: &Node<'a>) -> Option<&'a str> {
    told.member("isPartOf")?.id()?.text()
}

/// Returns the container; `None` if there is none, or none that can be read.
fn parent(told: &Node<'_>, uris: ResourceUris<'_>, reading: &mut Reading) -> Option<Uri> {
    let parent = told.member("isPartOf")?;
    let text = parent.only().ok().and_then(|parent| parent.id()?.text().map(str::to_owned));
    let uri = text.ok_or(()).and_then(|text| uris.container(&text, reading).map_err(drop));
    reading.keep(DroppedPart::Uri, uri)
}

/// Returns a time; `None` if there is none, or none that can be read.
fn time(told: &Node<'_>, name: &str, reading: &mut Reading) -> Option<Timestamp> {
    told.member(name).and_then(|time| reading.keep(DroppedPart::Time, time.time()))
}

fn event_id(id: &Node<'_>) -> Option<EventId> {
    id.text().and_then(EventId::parse)
}
