//! Notes of the scanner on messages, for those who get the messages from the library.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::DEEPEST;

/// A part of a message that the scanner changed.
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

/// Notes on the messages of one connection. Clones share them.
///
/// A note is removed when its message is. There are no more of them than messages that the broker sends before one is
/// acknowledged, or that the gateway sends before one is confirmed.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    corrected: HashMap<(u16, u64), Vec<Correction>>,
    returned: HashSet<(u16, String)>,
}

impl Notes {
    pub(super) fn corrected(&self, channel: u16, tag: u64, corrections: Vec<Correction>) {
        self.lock().corrected.insert((channel, tag), corrections);
    }

    pub(super) fn returned(&self, channel: u16, message_id: String) {
        self.lock().returned.insert((channel, message_id));
    }

    /// Removes and returns the corrections of a delivery; there are none where it passed as it was.
    #[must_use]
    pub fn take_corrections(&self, channel: u16, tag: u64) -> Vec<Correction> {
        self.lock().corrected.remove(&(channel, tag)).unwrap_or_default()
    }

    /// Removes the note that the broker returned the message with that identifier, and returns whether there was one.
    #[must_use]
    pub fn take_return(&self, channel: u16, message_id: &str) -> bool {
        self.lock().returned.remove(&(channel, message_id.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is one call, so that the notes are whole whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
