//! Notes of the scanner about messages, for the code that receives the messages from the library.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::DEEPEST;

/// A correction by the scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Octets of this short string were not UTF-8.
    NotUtf8(&'static str),
    /// Tables or arrays were nested too deep.
    TooDeep,
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8(part) => write!(f, "{part} is not UTF-8"),
            Self::TooDeep => write!(f, "its headers are nested more than {DEEPEST} levels deep"),
        }
    }
}

/// Notes about one connection and its messages. Clones share them.
///
/// A note about a message is removed together with it. There are never more notes than unacknowledged incoming
/// messages and unconfirmed outgoing messages.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    corrected: HashMap<(u16, u64), Vec<Correction>>,
    returned: HashSet<(u16, String)>,
    /// Reason for which the broker accepts no messages at present.
    block: Option<String>,
}

impl Notes {
    pub(super) fn corrected(&self, channel: u16, tag: u64, corrections: Vec<Correction>) {
        self.lock().corrected.insert((channel, tag), corrections);
    }

    pub(super) fn returned(&self, channel: u16, message_id: String) {
        self.lock().returned.insert((channel, message_id));
    }

    pub(super) fn set_block(&self, reason: Option<String>) {
        self.lock().block = reason;
    }

    /// Returns the reason for which the broker accepts no messages at present, in its own words of at most 255 bytes.
    #[must_use]
    pub fn block(&self) -> Option<String> {
        self.lock().block.clone()
    }

    /// Removes and returns the corrections of a delivery; empty if the delivery was not corrected.
    #[must_use]
    pub fn take_corrections(&self, channel: u16, tag: u64) -> Vec<Correction> {
        self.lock().corrected.remove(&(channel, tag)).unwrap_or_default()
    }

    /// Removes the note that the broker returned a message, and returns true if there was one.
    #[must_use]
    pub fn take_return(&self, channel: u16, message_id: &str) -> bool {
        self.lock().returned.remove(&(channel, message_id.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is a single call, so the notes are consistent even if a thread panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
