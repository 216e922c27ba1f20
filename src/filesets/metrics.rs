//! Metrics of the archiving of datasets.

use metrics::counter;

use crate::{format::fileset::status::IngestStatus, model::SourceName};

/// Metric name: number of attempts to archive a dataset, by status.
pub const INGESTS: &str = "tidings_ingests_total";

/// Shows the series of a source, because a `rate()` query needs the initial zero.
pub(super) fn register_ingests(source: &SourceName) {
    counter!(INGESTS, "source" => source.to_string(), "status" => IngestStatus::SUCCESS.to_string()).increment(0);
}

/// Counts an attempt to archive a dataset.
pub(super) fn ingested(source: &SourceName, status: &IngestStatus) {
    // The vocabulary is open, and a series for each of a server's words would be unbounded.
    let known = IngestStatus::KNOWN.iter().find(|known| *known == status);
    let status = known.map_or_else(|| "other".to_owned(), ToString::to_string);
    counter!(INGESTS, "source" => source.to_string(), "status" => status).increment(1);
}
