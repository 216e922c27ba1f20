//! Writes the message 0.1: the elements of the page in its order, then the additions.

use uuid::{Uuid, fmt::Urn};

use super::{
    super::{
        xml::ATOM,
        xml_writer::{Pair, XSI, XmlWriter},
    },
    AFTER_LABEL, AFTER_SCHEME, BEFORE_LABEL, BEFORE_SCHEME, CHANGE_TYPE_LABEL, CHANGE_TYPE_SCHEME, CHANGES,
    FORMAT_SCHEME, FORMAT_TERM, GENERATED_BY, OBJECT_TYPE_LABEL, OBJECT_TYPE_SCHEME, ORIGINAL, TIDINGS, VERSION_SCHEME,
    XSD,
};
use crate::model::{
    AspectSet, Change, ContentItemModification, ContentLocation, ContentObjectModification, OriginalContent, State,
    User,
};

/// Summary of every entry; the page says that nothing uses it.
const SUMMARY: &str = "Datastream modification/state change, see content src for new content";

/// Approximate bytes of a feed without entries, and of an entry.
const FEED_BYTES: usize = 1536;
const ENTRY_BYTES: usize = 1536;

/// Writes a change of the journal.
pub(super) fn change(change: &Change) -> Vec<u8> {
    message(&change.modification, Some(change))
}

/// Writes a modification alone.
pub(super) fn modification(modification: &ContentObjectModification) -> Vec<u8> {
    message(modification, None)
}

/// Writes a modification alone as an element of another document, with the URL of its schema.
pub(crate) fn embed(xml: &mut XmlWriter, modification: &ContentObjectModification, schema: &str) {
    feed(xml, modification, None, Some(schema));
}

fn message(modification: &ContentObjectModification, change: Option<&Change>) -> Vec<u8> {
    let mut xml = XmlWriter::document(FEED_BYTES + modification.items.len() * ENTRY_BYTES);
    feed(&mut xml, modification, change, None);
    xml.finish()
}

fn feed(xml: &mut XmlWriter, modification: &ContentObjectModification, change: Option<&Change>, schema: Option<&str>) {
    let time = modification.time.to_string();
    let mut attributes = vec![("xmlns", ATOM), ("xmlns:xsd", XSD), ("xmlns:changes", CHANGES)];
    if change.is_some() || has_additions(modification) {
        attributes.push(("xmlns:tidings", TIDINGS));
    }
    let location = schema.map(|schema| format!("{ATOM} {schema}"));
    if let Some(location) = &location {
        attributes.extend([("xmlns:xsi", XSI), ("xsi:schemaLocation", location.as_str())]);
    }
    xml.open("feed", &attributes);
    categories(xml, modification);
    author(xml, &modification.user);
    xml.leaf("title", &[("type", "text")], modification.description.as_str());
    xml.leaf("updated", &[], &time);
    xml.leaf("link", &[("rel", "via"), ("href", modification.object.as_str())], "");
    if let Some(parent) = &modification.parent {
        xml.leaf("link", &[("rel", "related"), ("href", parent.as_str())], "");
    }
    id(xml, modification.id.uuid());
    origin(xml, modification, change);
    for (index, item) in modification.items.iter().enumerate() {
        let late = change.map_or(AspectSet::EMPTY, |change| change.settlement.item(index).late);
        entry(xml, modification, &time, item, late);
    }
    xml.close("feed");
}

/// Returns whether a modification alone has data for which 0.1 has no element.
fn has_additions(modification: &ContentObjectModification) -> bool {
    let has_digest = |item: &ContentItemModification| item.change.content().is_some_and(|at| at.digest.is_some());
    modification.origin.event_id.is_some() || modification.items.iter().any(has_digest)
}

fn categories(xml: &mut XmlWriter, modification: &ContentObjectModification) {
    if let Some(version) = &modification.origin.software_version {
        xml.leaf("category", &[("term", version.as_str()), ("scheme", VERSION_SCHEME)], "");
    }
    xml.leaf("category", &[("term", FORMAT_TERM), ("scheme", FORMAT_SCHEME)], "");
    for object_type in &modification.types {
        category(xml, OBJECT_TYPE_SCHEME, object_type.as_str(), OBJECT_TYPE_LABEL);
    }
}

fn category(xml: &mut XmlWriter, scheme: &str, term: &str, meaning: &str) {
    xml.leaf("category", &[("scheme", scheme), ("term", term)], meaning);
}

fn author(xml: &mut XmlWriter, user: &User) {
    xml.open("author", &[]);
    xml.leaf("name", &[], user.name());
    if let Some(uri) = user.uri() {
        xml.leaf("uri", &[], uri.as_str());
    }
    xml.close("author");
}

fn id(xml: &mut XmlWriter, id: Uuid) {
    let mut written = [0; Urn::LENGTH];
    xml.leaf("id", &[], id.urn().encode_lower(&mut written));
}

/// Writes `tidings:change`, if it has content, and the late aspects of the object.
fn origin(xml: &mut XmlWriter, modification: &ContentObjectModification, change: Option<&Change>) {
    let event = modification.origin.event_id.as_ref().map(|event| ("event", event.as_str()));
    let Some(change) = change else {
        if let Some(event) = event {
            xml.leaf("tidings:change", &[event], "");
        }
        return;
    };
    let (seq, received) = (change.seq.to_string(), change.received.to_string());
    let mut said = vec![("seq", seq.as_str()), ("source", modification.origin.source.as_str())];
    said.extend(event);
    said.push(("received", &received));
    if change.settlement.purge {
        said.push(("purge", "true"));
    }
    said.extend(change.settlement.lookup.map(|mark| ("lookup", mark.name())));
    xml.leaf("tidings:change", &said, "");
    late_aspects(xml, change.settlement.late);
}

fn entry(
    xml: &mut XmlWriter,
    modification: &ContentObjectModification,
    time: &str,
    item: &ContentItemModification,
    late: AspectSet,
) {
    let content = item.change.content();
    xml.open("entry", &[]);
    author(xml, &modification.user);
    id(xml, item.id.uuid());
    xml.leaf("title", &[("type", "text")], modification.description.as_str());
    xml.leaf("updated", &[], time);
    if let Some(content) = content {
        content_at(xml, content);
    }
    let size = content.and_then(|at| at.size).map(|size| size.to_string());
    let via: [Pair<'_>; 3] =
        [("rel", "via"), ("href", item.uri.as_str()), ("length", size.as_deref().unwrap_or_default())];
    xml.leaf("link", &via[..if size.is_some() { 3 } else { 2 }], "");
    if let Some(activity) = content.and_then(|at| at.generated_by.as_ref()) {
        xml.leaf("link", &[("rel", GENERATED_BY), ("href", activity.as_str())], "");
    }
    if let Some(original) = content.and_then(|at| at.original.as_deref()) {
        original_link(xml, original);
    }
    xml.leaf("summary", &[("type", "text")], SUMMARY);
    state(xml, BEFORE_SCHEME, item.change.before(), BEFORE_LABEL);
    state(xml, AFTER_SCHEME, item.change.after(), AFTER_LABEL);
    if let Some(change_type) = item.change.change_type() {
        category(xml, CHANGE_TYPE_SCHEME, change_type.as_str(), CHANGE_TYPE_LABEL);
    }
    if let Some(digest) = content.and_then(|at| at.digest.as_ref()) {
        xml.leaf("tidings:digest", &[("algorithm", digest.algorithm().name())], digest.hex());
    }
    late_aspects(xml, late);
    xml.close("entry");
}

fn original_link(xml: &mut XmlWriter, original: &OriginalContent) {
    let OriginalContent { url, media_type, size, digest: _ } = original;
    let size = size.map(|size| size.to_string());
    let mut attributes = vec![("rel", ORIGINAL), ("href", url.as_str())];
    attributes.extend(media_type.as_ref().map(|media_type| ("type", media_type.as_str())));
    attributes.extend(size.as_deref().map(|size| ("length", size)));
    xml.leaf("link", &attributes, "");
}

fn content_at(xml: &mut XmlWriter, content: &ContentLocation) {
    let src = ("src", content.url.as_str());
    match &content.media_type {
        Some(media_type) => xml.leaf("content", &[("type", media_type.as_str()), src], ""),
        None => xml.leaf("content", &[src], ""),
    }
}

fn state(xml: &mut XmlWriter, scheme: &str, state: Option<&State>, meaning: &str) {
    if let Some(state) = state {
        category(xml, scheme, state.as_str(), meaning);
    }
}

fn late_aspects(xml: &mut XmlWriter, late: AspectSet) {
    if !late.is_empty() {
        xml.leaf("tidings:late", &[], &late.to_string());
    }
}
