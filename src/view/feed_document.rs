//! Atom documents written entry by entry. `atom_syndication` writes a feed from a model of the whole, which takes several
//! times the memory of its text: here each entry is written as the only one of a feed, and what that feed has around it
//! is left out.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use atom_syndication::{Feed, Generator, WriteConfig, extension::ExtensionMap};

use super::{
    LARGE,
    atom::{Frame, Site, entry, extend, extension},
};
use crate::{
    format::content_change::TIDINGS,
    journal::{RecordedChange, store::StoreError},
    model::Change,
};

/// The namespace of RFC 5005.
const HISTORY: &str = "http://purl.org/syndication/history/1.0";

/// Why a document is not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// What is stored is not a change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document's writer failed.
    #[error("the document cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// A document that is being written entry by entry: no more than one entry of it is in memory.
pub(super) struct FeedWriter<'a, W> {
    site: &'a Site,
    out: W,
    /// What stands behind the entries.
    end: Vec<u8>,
    /// How much of a document with one entry stands before that entry.
    entry_begins: usize,
}

impl<'a, W: Write> FeedWriter<'a, W> {
    /// Writes what stands before the entries.
    pub(super) fn begin(site: &'a Site, frame: Frame, mut out: W) -> Result<Self, WriteError> {
        let mut feed = empty_feed(frame);
        // Extensions stand behind the entries, all else before them.
        let extensions = std::mem::take(&mut feed.extensions);
        let beginning = without_end(written(&feed, true));
        feed.extensions = extensions;
        let end = written(&feed, true).split_off(beginning.len());
        out.write_all(&beginning)?;
        let entry_begins = without_end(written(&Feed::default(), false)).len();
        Ok(Self { site, out, end, entry_begins })
    }

    /// Writes an entry for every item of the change.
    pub(super) fn change(&mut self, recorded: &RecordedChange) -> Result<(), WriteError> {
        if recorded.json().len() >= LARGE {
            return self.entries(recorded.without_caches().change()?);
        }
        self.entries(recorded.change()?)
    }

    fn entries(&mut self, change: &Change) -> Result<(), WriteError> {
        for (index, item) in change.modification.items.iter().enumerate() {
            let entry = entry(self.site, change, item, &change.settlement.item(index));
            let alone = written(&Feed { entries: vec![entry], ..Feed::default() }, false);
            self.out.write_all(&alone[self.entry_begins..alone.len() - END.len()])?;
        }
        Ok(())
    }

    /// Writes what stands behind the entries.
    pub(super) fn finish(mut self) -> Result<W, WriteError> {
        self.out.write_all(&self.end)?;
        Ok(self.out)
    }
}

/// The end of every document.
const END: &str = "</feed>";

fn empty_feed(frame: Frame) -> Feed {
    let mut namespaces = BTreeMap::from([("tidings".to_owned(), TIDINGS.to_owned())]);
    let mut extensions = ExtensionMap::new();
    if frame.archive {
        namespaces.insert("fh".to_owned(), HISTORY.to_owned());
        extend(&mut extensions, extension("fh:archive", []));
    }
    Feed {
        title: "Content changes".into(),
        id: frame.id.urn().to_string(),
        updated: frame.updated.datetime().fixed_offset(),
        generator: Some(Generator {
            value: "Tidings".to_owned(),
            uri: None,
            version: (!frame.archive).then(|| env!("CARGO_PKG_VERSION").to_owned()),
        }),
        links: frame.links,
        subtitle: Some(frame.subtitle.into()),
        extensions,
        namespaces,
        ..Feed::default()
    }
}

#[expect(clippy::expect_used, reason = "a Vec<u8> takes whatever is written to it")]
fn written(feed: &Feed, write_document_declaration: bool) -> Vec<u8> {
    let layout = WriteConfig { write_document_declaration, indent_size: None };
    feed.write_with_config(Vec::with_capacity(USUAL_ENTRY), layout).expect("a Vec<u8> takes whatever is written to it")
}

fn without_end(mut document: Vec<u8>) -> Vec<u8> {
    document.truncate(document.len().saturating_sub(END.len()));
    document
}

/// Room for most entries, in bytes.
const USUAL_ENTRY: usize = 4096;

/// The document in this frame with an entry for every item of the changes, which stand in the order
/// in which they are shown. It is in memory as a whole: the caller bounds the changes.
///
/// # Errors
/// When what is stored is not a change: the journal is damaged.
pub(super) fn document(site: &Site, frame: Frame, changes: &[Arc<RecordedChange>]) -> Result<Vec<u8>, WriteError> {
    let mut writer = FeedWriter::begin(site, frame, Vec::new())?;
    changes.iter().try_for_each(|recorded| writer.change(recorded))?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use uuid::Uuid;

    use super::{super::atom::page_link, Feed, Frame, Site, document, empty_feed, entry, written};
    use crate::{
        journal::{RecordedChange, store::StoredChange},
        model::{Seq, Timestamp},
    };

    /// All that a change can say, and next to nothing.
    const CHANGES: [&str; 2] = [
        r#"{"seq":2,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3","sourceEventId":"a&\"b'<c>",
        "sourceVersion":"3\t8","received":"2026-01-02T03:04:05.006Z","time":"2026-01-02T03:04:05.000Z","user":{"name":"A\r<b>","uri":"http://h/u?a&b='c'"},
        "object":"http://h/objects/a:1?a&b='c'","parent":"http://h/objects/a:0","types":["info:fedora/a:M"],"description":"one\r\n<b>two</b> & \"é\"","purge":true,"filled":["parent","types"],"late":["parent"],
        "items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/objects/a:1/DC","change":"UPDATE","content":{"url":"http://h/c?a&b='c'","mediaType":"text/xml;a=\"b&c\"","size":3,"digest":{"algorithm":"md5","value":"d41d8cd98f00b204e9800998ecf8427e"}},"stateBefore":"ACTIVE","stateAfter":"INACTIVE","late":["state","content"],"inferred":true,"beginsIn":"ACTIVE"},
        {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa4","uri":"http://h/objects/a:1/IMG","change":"DELETE","stateBefore":"ACTIVE"}]}"#,
        r#"{"seq":1,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a49","source":"sfm","received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z",
        "user":{"name":"unknown"},"object":"urn:x:y","description":"","items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa5","uri":"urn:x:y","stateAfter":"RUNNING"}]}"#,
    ];

    /// A document that `atom_syndication` writes as a whole is the measure.
    #[test]
    fn a_document_written_entry_by_entry_is_the_one_written_as_a_whole() {
        let changes =
            CHANGES.map(|json| Arc::new(RecordedChange::from_json(Seq::ZERO, Bytes::from_static(json.as_bytes()))));
        let site = Site { base: "https://example.org/t".to_owned(), journal: Uuid::nil(), hub: None };
        for (archive, count) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
            let frame = || Frame {
                id: site.journal,
                subtitle: "What happened.".to_owned(),
                updated: Timestamp::EPOCH,
                links: vec![page_link("self", site.archive(1)), site.service_link()],
                archive,
            };
            let entries = changes[..count].iter().flat_map(|recorded| {
                let change = recorded.change().unwrap();
                let items = change.modification.items.iter().enumerate();
                items.map(|(index, item)| entry(&site, change, item, &change.settlement.item(index)))
            });
            let whole = Feed { entries: entries.collect(), ..empty_feed(frame()) };
            let expected = String::from_utf8(written(&whole, true)).unwrap();
            let shown = String::from_utf8(document(&site, frame(), &changes[..count]).unwrap()).unwrap();
            assert_eq!(shown, expected, "archive {archive}, {count}");
        }
    }

    /// When this fails and the new snapshot is right, raise `RENDERING` in `feed.rs`: the pages that
    /// are on disk somewhere look like the old one.
    #[test]
    fn an_archive_page_is_rendered_as_it_always_was() {
        let changes = CHANGES.map(|json| {
            let stored = StoredChange { seq: Seq::ZERO, json: Bytes::from_static(json.as_bytes()), visibility: None };
            Arc::new(RecordedChange::from(stored))
        });
        let site = Site { base: "https://example.org/t".to_owned(), journal: Uuid::nil(), hub: None };
        let frame = Frame {
            id: site.journal,
            subtitle: "What happened.".to_owned(),
            updated: Timestamp::EPOCH,
            links: vec![page_link("self", site.archive(1)), site.service_link()],
            archive: true,
        };
        let page = String::from_utf8(document(&site, frame, &changes).unwrap()).unwrap();
        insta::assert_snapshot!(page.replace("><", ">\n<"));
    }
}
