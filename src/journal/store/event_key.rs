//! Event keys, by which the journal detects repeated events.

use sha2::{Digest, Sha256};

use crate::model::SourceName;

/// Key of an event for the detection of repeats: a digest of the source's name, and of the source's event id or the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub [u8; 16]);

/// Computes the key of an event from its identity within its source. `ordinal` distinguishes the drafts of one message.
#[must_use]
pub fn event_key(source: &SourceName, identity: EventIdentity<'_>, ordinal: usize) -> EventKey {
    let mut hash = Sha256::new();
    // The length of each part precedes it, so that different identities never give the same bytes.
    let mut part = |bytes: &[u8]| {
        hash.update(bytes.len().to_be_bytes());
        hash.update(bytes);
    };
    part(source.as_str().as_bytes());
    part(&ordinal.to_be_bytes());
    match identity {
        EventIdentity::Id(id) => part(id.as_bytes()),
        EventIdentity::Message { headers, body } => {
            part(body);
            for (name, value) in headers {
                part(name.as_bytes());
                part(value.as_bytes());
            }
        }
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize()[..16]);
    EventKey(key)
}

impl EventKey {
    /// Returns the key of a further change from the same event, after `number` others.
    #[must_use]
    pub fn part(self, number: usize) -> Self {
        let hash = Sha256::new().chain_update(self.0).chain_update(number.to_be_bytes()).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Self(key)
    }
}

/// Identity of an event within its source.
#[derive(Clone, Copy, Debug)]
pub enum EventIdentity<'a> {
    /// Identifier that the source assigned.
    Id(&'a str),
    /// The message itself.
    Message {
        /// Headers that the dialect reads.
        headers: &'a [(String, String)],
        /// Body of the message.
        body: &'a [u8],
    },
}
