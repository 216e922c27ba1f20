//! Results of downloads: a copy of the content of an item, or the reason why there is none.
//!
//! * The object and the item are those that a source has reported. The content becomes the copy, which names its
//!   original.
//! * Without a copy the item gets the state `UNAVAILABLE`, unless its source has given it another one. A later copy makes
//!   it `ACTIVE` again.
//! * A result for content that the registry no longer has changes nothing.
//! * The time is that of the change with the original content, because the copy is a consequence of that change.

use serde::{Deserialize, Serialize};

use super::{Dialect, DialectKind, DuplicateDetection, Location, Message, ParsedMessage, Rejection, parse_settings};
use crate::model::{
    ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime, NonEmpty, OriginalContent,
    Reading, Text, Timestamp, Uri, User,
};

/// The dialect `download`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "download",
    about: "results of downloads, which the gateway makes itself",
    accepts: &["application/json"],
    headers: &[],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, _| Ok(Box::new(parse_settings::<Download>(value)?)),
};

/// The configured dialect, without settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Download {}

/// Result of the download of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DownloadResult {
    /// URI of the object.
    pub object: Uri,
    /// URI of the item.
    pub item: Uri,
    /// Time of the change with the original content.
    pub time: Timestamp,
    /// The content as its source reported it.
    pub original: OriginalContent,
    /// The copy, without its original; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<ContentLocation>,
    /// Reason why there is no copy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Dialect for Download {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let result: DownloadResult = serde_json::from_slice(message.body).map_err(|error| {
            Rejection::malformed(Location::Message, format!("this is not the result of a download: {error}"))
        })?;
        let DownloadResult { object, item, time, original, copy, reason } = result;
        let url = &original.url;
        let description = match &copy {
            Some(_) => format!("copy of {url}"),
            None => format!("no copy of {url}: {reason}"),
        };
        let copy = copy.map(|copy| ContentLocation { original: Some(Box::new(original.clone())), ..copy });
        let item = DraftItem::new(item, DraftChange::Copied { original, copy });
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: None,
            software_version: None,
            user: User::unknown(),
            time: DraftTime::Observed(time),
            object,
            parent: None,
            types: Vec::new(),
            description: Text::new(&description),
            items: DraftItems::Listed(NonEmpty::one(item)),
            report: None,
            lookup: DraftLookup::default(),
            reading: Reading::default(),
        }))
    }
}
