//! Notes of a dialect about its reading of a message: what it left out, and how earlier versions spelt its URIs.

use super::Uri;

/// Notes of a dialect about one draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Optional parts of the message that could not be read. They are dropped, because an event without them is worth
    /// more than no event.
    pub dropped: Vec<DroppedPart>,
    /// URIs of the draft that earlier versions spelt in another way. An object or item that the registry has under its
    /// former spelling keeps it.
    pub former: Vec<FormerSpelling>,
}

named_values! {
    /// Kind of an optional part of a message that could not be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum DroppedPart {
        /// A time in a form that no dialect reads. The event is ordered by its arrival.
        Time = "time",
        /// A link, or another optional URI.
        Uri = "uri",
        /// A date of visibility in a form that the dialect or the lookup does not read.
        VisibilityDate = "visibility-date",
    }
}

/// A URI of a draft, with the spelling of the same URI in the journals of earlier versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerSpelling {
    /// The URI in the draft.
    pub uri: Uri,
    /// Its spelling in the message, which earlier versions kept.
    pub former: Uri,
}

impl Reading {
    /// Returns the value, or notes that this part of the message could not be read.
    pub fn keep<T, E>(&mut self, part: DroppedPart, value: Result<T, E>) -> Option<T> {
        value.map_err(|_| self.dropped.push(part)).ok()
    }

    /// Returns the former spelling of a URI, if earlier versions spelt it in another way.
    #[must_use]
    pub fn former_of(&self, uri: &Uri) -> Option<&Uri> {
        self.former.iter().find(|spelling| spelling.uri == *uri).map(|spelling| &spelling.former)
    }
}
