//! Items of archive.org: uploads by its S3-like interface, and comparisons by its metadata.
//!
//! A file that the item has is not uploaded again, so an upload that broke off continues with the first missing file. A file
//! that the item has with other content is never replaced.

mod metadata;

use std::{collections::HashMap, time::Duration};

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use chrono::Utc;
use futures_util::StreamExt;
use serde::Deserialize;
use url::Url;

use super::{
    ArchiveKeys, IngestFailure, PlatformClient, RetryRule,
    archived_file::ArchivedFile,
    client::named,
    json::{self, List, Number, Text, TextOr, Texts},
    platform::{Dataset, PlatformFile, below},
};
use crate::{
    files::{FileDigest, FileStore},
    format::fileset::{message::ManifestFile, status::IngestStatus},
    http_client::{BoundedResponse, Client, RequestHeaders, is_transient, rate_limit_reset},
};

/// Maximum number of attempts to upload a file, and of checks of the load of the service.
const ATTEMPTS: usize = 10;

/// Maximum number of checks whether the item has the uploaded files, which it shows later.
const VERIFICATIONS: usize = 12;

/// Longest wait that the service can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Maximum size of the description of the load, in bytes.
const MAX_LOAD_BYTES: usize = 8 * 1024;

/// Settings of uploads.
#[derive(Clone, Debug)]
pub struct ItemSettings {
    /// Base URL of the S3-like interface.
    pub s3: Url,
    /// Keys of the user.
    pub keys: ArchiveKeys,
    /// Collection of the items.
    pub collection: String,
    /// Wait if the service is busy and does not say for how long.
    pub busy: Duration,
    /// Wait between two checks of the uploaded files.
    pub verification: Duration,
}

/// The items, and the clients for them.
pub(super) struct Items<'a> {
    pub(super) settings: &'a ItemSettings,
    /// Base URL of archive.org, with the metadata of the items.
    pub(super) archiveorg: &'a Url,
    pub(super) client: &'a PlatformClient,
    pub(super) uploads: &'a Client,
    pub(super) store: &'a FileStore,
}

/// A file for an item.
#[derive(Clone, Debug)]
pub(super) struct ItemFile {
    pub(super) path: String,
    pub(super) digest: FileDigest,
    pub(super) size: u64,
    pub(super) md5: String,
    pub(super) sha1: String,
    pub(super) media_type: Option<String>,
}

impl ItemFile {
    /// Creates the file of an item from a stored one.
    pub(super) fn new(path: &str, file: &ArchivedFile) -> Self {
        let ManifestFile { md5, sha1, mimetype, .. } = file.manifest.clone();
        let (digest, size) = (file.stored.digest, file.stored.size);
        let (md5, sha1) = (md5.unwrap_or_default(), sha1.unwrap_or_default());
        Self { path: path.to_owned(), digest, size, md5, sha1, media_type: mimetype }
    }
}

/// Failure of an upload, with the numbers of the files that it concerns.
pub(super) struct ItemFailure {
    pub(super) files: Vec<usize>,
    pub(super) failure: IngestFailure,
}

impl From<IngestFailure> for ItemFailure {
    fn from(failure: IngestFailure) -> Self {
        Self { files: Vec::new(), failure }
    }
}

/// Files of an item by their paths.
type KnownFiles = HashMap<String, KnownFile>;

/// Documents of archive.org.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<ItemMetadata>, json::is::<Load>];

#[derive(Deserialize)]
struct ItemMetadata {
    #[serde(default)]
    is_dark: bool,
    #[serde(default)]
    files: Option<List<KnownFile>>,
    #[serde(default)]
    metadata: TextOr<ItemFacts>,
}

/// Metadata of an item.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemFacts {
    #[serde(rename = "external-identifier")]
    identifiers: Texts,
}

/// A file of an item.
#[derive(Deserialize)]
struct KnownFile {
    name: String,
    #[serde(default)]
    size: Number,
    #[serde(default)]
    md5: Option<String>,
    #[serde(default)]
    sha1: Option<String>,
}

impl KnownFile {
    /// Returns whether it is a file with these facts; `None` if that cannot be known.
    fn is(&self, size: Option<u64>, md5: Option<&str>, sha1: Option<&str>) -> Option<bool> {
        if size? != self.size.0? {
            return Some(false);
        }
        let is_same =
            |known: &Option<String>, other: Option<&str>| Some(known.as_deref()?.eq_ignore_ascii_case(other?));
        is_same(&self.sha1, sha1).or_else(|| is_same(&self.md5, md5))
    }
}

/// Load of the service.
#[derive(Deserialize)]
struct Load {
    over_limit: Text,
}

impl Items<'_> {
    /// Returns the manifest of a dataset if the item has all its files already.
    pub(super) async fn existing(&self, dataset: &Dataset) -> Result<Option<Vec<ManifestFile>>, IngestFailure> {
        let known = self.files(&dataset.archiveorg_item_name, dataset).await?;
        let entry = |PlatformFile { manifest, .. }: &PlatformFile| {
            let found = known.get(&manifest.path)?;
            let is_same = found.is(manifest.size, manifest.md5.as_deref(), manifest.sha1.as_deref())?;
            is_same.then(|| ManifestFile {
                md5: manifest.md5.clone().or(found.md5.clone()),
                sha1: manifest.sha1.clone().or(found.sha1.clone()),
                status: Some(IngestStatus::EXISTS),
                archive_url: Some(self.url(&dataset.archiveorg_item_name, &manifest.path)),
                ..manifest.clone()
            })
        };
        Ok(dataset.files.iter().map(entry).collect())
    }

    /// Uploads the files that the item does not have, and waits until it has all of them. Returns which ones it had before.
    pub(super) async fn upload(
        &self,
        item: &str,
        files: &[ItemFile],
        dataset: &Dataset,
        source: &Url,
    ) -> Result<Vec<bool>, ItemFailure> {
        let known = self.files(item, dataset).await?;
        let is_same = |file: &ItemFile| {
            known.get(&file.path)?.is(Some(file.size), Some(file.md5.as_str()), Some(file.sha1.as_str()))
        };
        let other: Vec<_> = (0..files.len()).filter(|at| is_same(&files[*at]) == Some(false)).collect();
        if let Some(first) = other.first() {
            let message = format!("the item {item} has another {}", files[*first].path);
            let failure = IngestFailure::permanent(IngestStatus::MISMATCH_EXISTING, message);
            return Err(ItemFailure { files: other, failure });
        }
        let existing: Vec<_> = files.iter().map(|file| is_same(file) == Some(true)).collect();
        let missing = || files.iter().enumerate().filter(|(index, _)| !existing[*index]);
        let total = missing().map(|(_, file)| file.size).sum();
        let mut is_new = known.is_empty();
        for (index, file) in missing() {
            let metadata =
                if is_new { metadata::headers(dataset, &self.settings.collection, source) } else { Vec::new() };
            let uploaded = self.put(item, file, total, &metadata).await;
            uploaded.map_err(|failure| ItemFailure { files: vec![index], failure })?;
            is_new = false;
        }
        if missing().next().is_some() {
            self.verify(item, files, dataset).await?;
        }
        Ok(existing)
    }

    /// Returns the URL of a file of an item.
    pub(super) fn url(&self, item: &str, path: &str) -> String {
        below(self.archiveorg, ["download", item].into_iter().chain(path.split('/'))).into()
    }

    /// Returns the files of an item. It has none if it does not exist.
    ///
    /// # Errors
    /// Fails if the item is one of another dataset. Items of earlier versions of the program do not name theirs.
    async fn files(&self, item: &str, dataset: &Dataset) -> Result<KnownFiles, IngestFailure> {
        let place = below(self.archiveorg, ["metadata", item]);
        let answer = self.client.json::<ItemMetadata>(&place, None).await;
        let ItemMetadata { is_dark, files, metadata } =
            answer.map_err(|failure| IngestFailure { status: IngestStatus::ERROR_ARCHIVEORG_UPLOAD, ..failure })?;
        if is_dark {
            return Err(IngestFailure::permanent(
                IngestStatus::ERROR_ARCHIVEORG_UPLOAD,
                format!("the item {item} is not public"),
            ));
        }
        let owners = metadata.object().unwrap_or_default().identifiers.0.into_iter();
        let mut owners = owners.filter(|owner| owner.starts_with(metadata::OWNER)).peekable();
        let own = metadata::owner(dataset);
        if let Some(other) = owners.peek().cloned()
            && owners.all(|owner| owner != own)
        {
            let message = format!("the item {item} is of {other}, and not of {own}");
            return Err(IngestFailure::permanent(IngestStatus::MISMATCH_EXISTING, message));
        }
        Ok(files.into_iter().flatten().map(|file| (file.name.clone(), file)).collect())
    }

    /// Waits until the item has all files.
    async fn verify(&self, item: &str, files: &[ItemFile], dataset: &Dataset) -> Result<(), ItemFailure> {
        let mut missing = Vec::new();
        for verification in 0..VERIFICATIONS {
            if verification > 0 {
                tokio::time::sleep(self.settings.verification).await;
            }
            let known = self.files(item, dataset).await?;
            let is_there = |file: &ItemFile| {
                let is_same =
                    known.get(&file.path)?.is(Some(file.size), Some(file.md5.as_str()), Some(file.sha1.as_str()));
                is_same.filter(|is_same| *is_same)
            };
            missing = (0..files.len()).filter(|at| is_there(&files[*at]).is_none()).collect();
            if missing.is_empty() {
                return Ok(());
            }
        }
        let (count, all) = (missing.len(), files.len());
        let failure = upload_failure(format!("the item {item} does not show {count} of {all} uploaded files yet"));
        Err(ItemFailure { files: missing, failure })
    }

    /// Uploads a file, and waits while the service is busy.
    async fn put(
        &self,
        item: &str,
        file: &ItemFile,
        total: u64,
        metadata: &[(HeaderName, HeaderValue)],
    ) -> Result<(), IngestFailure> {
        let place = below(&self.settings.s3, std::iter::once(item).chain(file.path.split('/')));
        let target = self
            .client
            .target(&place)
            .map_err(|reason| IngestFailure { retry: RetryRule::AfterFix, ..upload_failure(reason) })?;
        let mut reason = String::new();
        for attempt in 0..ATTEMPTS {
            let mut permit = self.client.hosts.permit(&target.origin()).await;
            if self.is_over_limit(item).await {
                "the service is over its limit".clone_into(&mut reason);
                permit.pause(self.settings.busy);
                continue;
            }
            let missing = || upload_failure(format!("the file {} is missing in the store", file.digest));
            let content =
                self.store.read(file.digest, None).await.map_err(|error| upload_failure(error.to_string()))?;
            let pieces = content.ok_or_else(missing)?.pieces.map(|piece| piece.map_err(std::io::Error::other)).boxed();
            let headers = self.headers(file, total, metadata);
            let answer = self.uploads.put(&target, headers, pieces).await;
            let wait = match answer {
                Ok(BoundedResponse { status, .. }) if status.is_success() => return Ok(()),
                Ok(BoundedResponse { status, headers, body_start, .. }) => {
                    let code = error_code(&body_start);
                    reason = format!("{} answers {status}{code}", named(&place));
                    if !is_transient(status) {
                        return Err(IngestFailure { retry: RetryRule::AfterFix, ..upload_failure(reason) });
                    }
                    rate_limit_reset(&headers, Utc::now())
                }
                Err(error) => {
                    reason = format!("{}: {error}", named(&place));
                    None
                }
            };
            if attempt + 1 < ATTEMPTS {
                permit.pause(wait.unwrap_or(self.settings.busy).min(LONGEST_WAIT));
            }
        }
        Err(upload_failure(format!("{} is not uploaded after {ATTEMPTS} attempts: {reason}", file.path)))
    }

    /// Returns whether the service accepts no upload now. It accepts one if it does not say.
    async fn is_over_limit(&self, item: &str) -> bool {
        let mut url = self.settings.s3.clone();
        let access = self.settings.keys.access();
        url.query_pairs_mut().extend_pairs([("check_limit", "1"), ("accesskey", access), ("bucket", item)]);
        let Ok(target) = self.client.target(&url) else { return false };
        let answer = async {
            let Ok(response) = self.client.client.open(&target, HeaderMap::new()).await else { return Ok(false) };
            if response.status == StatusCode::SERVICE_UNAVAILABLE {
                return Ok(true);
            }
            let Ok(body) = self.client.receive(response, MAX_LOAD_BYTES).await else { return Ok(false) };
            let is_over = |load: Load| load.over_limit.0.is_some_and(|text| !matches!(text.as_str(), "0" | "false"));
            Ok(matches!(self.client.read_json(body, MAX_LOAD_BYTES, is_over).await, Ok(Ok(true))))
        };
        self.client.exchange(&url, IngestStatus::PLATFORM_ERROR, answer).await.unwrap_or(false)
    }

    fn headers(&self, file: &ItemFile, total: u64, metadata: &[(HeaderName, HeaderValue)]) -> RequestHeaders {
        let mut headers = HeaderMap::from_iter([
            (CONTENT_LENGTH, HeaderValue::from(file.size)),
            (HeaderName::from_static("x-archive-auto-make-bucket"), HeaderValue::from_static("1")),
            (HeaderName::from_static("x-archive-queue-derive"), HeaderValue::from_static("0")),
            (HeaderName::from_static("x-archive-size-hint"), HeaderValue::from(total)),
        ]);
        let md5 = HeaderValue::try_from(&file.md5).ok();
        headers.extend(md5.map(|md5| (HeaderName::from_static("content-md5"), md5)));
        let media_type = file.media_type.as_ref().and_then(|text| HeaderValue::try_from(text).ok());
        headers.extend(media_type.map(|media_type| (CONTENT_TYPE, media_type)));
        headers.extend(metadata.iter().cloned());
        let authorization = self.settings.keys.authorization(&self.settings.s3);
        RequestHeaders::from(headers).with_authorization(authorization.as_ref())
    }
}

fn upload_failure(message: impl Into<String>) -> IngestFailure {
    IngestFailure::transient(IngestStatus::ERROR_ARCHIVEORG_UPLOAD, message)
}

/// Returns the code of an error in XML, as in `SlowDown`.
fn error_code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let code = code.filter(|code| code.len() < 100 && code.bytes().all(|b| b.is_ascii_alphanumeric()));
    code.map_or_else(String::new, |code| format!(" ({code})"))
}

#[cfg(test)]
mod tests {
    use super::{KnownFile, Number, error_code};

    #[test]
    fn files_are_compared_by_size_and_digest() {
        let known = |size: Option<u64>, md5: Option<&str>, sha1: Option<&str>| KnownFile {
            name: "a".to_owned(),
            size: Number(size),
            md5: md5.map(str::to_owned),
            sha1: sha1.map(str::to_owned),
        };
        for (known, expected) in [
            (known(Some(3), Some("0A"), Some("0b")), Some(true)),
            (known(Some(3), Some("0a"), None), Some(true)),
            (known(Some(3), Some("0a"), Some("ff")), Some(false)),
            (known(Some(4), Some("0a"), Some("0b")), Some(false)),
            (known(Some(3), None, None), None),
            (known(None, Some("0a"), Some("0b")), None),
        ] {
            assert_eq!(known.is(Some(3), Some("0a"), Some("0b")), expected);
        }
    }

    #[test]
    fn codes_of_errors_are_read() {
        assert_eq!(error_code(b"<Error><Code>SlowDown</Code></Error>"), " (SlowDown)");
        assert_eq!(error_code(b"<Code>a b</Code>") + &error_code(b"no"), "");
    }
}
