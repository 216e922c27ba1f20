//! Entries of the feed of another gateway: those of one change become one document, because each item of a change is an
//! entry.

use quick_xml::{NsReader, events::Event};

use super::{
    document::FeedDocument,
    selection::{SelectedEntry, Selection},
};
use crate::format::feed::EntryKey;

/// Selects the changes of a document, oldest first. A change whose entries together have more than `max_record_bytes`
/// becomes a document that the intake refuses.
pub(super) fn select_changes(document: &FeedDocument<'_>) -> Selection {
    let mut changes: Vec<(Option<String>, String)> = Vec::new();
    for part in &document.parts {
        let id = source_id(&document.alone(part.xml));
        match changes.last_mut() {
            // The feed has the entries of a change one after the other.
            Some((last, entries)) if id.is_some() && *last == id => entries.push_str(part.xml),
            _ => changes.push((id, part.xml.to_owned())),
        }
    }
    let keys = changes.iter().filter_map(|(id, _)| id.clone()).collect();
    let entry = |(_, xml): &(_, String)| SelectedEntry { document: document.alone(xml), key: Some(EntryKey::Id) };
    Selection { entries: changes.iter().rev().map(entry).collect(), keys, has_new_ambiguity: false }
}

/// Returns the id of `atom:source` of a document with one entry.
fn source_id(document: &str) -> Option<String> {
    let mut reader = NsReader::from_str(document);
    let mut path: Vec<Vec<u8>> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => path.push(start.local_name().as_ref().to_vec()),
            Event::End(_) => drop(path.pop()),
            Event::Text(text) if path.iter().map(Vec::as_slice).eq([&b"feed"[..], b"entry", b"source", b"id"]) => {
                return Some(text.decode().ok()?.trim().to_owned());
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FeedDocument, select_changes};

    #[test]
    fn entries_of_a_change_become_one_document() {
        let entry = |id: &str, source: &str| {
            format!("<entry><id>{id}</id><source><title>t</title><id>{source}</id></source></entry>")
        };
        let entries = [entry("1", "b"), entry("2", "b"), entry("3", "a"), entry("4", "b")].concat();
        let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{entries}<entry><id>5</id></entry></feed>");
        let selection = select_changes(&FeedDocument::parse(&feed).unwrap());
        assert_eq!(selection.keys, ["b", "a", "b"]);
        let ids = |document: &str| document.matches("<entry><id>").count();
        let counts: Vec<_> = selection.entries.iter().map(|entry| ids(&entry.document)).collect();
        assert_eq!(counts, [1, 1, 1, 2]);
    }
}
