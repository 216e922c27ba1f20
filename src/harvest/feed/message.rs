//! Entries and deletions of a feed as messages for the dialect.

use std::ops::Range;

use bytes::Bytes;
use quick_xml::escape::escape;

use super::{
    document::{Envelope, FeedPart},
    selection::SelectedEntry,
};
use crate::{
    format::{
        Location, Rejection,
        feed::{
            ANY_SCHEME, DELETED_ENTRY, ENTRY_KEY, ENTRY_SHARE, EntryKey, EntryShare, FEED_URL, RESPONSE_DATE,
            TOMBSTONES,
        },
    },
    intake::{Incoming, ReceivedMessage},
    model::Timestamp,
    transfer::BudgetShare,
};

/// Memory of an entry besides its text while its page is written, in bytes.
const ENTRY_COST: usize = 400;

/// Text of a document, from which the messages of its entries are made.
pub(super) struct FeedText {
    text: String,
    envelope: Envelope,
    /// Places of the entries and deletions.
    spans: Vec<(usize, usize)>,
    /// Share of the budget, until the entries are written.
    _share: BudgetShare,
    /// Whether every id that looks like a URI is one.
    any_scheme: bool,
}

impl FeedText {
    pub(super) fn new(
        text: String,
        envelope: Envelope,
        parts: &[FeedPart],
        mut share: BudgetShare,
        any_scheme: bool,
    ) -> Self {
        share.keep(text.capacity() + parts.len().saturating_mul(ENTRY_COST));
        let spans = parts.iter().map(|part| (part.from, part.to)).collect();
        Self { text, envelope, spans, _share: share, any_scheme }
    }

    /// Returns an entry as a message for the dialect, with its share if other feeds show it too. One of more than `max_bytes`
    /// goes to the quarantine.
    pub(super) fn message(
        &self,
        entry: SelectedEntry,
        share: Option<&EntryShare>,
        feed_url: &str,
        date: Timestamp,
        max_bytes: usize,
    ) -> ReceivedMessage {
        let document = self.document(entry.parts, max_bytes);
        message(document, entry.key, share, &MessageContext { feed_url, any_scheme: self.any_scheme, date, max_bytes })
    }

    /// Returns a document with these parts alone, and its size in bytes. One of more than `max_bytes` ends with the part that
    /// exceeds them.
    fn document(&self, parts: Range<usize>, max_bytes: usize) -> EntryDocument {
        let spans = self.spans.get(parts).unwrap_or_default();
        let size = self.envelope.size() + spans.iter().map(|(from, to)| to - from).sum::<usize>();
        let mut shown = 0;
        let elements = spans.iter().map(|(from, to)| self.text.get(*from..*to).unwrap_or_default());
        let elements = elements.take_while(|element| {
            let is_shown = shown <= max_bytes;
            shown += element.len();
            is_shown
        });
        let document = self.envelope.around(&elements.collect::<Vec<_>>());
        let size = if shown > max_bytes { size } else { document.len() };
        EntryDocument { text: document, size }
    }
}

/// Document with one entry.
struct EntryDocument {
    /// The document; only its beginning if it is too large.
    text: String,
    /// Size of the whole document, in bytes.
    size: usize,
}

/// Context of all messages of a feed.
struct MessageContext<'a> {
    feed_url: &'a str,
    /// Whether an id with any scheme is the URI of an object.
    any_scheme: bool,
    /// Time of the response.
    date: Timestamp,
    /// Maximum size of a message, in bytes.
    max_bytes: usize,
}

/// Returns the message that deletes an entry, or only what its share names.
pub(super) fn tombstone(uri: &str, feed_url: &str, when: Timestamp, share: Option<&EntryShare>) -> ReceivedMessage {
    let document = format!(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"><at:{DELETED_ENTRY} xmlns:at=\"{TOMBSTONES}\" ref=\"{}\" \
         when=\"{when}\"/></feed>",
        escape(uri)
    );
    let document = EntryDocument { size: document.len(), text: document };
    // The id is the URI of the object.
    message(document, None, share, &MessageContext { feed_url, any_scheme: true, date: when, max_bytes: usize::MAX })
}

/// Returns an entry as a message for the dialect.
fn message(
    EntryDocument { text: mut document, size }: EntryDocument,
    key: Option<EntryKey>,
    share: Option<&EntryShare>,
    MessageContext { feed_url, any_scheme, date, max_bytes }: &MessageContext<'_>,
) -> ReceivedMessage {
    let mut headers = vec![(FEED_URL, (*feed_url).to_owned()), (RESPONSE_DATE, date.to_string())];
    headers.extend(any_scheme.then(|| (ANY_SCHEME, "true".to_owned())));
    headers.extend(key.map(|key| (ENTRY_KEY, key.name().to_owned())));
    // Serialization cannot fail: every value has a JSON form.
    headers.extend(share.map(|share| (ENTRY_SHARE, serde_json::to_string(share).unwrap_or_default())));
    let cut = (0..=document.len().min(*max_bytes)).rev().find(|at| document.is_char_boundary(*at));
    document.truncate(cut.unwrap_or_default());
    let incoming = Incoming {
        content_type: Some("application/xml".to_owned()),
        headers: headers.into_iter().collect(),
        body: Bytes::from(document),
        transport_id: None,
        redelivered: false,
        set: None,
    };
    if size > *max_bytes {
        let reason = format!("the entry has {size} bytes, and limits.body_bytes is {max_bytes}");
        let rejection = Rejection::unprocessable(Location::Message, reason);
        return ReceivedMessage::Unreadable { incoming, rejection, encoded: false };
    }
    ReceivedMessage::Readable(incoming)
}
