//! The format `hoarder`: a change as events of librairy's event bus.
//!
//! A change becomes one message about the document (the object), followed by one about each item. The routing key
//! `<resource>.<state>` says what has happened, and the body is the URI of the resource as text, relative to the
//! system's base URL ([`super::names`]).
//!
//! * ADD is `new`; UPDATE and changes of state are `opened`; DELETE is `deleted`.
//! * The metadata of a harvested record is an item with the URI of the object. It decides about the document, and has
//!   no message of its own. A purge deletes the document.
//! * Otherwise the document is `new` if all items are, and else `opened`: an object may outlive its items.

use super::names::{self, DocumentName};
use crate::{
    format::{ExtraHeaders, FormatKind, RoutedMessage},
    model::{Change, ChangeType, ContentItemModification, ContentObjectModification},
};

/// The format `hoarder`.
pub(in crate::format) static FORMAT: FormatKind = FormatKind {
    name: "hoarder",
    media_type: "text/plain;charset=utf-8",
    about: "events of librairy's event bus: the URIs of a document and its items, with routing keys",
    write: |change| list(&routed(change)),
    write_modification: |modification| list(&messages(modification, false)),
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: Some(routed),
    batch: None,
};

/// State of a resource in a routing key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResourceState {
    New,
    Opened,
    Deleted,
}

impl ResourceState {
    fn of(item: &ContentItemModification) -> Self {
        match item.change.change_type() {
            Some(ChangeType::Add) => Self::New,
            Some(ChangeType::Update) | None => Self::Opened,
            Some(ChangeType::Delete) => Self::Deleted,
        }
    }

    fn document_key(self) -> &'static str {
        match self {
            Self::New => "document.new",
            Self::Opened => "document.opened",
            Self::Deleted => "document.deleted",
        }
    }

    fn item_key(self) -> &'static str {
        match self {
            Self::New => "item.new",
            Self::Opened => "item.opened",
            Self::Deleted => "item.deleted",
        }
    }
}

fn routed(change: &Change) -> Vec<RoutedMessage> {
    messages(&change.modification, change.settlement.purge)
}

fn messages(modification: &ContentObjectModification, is_purge: bool) -> Vec<RoutedMessage> {
    let ContentObjectModification { object, items, .. } = modification;
    let document = DocumentName::of(object);
    let own = items.iter().find(|item| item.uri == *object);
    let state = match own.map(ResourceState::of) {
        _ if is_purge => ResourceState::Deleted,
        Some(state) => state,
        None if items.iter().all(|item| ResourceState::of(item) == ResourceState::New) => ResourceState::New,
        None => ResourceState::Opened,
    };
    let first = RoutedMessage {
        routing_key: state.document_key(),
        body: format!("documents/{document}"),
        resource: object.clone(),
    };
    let others = items.iter().filter(|item| item.uri != *object).map(|item| RoutedMessage {
        routing_key: ResourceState::of(item).item_key(),
        body: format!("items/{}", names::item(&document, object, &item.uri)),
        resource: item.uri.clone(),
    });
    std::iter::once(first).chain(others).collect()
}

/// Lists messages, one on each line.
fn list(messages: &[RoutedMessage]) -> Vec<u8> {
    let line = |message: &RoutedMessage| format!("{} {}\n", message.routing_key, message.body);
    messages.iter().map(line).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::FORMAT;
    use crate::model::Change;

    const RECORD: &str = "http://oa.upm.es/oai?verb=GetRecord&metadataPrefix=oai_dc&identifier=oai%3Aoa.upm.es%3A17";
    const FILE: &str = "http://oa.upm.es/17/1/eciencia_upm.pdf";

    fn written(object: &str, items: &[(&str, Value)], is_purge: bool) -> String {
        let item = |(index, (uri, what)): (usize, &(&str, Value))| {
            let mut item = json!({ "id": format!("urn:uuid:00000000-0000-4000-8000-00000000000{index}"), "uri": uri });
            item.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
            item
        };
        let change = json!({
            "seq": 7, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48", "source": "upm", "object": object,
            "received": "2026-01-02T03:04:05.006Z", "time": "2011-01-02T03:04:05Z", "user": { "name": "u" },
            "description": "", "items": items.iter().enumerate().map(item).collect::<Vec<_>>()
        });
        let mut change: Change = serde_json::from_value(change).unwrap();
        change.settlement.purge = is_purge;
        String::from_utf8((FORMAT.write)(&change)).unwrap()
    }

    #[test]
    fn record_with_a_file_is_a_document_and_an_item() {
        let kinds = [("ADD", "new"), ("UPDATE", "opened"), ("DELETE", "deleted")];
        for (kind, state) in kinds {
            let change = json!({ "change": kind });
            let expected = format!("document.{state} documents/oa-upm-17\nitem.{state} items/17-eciencia\n");
            assert_eq!(written(RECORD, &[(RECORD, change.clone()), (FILE, change)], false), expected);
        }
        let [add, update, delete] = ["ADD", "UPDATE", "DELETE"].map(|kind| json!({ "change": kind }));
        let mixed = written(RECORD, &[(FILE, delete), (RECORD, update)], false);
        assert_eq!(mixed, "document.opened documents/oa-upm-17\nitem.deleted items/17-eciencia\n");
        assert_eq!(written(RECORD, &[(RECORD, add)], false), "document.new documents/oa-upm-17\n");
    }

    #[test]
    fn document_without_an_item_of_its_own_is_deleted_only_by_a_purge() {
        let [add, delete] = ["ADD", "DELETE"].map(|kind| json!({ "change": kind }));
        let state = json!({ "stateAfter": "INACTIVE" });
        for (what, is_purge, document, item) in [
            (add, false, "new", "new"),
            (state, false, "opened", "opened"),
            (delete.clone(), false, "opened", "deleted"),
            (delete, true, "deleted", "deleted"),
        ] {
            let expected = format!("document.{document} documents/oa-upm-17\nitem.{item} items/17-eciencia\n");
            assert_eq!(written(RECORD, &[(FILE, what)], is_purge), expected);
        }
    }
}
