//! Files of harvested folders and archives.
//!
//! * The object is the file, and its content is an item with the same URI, so each change of the content is a change with
//!   the state before and after.
//! * The time of a present file is its modification time, and that of a deletion the start of the list without it.

use serde::{Deserialize, Serialize};

use super::{Dialect, DialectKind, DuplicateDetection, Location, Message, ParsedMessage, Rejection, parse_settings};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, Reading, Text, Timestamp, Uri,
    User,
};

/// The dialect `folder`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "folder",
    about: "files of folders and archives, which the gateway lists itself",
    accepts: &["application/json"],
    headers: &[],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, _| Ok(Box::new(parse_settings::<Folder>(value)?)),
};

/// The configured dialect, without settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Folder {}

/// State of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileReport {
    /// URI of the file.
    pub file: Uri,
    /// Time of the modification; for an absent file the start of the list.
    pub time: Timestamp,
    /// Content; absent if the file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
}

impl Dialect for Folder {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let report: FileReport = serde_json::from_slice(message.body).map_err(|error| {
            Rejection::malformed(Location::Message, format!("this is not the state of a file: {error}"))
        })?;
        let FileReport { file, time, content } = report;
        let description = match &content {
            Some(_) => format!("file {file}"),
            None => format!("the file {file} is no longer there"),
        };
        let present =
            |content| DraftItem::new(file.clone(), DraftChange::Present { content: Some(content), state: None });
        let items = content.map(present).into_iter().collect();
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: None,
            software_version: None,
            user: User::unknown(),
            time: DraftTime::Observed(time),
            object: file,
            parent: None,
            types: Vec::new(),
            description: Text::new(&description),
            items: DraftItems::Complete(items),
            report: None,
            lookup: DraftLookup::default(),
            reading: Reading::default(),
        }))
    }
}
