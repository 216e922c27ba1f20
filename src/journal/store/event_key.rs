//! By what an event is known when it comes again.

use sha2::{Digest, Sha256};

use crate::model::SourceName;

/// What identifies an event for knowing it again: a digest over the source's name and the source's
/// own event id, or the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub [u8; 16]);

/// Makes the key of an event from what identifies it within its source. `ordinal` tells apart the
/// drafts of one message.
#[must_use]
pub fn event_key(source: &SourceName, identity: EventIdentity<'_>, ordinal: usize) -> EventKey {
    let mut hash = Sha256::new();
    // Each part has its length before it, so that no two identities run together to the same bytes.
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
    /// The key of a further change that tells the same event: `number` of them come before it.
    #[must_use]
    pub fn part(self, number: usize) -> Self {
        let hash = Sha256::new().chain_update(self.0).chain_update(number.to_be_bytes()).finalize();
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Self(key)
    }
}

/// What identifies an event within its source.
#[derive(Clone, Copy, Debug)]
pub enum EventIdentity<'a> {
    /// The source's own identifier.
    Id(&'a str),
    /// The message itself.
    Message {
        /// Those of its headers that its dialect reads.
        headers: &'a [(String, String)],
        /// Its bytes.
        body: &'a [u8],
    },
}
