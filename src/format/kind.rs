//! What every format has in common: its name, its media type and how it is written.

use crate::model::{Change, ContentObjectModification};

/// A format as it is offered to the views, the subscriptions and the command line.
pub struct FormatKind {
    /// The name in the configuration and on the command line.
    pub name: &'static str,
    /// The media type of what is written.
    pub media_type: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Writes a change of the journal: what happened, and what the journal knows beside it (its
    /// number, its source, when it was received, what of it is late).
    pub write: fn(&Change) -> Vec<u8>,
    /// Writes a modification alone, without a journal's word on it.
    pub write_modification: fn(&ContentObjectModification) -> Vec<u8>,
}
