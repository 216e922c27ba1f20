//! Content of the files of a page: reads those that may have changed, and reports them to the dialect.

use std::{collections::HashMap, fs::File, io, path::PathBuf};

use tokio_util::sync::CancellationToken;

use super::{
    harvest::MAX_REMARKS,
    listed_file::{FileVersion, open_file},
    member,
};
use crate::{
    files::FileFacts,
    format::folder::FileReport,
    harvest::json_message,
    intake::ReceivedMessage,
    journal::harvest::ListedRecord,
    model::{ContentLocation, Digest, DigestAlgorithm, MediaType, Timestamp, Uri},
};

/// Size of the files after which a page ends, in bytes.
const PAGE_BYTES: u64 = 256 * 1024 * 1024;

/// Time after a modification in which another one may leave the time as it is: the precision of the coarsest file system,
/// FAT.
const TIME_PRECISION_MILLIS: i64 = 2000;

/// A file of a page, before its content is read.
pub(super) struct Candidate {
    pub(super) url: Uri,
    /// Path in the form of URLs.
    pub(super) path: String,
    /// Path below the harvested folder.
    pub(super) file: PathBuf,
    pub(super) version: FileVersion,
}

/// Content of the files of a page.
#[derive(Default)]
pub(super) struct PageContent {
    /// Number of files until the limit of the page.
    pub(super) files: usize,
    pub(super) messages: Vec<ReceivedMessage>,
    pub(super) present: Vec<ListedRecord>,
    pub(super) remarks: Vec<String>,
}

/// Reads the files whose size or time differs from the known ones, until they are large enough for a page.
pub(super) fn read(
    root: &File,
    candidates: &[Candidate],
    known: &HashMap<String, String>,
    stop: &CancellationToken,
) -> PageContent {
    let (mut page, mut budget) = (PageContent::default(), u64::MAX);
    for candidate in candidates {
        if u64::MAX - budget >= PAGE_BYTES {
            break;
        }
        page.files += 1;
        let url = candidate.url.to_string();
        let mut record = ListedRecord { validator: candidate.version.validator(), ..ListedRecord::from(url) };
        if known.get(&record.identifier) != Some(&record.validator) {
            match read_file(root, candidate, &mut budget, stop) {
                Ok(Some(facts)) => {
                    let time = candidate.version.time();
                    page.messages.push(present_message(candidate.url.clone(), time, &facts));
                    if is_fresh(time) {
                        record.validator.clear();
                    }
                }
                // It is being written, or another file has its path. The next run reads it.
                Ok(None) => record.validator.clear(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    record.validator.clear();
                    if page.remarks.len() < MAX_REMARKS {
                        let file = member::short_name(&candidate.file.to_string_lossy());
                        page.remarks.push(format!("{file} cannot be read: {error}; the next run tries again"));
                    }
                }
            }
        }
        page.present.push(record);
    }
    page
}

/// Reads a file; returns `None` if it was modified or replaced since it was listed.
fn read_file(
    root: &File,
    candidate: &Candidate,
    budget: &mut u64,
    stop: &CancellationToken,
) -> io::Result<Option<FileFacts>> {
    let Some(mut file) = open_file(root, &candidate.file, candidate.version)? else { return Ok(None) };
    let facts = member::read(&mut file, budget, stop)?;
    Ok(candidate.version.is_open_in(&file)?.then_some(facts))
}

/// Returns whether a file was modified so recently that its time may stay the same at the next modification.
fn is_fresh(modified: Timestamp) -> bool {
    Timestamp::now().millis().saturating_sub(modified.millis()) < TIME_PRECISION_MILLIS
}

pub(super) fn present_message(file: Uri, time: Timestamp, facts: &FileFacts) -> ReceivedMessage {
    let content = ContentLocation {
        media_type: facts.media_type.and_then(|media_type| MediaType::parse(media_type).ok()),
        size: Some(facts.size),
        digest: Digest::parse(DigestAlgorithm::Sha256, &facts.digest.to_string()).ok(),
        ..ContentLocation::at(file.clone())
    };
    json_message(&FileReport { file, time, content: Some(content) })
}

pub(super) fn absent_message(file: Uri, time: Timestamp) -> ReceivedMessage {
    json_message(&FileReport { file, time, content: None })
}
