//! The model as XML, for receivers that read XML but not Atom: the same data as [its JSON](super::json), each
//! in an element. The schema is `xsd/content-object-modification.xsd`.
//!
//! Each kind of change has its own element, in place of the JSON member `change`. The schema can therefore
//! enforce the model's rules: only `add` and `update` have content.

use uuid::{Uuid, fmt::Urn};

use super::{ExtraHeaders, FormatKind, xml_writer::XmlWriter};
use crate::model::{
    AspectSet, Change, ChangeType, ContentItemModification, ContentLocation, ContentObjectModification, Digest,
    EventId, ItemNotes, LookupMark, MediaType, OriginalContent, State, Text, Timestamp, Uri,
};

/// The model as XML, as a format.
pub(super) static XML: FormatKind = FormatKind {
    name: "xml",
    media_type: "application/xml",
    about: "the model as XML, for receivers that do not read Atom",
    write: |change| write(&change.modification, Some(change)),
    write_modification: |modification| write(modification, None),
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: None,
};

/// Namespace of all elements.
const MODEL: &str = "urn:tidings:model:1";
const ROOT: &str = "contentObjectModification";

/// Approximate bytes of a document without items, and of an item.
const DOCUMENT_BYTES: usize = 1024;
const ITEM_BYTES: usize = 768;

fn write(modification: &ContentObjectModification, change: Option<&Change>) -> Vec<u8> {
    let mut xml = XmlWriter::document(DOCUMENT_BYTES + modification.items.len() * ITEM_BYTES);
    xml.open(ROOT, &[("xmlns", MODEL)]);
    if let Some(change) = change {
        xml.leaf("seq", &[], &change.seq.to_string());
    }
    id(&mut xml, modification.id.uuid());
    xml.leaf("source", &[], modification.origin.source.as_str());
    optional(&mut xml, "sourceEventId", modification.origin.event_id.as_ref().map(EventId::as_str));
    optional(&mut xml, "sourceVersion", modification.origin.software_version.as_ref().map(Text::as_str));
    if let Some(change) = change {
        xml.leaf("received", &[], &change.received.to_string());
    }
    xml.leaf("time", &[], &modification.time.to_string());
    xml.open("user", &[]);
    xml.leaf("name", &[], modification.user.name());
    optional(&mut xml, "uri", modification.user.uri().map(Uri::as_str));
    xml.close("user");
    xml.leaf("object", &[], modification.object.as_str());
    optional(&mut xml, "parent", modification.parent.as_ref().map(Uri::as_str));
    for object_type in &modification.types {
        xml.leaf("type", &[], object_type.as_str());
    }
    xml.leaf("description", &[], modification.description.as_str());
    if let Some(change) = change {
        flag(&mut xml, "purge", change.settlement.purge);
        aspects(&mut xml, "filled", change.settlement.filled);
        aspects(&mut xml, "late", change.settlement.late);
        time(&mut xml, "asOf", change.settlement.as_of);
        optional(&mut xml, "lookup", change.settlement.lookup.map(LookupMark::name));
        flag(&mut xml, "due", change.settlement.due);
    }
    xml.open("items", &[]);
    for (index, modified) in modification.items.iter().enumerate() {
        let notes = change.map(|change| change.settlement.item(index)).unwrap_or_default();
        item(&mut xml, modified, &notes);
    }
    xml.close("items");
    xml.close(ROOT);
    xml.finish()
}

fn item(xml: &mut XmlWriter, item: &ContentItemModification, notes: &ItemNotes) {
    let change = &item.change;
    let kind = match change.change_type() {
        Some(ChangeType::Add) => "add",
        Some(ChangeType::Update) => "update",
        Some(ChangeType::Delete) => "delete",
        None => "state",
    };
    xml.open("item", &[]);
    id(xml, item.id.uuid());
    xml.leaf("uri", &[], item.uri.as_str());
    xml.open(kind, &[]);
    if let Some(content) = change.content() {
        content_at(xml, content);
    }
    optional(xml, "stateBefore", change.before().map(State::as_str));
    optional(xml, "stateAfter", change.after().map(State::as_str));
    xml.close(kind);
    aspects(xml, "late", notes.late);
    flag(xml, "inferred", notes.inferred);
    optional(xml, "beginsIn", notes.initial_state.as_ref().map(State::as_str));
    time(xml, "visibleFrom", notes.dates.from());
    time(xml, "visibleUntil", notes.dates.until());
    time(xml, "denies", notes.denies);
    time(xml, "came", notes.came);
    xml.close("item");
}

fn content_at(xml: &mut XmlWriter, content: &ContentLocation) {
    xml.open("content", &[]);
    properties(xml, &content.url, content.media_type.as_ref(), content.size, content.digest.as_ref());
    optional(xml, "generatedBy", content.generated_by.as_ref().map(Uri::as_str));
    if let Some(original) = &content.original {
        let OriginalContent { url, media_type, size, digest } = &**original;
        xml.open("original", &[]);
        properties(xml, url, media_type.as_ref(), *size, digest.as_ref());
        xml.close("original");
    }
    xml.close("content");
}

fn properties(
    xml: &mut XmlWriter,
    url: &Uri,
    media_type: Option<&MediaType>,
    size: Option<u64>,
    digest: Option<&Digest>,
) {
    xml.leaf("url", &[], url.as_str());
    optional(xml, "mediaType", media_type.map(MediaType::as_str));
    if let Some(size) = size {
        xml.leaf("size", &[], &size.to_string());
    }
    if let Some(digest) = digest {
        xml.leaf("digest", &[("algorithm", digest.algorithm().name())], digest.hex());
    }
}

fn id(xml: &mut XmlWriter, id: Uuid) {
    let mut written = [0; Urn::LENGTH];
    xml.leaf("id", &[], id.urn().encode_lower(&mut written));
}

fn optional(xml: &mut XmlWriter, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        xml.leaf(name, &[], value);
    }
}

fn time(xml: &mut XmlWriter, name: &str, time: Option<Timestamp>) {
    if let Some(time) = time {
        xml.leaf(name, &[], &time.to_string());
    }
}

fn flag(xml: &mut XmlWriter, name: &str, raised: bool) {
    if raised {
        xml.leaf(name, &[], "true");
    }
}

fn aspects(xml: &mut XmlWriter, name: &str, aspects: AspectSet) {
    if !aspects.is_empty() {
        xml.leaf(name, &[], &aspects.to_string());
    }
}
