//! Comparison of the messages of a batch by the items that they describe, for sources that leave some messages out.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::{Batch, Incoming, ReceivedMessage};
use crate::{
    journal::store::EventKey,
    model::{Digest, Draft, Uri},
};

impl Batch {
    /// Returns the position of each message that could be read, with a digest of the items that it describes. Messages with
    /// the same items have the same digest, whatever their object, their time and their description are.
    #[must_use]
    pub fn item_digests(&self) -> Vec<(usize, String)> {
        let drafts = self.read.iter().flatten().map(|one| item_digest(&one.message.submission.drafts));
        let unreadable: BTreeSet<_> = self.unreadable.iter().collect();
        (0..self.messages.len()).filter(|position| !unreadable.contains(position)).zip(drafts).collect()
    }

    /// Returns the messages that could be read, each with its position.
    #[must_use]
    pub fn readable(&self) -> Vec<(usize, Incoming)> {
        let messages = self.messages.iter().enumerate().filter(|(position, _)| !self.unreadable.contains(position));
        let incoming = |(position, message): (usize, &ReceivedMessage)| match message {
            ReceivedMessage::Readable(incoming) => Some((position, incoming.clone())),
            ReceivedMessage::Unreadable { .. } => None,
        };
        messages.filter_map(incoming).collect()
    }

    /// Adds a header to messages at these positions, which are parsed again before they are written.
    pub fn add_headers(&mut self, name: &str, values: Vec<(usize, String)>) {
        for (position, value) in values {
            if let Some(ReceivedMessage::Readable(incoming)) = self.messages.get_mut(position) {
                incoming.headers.push(name, value);
                self.read = None;
            }
        }
    }

    /// Drops the messages at these positions among those that could be read.
    pub fn drop_readable(&mut self, dropped: &BTreeSet<usize>) {
        if dropped.is_empty() {
            return;
        }
        let unreadable: BTreeSet<_> = self.unreadable.drain(..).collect();
        let mut read = self.read.take().map(Vec::into_iter);
        let (mut messages, mut kept) = (Vec::new(), Vec::new());
        for (position, message) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            let is_unreadable = unreadable.contains(&position);
            let one = if is_unreadable { None } else { read.as_mut().and_then(Iterator::next) };
            if dropped.contains(&position) && !is_unreadable {
                continue;
            }
            if is_unreadable {
                self.unreadable.push(messages.len());
            }
            messages.push(message);
            kept.extend(one);
        }
        self.messages = messages;
        self.read = read.map(|_| kept);
    }
}

/// Returns a digest of the items of drafts, and of parent and types. The URI of the object itself does not count.
fn item_digest(drafts: &[(Option<EventKey>, Draft)]) -> String {
    let mut hash = Sha256::new();
    for (_, draft) in drafts {
        for item in draft.items.listed() {
            let content = item.change.content();
            let digest = content.and_then(|content| content.digest.as_ref()).map_or("", Digest::hex);
            let uri = if item.uri == draft.object { "" } else { item.uri.as_str() };
            hash.update(format!("{uri}\n{digest}\n"));
        }
        // Facts about the object can alternate between two lists, too.
        let types: BTreeSet<_> = draft.types.iter().map(Uri::as_str).collect();
        for fact in draft.parent.iter().map(Uri::as_str).chain(types) {
            hash.update(format!("\n{fact}\n"));
        }
    }
    hex::encode(&hash.finalize()[..8])
}
