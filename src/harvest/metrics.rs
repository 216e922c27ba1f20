//! Metrics of harvests.

use metrics::{counter, gauge};

use crate::{
    files::StoredFile,
    journal::harvest::{HarvestRun, RunState},
    model::{SourceName, Timestamp},
};

/// Metric name: number of ended runs by outcome.
pub const RUNS: &str = "tidings_harvest_runs_total";

/// Metric name: number of records by which repository and journal differ.
pub const DIFFERENCE: &str = "tidings_harvest_differing_records";

/// Metric name: number of harvested records by outcome.
pub const RECORDS: &str = "tidings_harvest_records_total";

/// Metric name: number of harvested pages.
pub const PAGES: &str = "tidings_harvest_pages_total";

/// Metric name: time of the last complete run, in seconds since 1970.
pub const LAST_COMPLETE: &str = "tidings_harvest_last_complete_timestamp_seconds";

/// Metric name: number of attempts to copy a file, by outcome.
pub const DOWNLOADS: &str = "tidings_downloads_total";

/// Metric name: size of the files that were stored for the first time, in bytes.
pub const DOWNLOADED_BYTES: &str = "tidings_downloaded_bytes_total";

/// Shows the series of downloads, as [`register`] does for all harvests.
pub(super) fn register_downloads(source: &SourceName) {
    for outcome in ["stored", "known", "failed"] {
        counter!(DOWNLOADS, "source" => source.to_string(), "outcome" => outcome).increment(0);
    }
    counter!(DOWNLOADED_BYTES, "source" => source.to_string()).increment(0);
}

/// Counts an attempt to copy a file: with the stored file, or `None` if it failed.
pub(super) fn downloaded(source: &SourceName, stored: Option<&StoredFile>) {
    let outcome = match stored {
        Some(stored) if stored.is_new => "stored",
        Some(_) => "known",
        None => "failed",
    };
    counter!(DOWNLOADS, "source" => source.to_string(), "outcome" => outcome).increment(1);
    let bytes = stored.filter(|stored| stored.is_new).map_or(0, |stored| stored.size);
    counter!(DOWNLOADED_BYTES, "source" => source.to_string()).increment(bytes);
}

/// Shows the series of a source, because a `rate()` query needs the initial zero.
pub(super) fn register(source: &SourceName) {
    let source = source.to_string();
    for outcome in ["completed", "failed"] {
        counter!(RUNS, "source" => source.clone(), "outcome" => outcome).increment(0);
    }
    for outcome in ["changed", "unchanged", "quarantined"] {
        counter!(RECORDS, "source" => source.clone(), "outcome" => outcome).increment(0);
    }
    counter!(PAGES, "source" => source).increment(0);
}

/// Counts a page that is on disk, from the run before and after it.
pub(super) fn page(before: &HarvestRun, after: &HarvestRun) {
    let source = after.source.to_string();
    let (before, after) = (before.counts, after.counts);
    let changed = after.changes - before.changes;
    let quarantined = after.quarantined - before.quarantined;
    // Records that are requested again make changes without being listed again.
    let records = after.records - before.records;
    for (outcome, number) in [
        ("changed", changed),
        ("unchanged", records.saturating_sub(changed + quarantined)),
        ("quarantined", quarantined),
    ] {
        counter!(RECORDS, "source" => source.clone(), "outcome" => outcome).increment(number);
    }
    counter!(PAGES, "source" => source).increment(after.pages - before.pages);
}

/// Notes by how many records a repository and the journal differ.
#[expect(clippy::cast_precision_loss, reason = "numbers of records fit into the mantissa")]
pub(super) fn difference(source: &SourceName, records: u64) {
    gauge!(DIFFERENCE, "source" => source.to_string()).set(records as f64);
}

/// Counts a run that has ended.
pub(super) fn ended(run: &HarvestRun) {
    let source = run.source.to_string();
    counter!(RUNS, "source" => source, "outcome" => run.state.name()).increment(1);
    if run.state == RunState::Completed {
        set_last_complete(&run.source, run.updated);
    }
}

/// Shows the time of the last complete run, from the newest runs of the journal. It is 1970 if none of them is complete.
pub(super) fn last_complete(source: &SourceName, newest: &[HarvestRun]) {
    let complete = newest.iter().find(|run| run.state == RunState::Completed);
    set_last_complete(source, complete.map_or(Timestamp::EPOCH, |run| run.updated));
}

#[expect(clippy::cast_precision_loss, reason = "the time in seconds fits into the mantissa")]
fn set_last_complete(source: &SourceName, time: Timestamp) {
    gauge!(LAST_COMPLETE, "source" => source.to_string()).set(time.millis() as f64 / 1000.0);
}
