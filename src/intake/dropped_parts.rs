//! Optional parts of messages that could not be read: they cost themselves, and not the event.

use super::Source;
use crate::model::{Draft, DroppedPart, SourceName};

/// Metric name: number of optional parts of messages that could not be read.
pub const DROPPED_PARTS: &str = "tidings_dropped_parts_total";

/// Shows the series of a source, because a `rate()` query needs the initial zero.
pub(super) fn register(source: &SourceName) {
    for part in DroppedPart::ALL {
        metrics::counter!(DROPPED_PARTS, "source" => source.to_string(), "part" => part.name()).increment(0);
    }
}

impl Source {
    /// Counts and logs the parts that the dialect has left out of these drafts.
    pub(super) fn note_dropped_parts<'d>(&self, drafts: impl IntoIterator<Item = &'d Draft>) {
        let parts = drafts.into_iter().flat_map(|draft| draft.reading.dropped.iter().map(move |part| (draft, part)));
        for (draft, part) in parts {
            let (name, part, object) = (self.name().to_string(), part.name(), &draft.object);
            tracing::debug!(source = %self.name(), part, %object, "a part of a message cannot be read and is dropped");
            metrics::counter!(DROPPED_PARTS, "source" => name, "part" => part).increment(1);
        }
    }
}
