//! Optional parts of messages and lookups that could not be read: they cost themselves, and not the event.

use super::Source;
use crate::model::{Draft, DroppedPart, SourceName};

/// Metric name: number of optional parts of messages and lookups that could not be read.
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
        drafts.into_iter().for_each(|draft| self.note_dropped_parts_from(draft, 0));
    }

    /// Counts and logs the parts that were left out of a draft after the first `before` ones.
    pub(super) fn note_dropped_parts_from(&self, draft: &Draft, before: usize) {
        for part in draft.reading.dropped.iter().skip(before) {
            let (name, part, object) = (self.name().to_string(), part.name(), &draft.object);
            tracing::debug!(source = %self.name(), part, %object, "an optional part cannot be read and is dropped");
            metrics::counter!(DROPPED_PARTS, "source" => name, "part" => part).increment(1);
        }
    }
}
