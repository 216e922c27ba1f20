//! The formats `fileset-result` and `fileset-file-result`: results of ingests as Sandcrawler sends them.
//!
//! Only changes that a result made have such messages. Sandcrawler sends the first kind to its topic
//! `ingest-fileset-results`, and the second one, for datasets with a single file in a web archive, to `ingest-file-results`.

use serde::Serialize;

use super::{
    DATASET, FilesetRequest,
    message::{Capture, FilesetResult},
    status::IngestStatus,
};
use crate::{
    format::{ExtraHeaders, FormatKind},
    model::{Change, ContentObjectModification, Report},
};

/// Kind of content of a single file of a dataset in a request.
const DATASET_FILE: &str = "dataset-file";

/// The format `fileset-result`.
pub(in crate::format) static RESULT_FORMAT: FormatKind = FormatKind {
    name: "fileset-result",
    media_type: "application/json",
    about: "results of archiving datasets, as Sandcrawler sends them; other changes have no message",
    write: |change| write(&change.modification),
    write_modification: write,
    covers: Some(has_result),
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: None,
};

/// The format `fileset-file-result`.
pub(in crate::format) static FILE_RESULT_FORMAT: FormatKind = FormatKind {
    name: "fileset-file-result",
    media_type: "application/json",
    about: "results of archiving datasets with one file in a web archive, as Sandcrawler sends them for files",
    write: |change| write_file(&change.modification),
    write_modification: write_file,
    covers: Some(|change| has_result(change) && file_result(&change.modification).is_some()),
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: None,
};

fn has_result(change: &Change) -> bool {
    change.modification.report.as_ref().is_some_and(|report| report.result().is_some())
}

/// Writes the result of a change, or for other changes that nothing was processed.
fn write(modification: &ContentObjectModification) -> Vec<u8> {
    match modification.report.as_ref().and_then(Report::result) {
        Some(result) => result.as_str().as_bytes().to_vec(),
        None => json(&unprocessed(modification)),
    }
}

fn write_file(modification: &ContentObjectModification) -> Vec<u8> {
    match file_result(modification) {
        Some(result) => json(&result),
        None => json(&unprocessed(modification)),
    }
}

/// Result for the only file of a dataset.
#[derive(Serialize)]
struct FileResult {
    hit: bool,
    status: IngestStatus,
    request: FilesetRequest,
    #[serde(flatten)]
    file: Capture,
}

fn file_result(modification: &ContentObjectModification) -> Option<FileResult> {
    let report = modification.report.as_ref()?.result()?;
    let result: FilesetResult = serde_json::from_str(report.as_str()).ok()?;
    let file = result.fileset_file.filter(|file| file.terminal.is_some())?;
    let is_single = result.status == IngestStatus::SUCCESS_FILE;
    let request = FilesetRequest { ingest_type: DATASET_FILE.to_owned(), ..result.request };
    is_single.then_some(FileResult { hit: true, status: IngestStatus::SUCCESS, request, file })
}

/// Returns the message for a change without a result, with the request if the change has one.
fn unprocessed(modification: &ContentObjectModification) -> FilesetResult {
    let reported =
        modification.report.as_ref().and_then(|report| serde_json::from_str(report.document().as_str()).ok());
    let request = reported.unwrap_or_else(|| FilesetRequest {
        ingest_type: DATASET.to_owned(),
        ..FilesetRequest::new(modification.object.clone(), modification.user.name())
    });
    FilesetResult::new(request, IngestStatus::NOT_PROCESSED)
}

#[expect(clippy::expect_used, reason = "the messages have no map with keys that are not strings, and a Vec takes all")]
fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("the message has a JSON shape for every value")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FILE_RESULT_FORMAT, FormatKind, RESULT_FORMAT};
    use crate::model::Change;

    fn change(report: &Value) -> Change {
        let change = json!({
            "seq": 7, "id": "urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48", "source": "s", "object": "https://h/1",
            "received": "2026-01-02T03:04:05.006Z", "time": "2011-01-02T03:04:05Z", "user": { "name": "u" },
            "description": "", "report": report,
            "items": [{ "id": "urn:uuid:00000000-0000-4000-8000-000000000001", "uri": "https://h/1", "change": "ADD" }],
        });
        serde_json::from_value(change).unwrap()
    }

    fn written(format: &FormatKind, change: &Change) -> Value {
        serde_json::from_slice(&(format.write)(change)).unwrap()
    }

    fn covers(format: &FormatKind, change: &Change) -> bool {
        format.covers(change)
    }

    #[test]
    fn result_is_written_as_it_was_reported() {
        let request = json!({ "ingest_type": "dataset", "base_url": "https://h/1", "link_source": "doi" });
        let result = json!({ "hit": false, "status": "too-large-size", "request": request, "hops": [] });
        let change = change(&json!({ "result": result }));
        assert_eq!(written(&RESULT_FORMAT, &change), result);
        assert!(covers(&RESULT_FORMAT, &change) && !covers(&FILE_RESULT_FORMAT, &change));
    }

    #[test]
    fn single_file_has_a_message_of_its_own() {
        let request = json!({ "ingest_type": "dataset", "base_url": "https://h/1" });
        let terminal = json!({ "terminal_url": "https://h/f", "terminal_dt": "20260102030405" });
        let result = json!({
            "hit": true, "status": "success-file", "request": request, "fileset_file": { "terminal": terminal },
        });
        let change = change(&json!({ "result": result }));
        assert!(covers(&FILE_RESULT_FORMAT, &change));
        let expected = json!({
            "hit": true, "status": "success", "terminal": terminal,
            "request": { "ingest_type": "dataset-file", "base_url": "https://h/1" },
        });
        assert_eq!(written(&FILE_RESULT_FORMAT, &change), expected);
    }

    #[test]
    fn request_has_no_result() {
        let request = json!({ "ingest_type": "dataset", "base_url": "https://h/1", "ext_ids": { "doi": "10.1/x" } });
        let change = change(&json!({ "request": request }));
        assert!(!covers(&RESULT_FORMAT, &change) && !covers(&FILE_RESULT_FORMAT, &change));
        let expected = json!({ "hit": false, "status": "not-processed", "request": request, "hops": [] });
        assert_eq!(written(&RESULT_FORMAT, &change), expected);
    }
}
