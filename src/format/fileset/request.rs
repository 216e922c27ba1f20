//! Requests to archive the files of a dataset: the dialect `fileset-request`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{DATASET, draft};
use crate::{
    format::{Dialect, DialectKind, DuplicateDetection, Message, ParsedMessage, Rejection, json, parse_settings},
    model::{Draft, DraftChange, ItemChange, JsonDocument, Report, State, Uri},
};

/// The dialect `fileset-request`.
pub(in crate::format) static DIALECT: DialectKind = DialectKind {
    name: "fileset-request",
    about: "requests to archive the files of a dataset, as for Sandcrawler",
    accepts: &["application/json"],
    headers: &[],
    // A second request with the same text is a new one: the dataset may have changed.
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |value, _| Ok(Box::new(parse_settings::<Requests>(value)?)),
};

/// The configured dialect, without settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests {}

/// A request to archive the files of a dataset. Results repeat it with all members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesetRequest {
    /// Kind of content, `dataset` for all its files.
    pub ingest_type: String,
    /// URL of the dataset: a landing page, or a DOI or handle as URL.
    #[serde(deserialize_with = "deserialize_dataset_url")]
    pub base_url: Uri,
    /// Program or person that requests the ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest_request_source: Option<String>,
    /// Whether an existing copy is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_recrawl: Option<bool>,
    /// Further members (`link_source`, `ext_ids`, `edit_extra`, …), which only the consumer of the result reads.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl FilesetRequest {
    /// Creates a request for a dataset.
    #[must_use]
    pub fn new(base_url: Uri, ingest_request_source: &str) -> Self {
        Self {
            ingest_type: DATASET.to_owned(),
            base_url,
            ingest_request_source: Some(ingest_request_source.to_owned()),
            force_recrawl: None,
            other: Map::new(),
        }
    }

    /// Returns the DOI of the work among its identifiers, as in `10.5281/zenodo.3459420`.
    #[must_use]
    pub fn doi(&self) -> Option<&str> {
        self.other.get("ext_ids")?.get("doi")?.as_str()
    }

    /// Returns whether the request is for all files of a dataset.
    #[must_use]
    pub fn is_for_dataset(&self) -> bool {
        self.ingest_type == DATASET
    }
}

/// Reason why a text does not name a dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not name a dataset; write an http or https URL, or a DOI as in 10.5281/zenodo.3459420")]
pub struct InvalidDataset(String);

/// Returns the URL of a dataset: the text itself, or that of a DOI (`10.…`, `doi:10.…`) or a handle (`hdl:…`).
///
/// # Errors
/// Fails if the text is neither an http or https URL nor an identifier. The error does not repeat credentials.
pub fn dataset_url(text: &str) -> Result<Uri, InvalidDataset> {
    let text = text.trim();
    let invalid = || InvalidDataset(text.split('@').next_back().unwrap_or(text).chars().take(200).collect());
    let encoded = |id: &str| percent_encoding::utf8_percent_encode(id, super::NOT_IN_PATH).to_string();
    let url = match text.split_once(':') {
        Some((scheme, id)) if scheme.eq_ignore_ascii_case("doi") => format!("https://doi.org/{}", encoded(id.trim())),
        Some((scheme, id)) if scheme.eq_ignore_ascii_case("hdl") => format!("https://hdl.handle.net/{}", encoded(id)),
        _ if text.starts_with("10.") && text.contains('/') => format!("https://doi.org/{}", encoded(text)),
        _ => text.to_owned(),
    };
    let parsed = url::Url::parse(&url).map_err(|_| invalid())?;
    let is_plain = matches!(parsed.scheme(), "http" | "https") && parsed.has_host() && parsed.password().is_none();
    if is_plain { Uri::parse(&url).map_err(|_| invalid()) } else { Err(invalid()) }
}

fn deserialize_dataset_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = String::deserialize(deserializer)?;
    dataset_url(&text).map_err(serde::de::Error::custom)
}

impl Dialect for Requests {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let request: FilesetRequest = json::read(message.body)?;
        if !request.is_for_dataset() {
            return Ok(ParsedMessage::NoChange("the request is not for a dataset"));
        }
        let change = DraftChange::Reported(ItemChange::State { before: None, after: State::REQUESTED });
        let description = format!("archiving of {} was requested", request.base_url);
        let report = JsonDocument::new(&request).ok().map(Report::Request);
        Ok(ParsedMessage::one(Draft { report, ..draft(&request, change, &description) }))
    }
}

#[cfg(test)]
mod tests {
    use super::{FilesetRequest, dataset_url};

    #[test]
    fn a_dataset_is_named_by_url_or_identifier() {
        for (text, url) in [
            ("https://zenodo.org/records/3459420", "https://zenodo.org/records/3459420"),
            ("10.5281/zenodo.3459420", "https://doi.org/10.5281/zenodo.3459420"),
            ("doi:10.5281/zenodo.3459420", "https://doi.org/10.5281/zenodo.3459420"),
            (" DOI: 10.1002/(sici)1<1>", "https://doi.org/10.1002/%28sici%291%3C1%3E"),
            ("hdl:1902.1/12345", "https://hdl.handle.net/1902.1/12345"),
        ] {
            assert_eq!(dataset_url(text).unwrap().as_str(), url);
        }
        for text in ["", "zenodo", "ftp://h/x", "https://", "https://u:secret@h/", "10.5281", "urn:x:1"] {
            let error = dataset_url(text).unwrap_err().to_string();
            assert!(error.contains("write an http or https URL") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_request_keeps_all_members() {
        let text =
            r#"{"ingest_type":"dataset","base_url":"https://h/1","ext_ids":{"doi":"10.1/x"},"link_source":"doi"}"#;
        let request: FilesetRequest = serde_json::from_str(text).unwrap();
        let written: serde_json::Value = serde_json::to_value(&request).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }
}
