//! Entries of the feed of another gateway: those of one change become one document, because each item of a change is an
//! entry.

use std::ops::Range;

use quick_xml::{NsReader, events::Event};

use super::{
    document::FeedDocument,
    looks::Noise,
    selection::{SelectedEntry, Selection, ShownEntry},
};
use crate::{format::feed::EntryKey, transfer::Cancelled};

/// Selects the changes of a document, oldest first. A change whose entries together are larger than a record can be becomes
/// a message that the intake refuses.
pub(super) fn select_changes(document: &FeedDocument<'_>, cancelled: &Cancelled) -> Selection {
    let mut changes: Vec<(Option<String>, Range<usize>)> = Vec::new();
    for (number, part) in document.parts.iter().enumerate() {
        if cancelled.is_cancelled() {
            break;
        }
        let id = source_id(&document.alone(part));
        match changes.last_mut() {
            // The feed has the entries of a change one after the other.
            Some((last, parts)) if id.is_some() && *last == id => parts.end = number + 1,
            _ => changes.push((id, number..number + 1)),
        }
    }
    let entry = |(_, parts): &(_, Range<usize>)| SelectedEntry {
        parts: parts.clone(),
        key: Some(EntryKey::Id),
        key_value: None,
    };
    let entries = changes.iter().rev().map(entry).collect();
    let shown = |key| ShownEntry { key, files: Vec::new(), is_withheld: false };
    let shown = changes.into_iter().filter_map(|(id, _)| id).map(shown).collect();
    Selection { entries, shown, remarks: Vec::new(), noise: Noise::default() }
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
    use super::{Cancelled, FeedDocument, select_changes};

    #[test]
    fn entries_of_a_change_become_one_document() {
        let entry = |id: &str, source: &str| {
            format!("<entry><id>{id}</id><source><title>t</title><id>{source}</id></source></entry>")
        };
        let entries = [entry("1", "b"), entry("2", "b"), entry("3", "a"), entry("4", "b")].concat();
        let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{entries}<entry><id>5</id></entry></feed>");
        let selection = select_changes(&FeedDocument::parse(&feed, 1 << 30).unwrap(), &Cancelled::default());
        let keys: Vec<_> = selection.shown.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "b"]);
        let parts: Vec<_> = selection.entries.into_iter().map(|entry| entry.parts).collect();
        assert_eq!(parts, [4..5, 3..4, 2..3, 0..2]);
    }
}
