//! Filesets: requests to archive the files of a dataset, and the results, as Sandcrawler's fileset ingest sends them.
//!
//! * The object is the dataset, under the `base_url` of its request. The dataset is also an item of itself, which has the
//!   state of the ingest: REQUESTED, then ACTIVE or the reason why it could not be archived.
//! * Each file is an item. Its URI is the one of the dataset with the path of the file as fragment, so that a file keeps
//!   its URI in a later version.
//! * Messages about other kinds of content (`pdf`, `html`, …), which use the same topics, are no change.
//!
//! Source: Sandcrawler's proposal "Fileset Ingest Pipeline (for Datasets)" of 2021-09-09.
//!
//! * `request` reads requests, `result` results, and `write` writes results;
//! * [`message`] has the members of a result, [`status`] the vocabulary of its outcome, and [`public_url`] removes
//!   credentials from URLs.

pub mod message;
pub mod public_url;
mod request;
mod result;
pub mod status;
mod write;

use percent_encoding::{AsciiSet, utf8_percent_encode};

pub use self::request::{FilesetRequest, InvalidDataset, dataset_url};
pub(super) use self::{
    request::DIALECT as REQUEST_DIALECT,
    result::DIALECT as RESULT_DIALECT,
    write::{FILE_RESULT_FORMAT, RESULT_FORMAT},
};
use super::{Location, NOT_UNRESERVED, Rejection, RejectionKind};
use crate::model::{
    Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, NonEmpty, Reading, Text, Uri, User,
};

/// Type of the objects: a dataset in the DCMI Type Vocabulary.
const DATASET_TYPE: &str = "http://purl.org/dc/dcmitype/Dataset";

/// Kind of content that this dialect is for.
const DATASET: &str = "dataset";

/// Characters that are percent-encoded in the path of a file.
const NOT_IN_PATH: &AsciiSet = &NOT_UNRESERVED.remove(b'/');

/// Creates a draft about a dataset with the change of its own item.
fn draft(request: &FilesetRequest, own: DraftChange, description: &str) -> Draft {
    let dataset = request.base_url.clone();
    Draft {
        id: None,
        event_id: None,
        software_version: None,
        user: User::new(request.ingest_request_source.as_deref().unwrap_or_default(), None),
        time: DraftTime::Arrival,
        object: dataset.clone(),
        parent: None,
        types: Uri::parse(DATASET_TYPE).into_iter().collect(),
        description: Text::new(description),
        items: DraftItems::Listed(NonEmpty::one(DraftItem::new(dataset, own))),
        report: None,
        lookup: DraftLookup::default(),
        reading: Reading::default(),
    }
}

/// Returns the URI of a file of a dataset.
///
/// # Errors
/// Fails if the URI is too long.
pub fn file_uri(dataset: &Uri, path: &str) -> Result<Uri, crate::model::InvalidUri> {
    let separator = if dataset.as_str().contains('#') { '/' } else { '#' };
    Uri::parse(&format!("{dataset}{separator}{}", utf8_percent_encode(path, NOT_IN_PATH)))
}

/// Creates a rejection of the value at a JSON pointer.
fn rejection(pointer: String, reason: impl Into<String>) -> Rejection {
    Rejection::unprocessable(Location::Pointer(pointer), reason)
}

/// Moves a rejection of the member of a message one level down.
fn below(parent: &str, rejection: Rejection) -> Rejection {
    let Rejection { kind, location, reason } = rejection;
    match location {
        Location::Pointer(pointer) if kind == RejectionKind::Unprocessable => {
            Rejection::unprocessable(Location::Pointer(format!("{parent}{pointer}")), reason)
        }
        location => Rejection { kind, location, reason },
    }
}
