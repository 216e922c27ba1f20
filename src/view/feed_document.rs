//! Atom documents, written entry by entry. `atom_syndication` writes a feed from a model of the entire document,
//! which takes several times the memory of its text. Therefore each entry is written as the only entry of a feed, and
//! the rest of that feed is cut off.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use atom_syndication::{Feed, Generator, Person, WriteConfig, extension::ExtensionMap};

use super::{
    LARGE,
    atom::{FeedMetadata, Site, entry, extend, extension},
    feed::style,
};
use crate::{
    format::content_change::TIDINGS,
    journal::{RecordedChange, store::StoreError},
    model::Change,
};

/// Namespace of RFC 5005.
const HISTORY: &str = "http://purl.org/syndication/history/1.0";

/// Reason why a document cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// A stored change is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Writing the document failed.
    #[error("cannot write the document: {0}")]
    Io(#[from] io::Error),
}

/// Writer of a document, entry by entry: only one entry is in memory.
pub(super) struct FeedWriter<'a, W> {
    site: &'a Site,
    out: W,
    /// End of the document, after the entries.
    end: Vec<u8>,
    /// Number of bytes before the entry in a document with one entry.
    entry_offset: usize,
}

impl<'a, W: Write> FeedWriter<'a, W> {
    /// Writes the beginning of the document, up to the first entry.
    pub(super) fn begin(site: &'a Site, metadata: FeedMetadata, mut out: W) -> Result<Self, WriteError> {
        let instruction = style::instruction(metadata.archive);
        let mut feed = empty_feed(site, metadata);
        // `atom_syndication` writes extensions after the entries, and everything else before them.
        let extensions = std::mem::take(&mut feed.extensions);
        let beginning = without_end(serialize(&feed, true));
        feed.extensions = extensions;
        let end = serialize(&feed, true).split_off(beginning.len());
        let (declaration, rest) = beginning.split_at(DECLARATION.len());
        out.write_all(declaration)?;
        out.write_all(instruction.as_bytes())?;
        out.write_all(rest)?;
        let entry_offset = without_end(serialize(&Feed::default(), false)).len();
        Ok(Self { site, out, end, entry_offset })
    }

    /// Writes an entry for each item of the change.
    pub(super) fn change(&mut self, recorded: &RecordedChange) -> Result<(), WriteError> {
        if recorded.json().len() >= LARGE {
            return self.entries(recorded.without_caches().change()?);
        }
        self.entries(recorded.change()?)
    }

    fn entries(&mut self, change: &Change) -> Result<(), WriteError> {
        for (index, item) in change.modification.items.iter().enumerate() {
            let entry = entry(self.site, change, item, &change.settlement.item(index));
            let alone = serialize(&Feed { entries: vec![entry], ..Feed::default() }, false);
            self.out.write_all(&alone[self.entry_offset..alone.len() - END.len()])?;
        }
        Ok(())
    }

    /// Writes the end of the document.
    pub(super) fn finish(mut self) -> Result<W, WriteError> {
        self.out.write_all(&self.end)?;
        Ok(self.out)
    }
}

/// Beginning of every document, as `atom_syndication` writes it.
const DECLARATION: &str = "<?xml version=\"1.0\"?>\n";

/// End of every document.
const END: &str = "</feed>";

fn empty_feed(site: &Site, metadata: FeedMetadata) -> Feed {
    let mut namespaces = BTreeMap::from([("tidings".to_owned(), TIDINGS.to_owned())]);
    let mut extensions = ExtensionMap::new();
    if metadata.archive {
        namespaces.insert("fh".to_owned(), HISTORY.to_owned());
        extend(&mut extensions, extension("fh:archive", []));
    }
    Feed {
        title: site.labels.title.as_str().into(),
        authors: site.labels.author.iter().map(|name| Person { name: name.clone(), ..Person::default() }).collect(),
        id: metadata.id.urn().to_string(),
        updated: metadata.updated.datetime().fixed_offset(),
        generator: Some(Generator {
            value: "Tidings".to_owned(),
            uri: None,
            version: (!metadata.archive).then(|| env!("CARGO_PKG_VERSION").to_owned()),
        }),
        links: metadata.links,
        subtitle: Some(metadata.subtitle.into()),
        extensions,
        namespaces,
        ..Feed::default()
    }
}

#[expect(clippy::expect_used, reason = "writing to a Vec<u8> cannot fail")]
fn serialize(feed: &Feed, write_document_declaration: bool) -> Vec<u8> {
    let layout = WriteConfig { write_document_declaration, indent_size: None };
    feed.write_with_config(Vec::with_capacity(TYPICAL_ENTRY), layout).expect("writing to a Vec<u8> cannot fail")
}

fn without_end(mut document: Vec<u8>) -> Vec<u8> {
    document.truncate(document.len().saturating_sub(END.len()));
    document
}

/// Initial capacity, enough for most entries, in bytes.
const TYPICAL_ENTRY: usize = 4096;

/// Returns a document with an entry for each item of the changes, in the given order. The whole document is in
/// memory, so the caller must limit the changes.
///
/// # Errors
/// When a stored change cannot be read, because the journal is damaged.
pub(super) fn document(
    site: &Site,
    metadata: FeedMetadata,
    changes: &[Arc<RecordedChange>],
) -> Result<Vec<u8>, WriteError> {
    let mut writer = FeedWriter::begin(site, metadata, Vec::new())?;
    changes.iter().try_for_each(|recorded| writer.change(recorded))?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use uuid::Uuid;

    use super::{
        super::atom::{FeedLabels, page_link},
        DECLARATION, Feed, FeedMetadata, Site, document, empty_feed, entry, serialize, style,
    };
    use crate::{
        journal::{RecordedChange, store::StoredChange},
        model::{Seq, Timestamp},
    };

    /// A change with all possible members, and one with few.
    const CHANGES: [&str; 2] = [
        r#"{"seq":2,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3","sourceEventId":"a&\"b'<c>",
        "sourceVersion":"3\t8","received":"2026-01-02T03:04:05.006Z","time":"2026-01-02T03:04:05.000Z","user":{"name":"A\r<b>","uri":"http://h/u?a&b='c'"},
        "object":"http://h/objects/a:1?a&b='c'","parent":"http://h/objects/a:0","types":["info:fedora/a:M"],"description":"one\r\n<b>two</b> & \"é\"","purge":true,"filled":["parent","types"],"late":["parent"],
        "items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/objects/a:1/DC","change":"UPDATE","content":{"url":"http://h/c?a&b='c'","mediaType":"text/xml;a=\"b&c\"","size":3,"digest":{"algorithm":"md5","value":"d41d8cd98f00b204e9800998ecf8427e"}},"stateBefore":"ACTIVE","stateAfter":"INACTIVE","late":["state","content"],"inferred":true,"beginsIn":"ACTIVE"},
        {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/objects/a:1/IMG","change":"DELETE","stateBefore":"ACTIVE"}]}"#,
        r#"{"seq":1,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a49","source":"sfm","received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z",
        "user":{"name":"unknown"},"object":"urn:x:y","description":"","items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa5","uri":"urn:x:y","stateAfter":"RUNNING"}]}"#,
    ];

    fn site() -> Site {
        let labels = FeedLabels { title: "A & B".to_owned(), author: Some("<C>".to_owned()) };
        Site { base: "https://example.org/t".to_owned(), journal: Uuid::nil(), hub: None, labels, copy: None }
    }

    /// The expected document is written by `atom_syndication` in one piece.
    #[test]
    fn document_by_entries_equals_document_in_one_piece() {
        let changes =
            CHANGES.map(|json| Arc::new(RecordedChange::from_json(Seq::ZERO, Bytes::from_static(json.as_bytes()))));
        let site = site();
        for (archive, count) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
            let metadata = || FeedMetadata {
                id: site.journal,
                subtitle: "What happened.".to_owned(),
                updated: Timestamp::EPOCH,
                links: [page_link("self", site.archive(1))].into_iter().chain(site.service_link()).collect(),
                archive,
            };
            let entries = changes[..count].iter().flat_map(|recorded| {
                let change = recorded.change().unwrap();
                let items = change.modification.items.iter().enumerate();
                items.map(|(index, item)| entry(&site, change, item, &change.settlement.item(index)))
            });
            let whole = Feed { entries: entries.collect(), ..empty_feed(&site, metadata()) };
            let expected = String::from_utf8(serialize(&whole, true)).unwrap();
            let with_style = format!("{DECLARATION}{}", style::instruction(archive));
            let expected = expected.replacen(DECLARATION, &with_style, 1);
            let actual = String::from_utf8(document(&site, metadata(), &changes[..count]).unwrap()).unwrap();
            assert_eq!(actual, expected, "archive {archive}, {count}");
        }
    }

    /// If this fails and the new snapshot is right, increase `RENDERING` in `feed.rs`, because existing pages on disk
    /// have the old rendering.
    #[test]
    fn archive_page_rendering_is_stable() {
        let changes = CHANGES.map(|json| {
            let stored = StoredChange { seq: Seq::ZERO, json: Bytes::from_static(json.as_bytes()), visibility: None };
            Arc::new(RecordedChange::from(stored))
        });
        let site = site();
        let metadata = FeedMetadata {
            id: site.journal,
            subtitle: "What happened.".to_owned(),
            updated: Timestamp::EPOCH,
            links: [page_link("self", site.archive(1))].into_iter().chain(site.service_link()).collect(),
            archive: true,
        };
        let page = String::from_utf8(document(&site, metadata, &changes).unwrap()).unwrap();
        insta::assert_snapshot!(page.replace("><", ">\n<"));
    }
}
