//! Metrics of the archiving of datasets.

use metrics::counter;

use crate::{format::fileset::status::IngestStatus, model::SourceName};

/// Metric name: number of attempts to archive a dataset, by status.
pub const INGESTS: &str = "tidings_ingests_total";

/// Label of all statuses that are not known.
const OTHER: &str = "other";

/// Shows the series of a source, because a `rate()` query needs the initial zero.
pub(super) fn register_ingests(source: &SourceName) {
    for status in IngestStatus::KNOWN.iter().map(ToString::to_string).chain([OTHER.to_owned()]) {
        counter!(INGESTS, "source" => source.to_string(), "status" => status).increment(0);
    }
}

/// Counts an attempt to archive a dataset.
pub(super) fn ingested(source: &SourceName, status: &IngestStatus) {
    // The vocabulary is open, and a series for each of a server's words would be unbounded.
    let known = IngestStatus::KNOWN.iter().find(|known| *known == status);
    let status = known.map_or_else(|| OTHER.to_owned(), ToString::to_string);
    counter!(INGESTS, "source" => source.to_string(), "status" => status).increment(1);
}
