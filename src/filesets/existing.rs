//! Files that an earlier ingest has archived, and that therefore are not downloaded again.

use axum::http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use chrono::NaiveDateTime;
use futures_util::TryStreamExt;
use md5::{Digest, Md5};
use serde_json::Value;
use sha1::Sha1;

use super::{
    archived_file::ArchivedFile,
    platform::{Dataset, PlatformFile},
};
use crate::{
    files::{FileDigest, FileStore, FileStoreError, StoredFile},
    format::fileset::{
        message::{FilesetResult, ManifestFile},
        status::IngestStatus,
    },
    model::Timestamp,
};

/// Files in the store, and the newest result for the dataset.
#[derive(Clone, Copy)]
pub(super) struct ExistingFiles<'a> {
    pub(super) previous: Option<&'a FilesetResult>,
    pub(super) store: &'a FileStore,
}

impl<'a> ExistingFiles<'a> {
    /// Returns the previous result if it has archived the same files, and the store still has them.
    pub(super) async fn result(self, dataset: &Dataset) -> Result<Option<&'a FilesetResult>, FileStoreError> {
        let Some(previous) = self.previous.filter(|previous| previous.hit) else { return Ok(None) };
        let manifest = previous.manifest.as_deref().unwrap_or_default();
        let is_same = manifest.len() == dataset.files.len()
            && dataset.files.iter().all(|file| entry_of(manifest, file).is_some());
        if !is_same {
            return Ok(None);
        }
        let archives = [&previous.warc_sha256, &previous.cdx_sha256].into_iter().flatten();
        let archives = archives.map(|digest| Some(digest.as_str()));
        for digest in previous.downloaded_sha256().into_iter().chain(archives) {
            let Some(digest) = digest.and_then(FileDigest::parse) else { return Ok(None) };
            if self.store.size(digest).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(previous))
    }

    /// Returns the file of the store with the figures of the platform.
    pub(super) async fn file(self, file: &PlatformFile) -> Result<Option<ArchivedFile>, FileStoreError> {
        let manifest = self.previous.and_then(|previous| previous.manifest.as_deref()).unwrap_or_default();
        let entry = match entry_of(manifest, file) {
            Some(entry) => entry.clone(),
            // Another dataset may have the same file.
            None => file.manifest.clone(),
        };
        let Some(digest) = entry.sha256.as_deref().and_then(FileDigest::parse) else { return Ok(None) };
        let Some(size) = self.store.size(digest).await? else { return Ok(None) };
        if entry.size.is_some_and(|expected| expected != size) {
            return Ok(None);
        }
        let (md5, sha1) = match (&entry.md5, &entry.sha1) {
            (Some(md5), Some(sha1)) => (md5.clone(), sha1.clone()),
            _ => self.digests(digest).await?,
        };
        let time = entry.terminal_dt.as_deref().and_then(time_of).unwrap_or_else(Timestamp::now);
        let header = entry.mimetype.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        let headers = header.map(|value| (CONTENT_TYPE, value)).into_iter().collect::<HeaderMap>();
        let manifest = ManifestFile {
            size: Some(size),
            md5: Some(md5),
            sha1: Some(sha1),
            platform_url: file.manifest.platform_url.clone(),
            terminal_url: entry.terminal_url.clone().or_else(|| file.manifest.platform_url.clone()),
            terminal_dt: Some(time.datetime().format(TIME).to_string()),
            status: Some(IngestStatus::EXISTS),
            ..entry
        };
        let stored = StoredFile { digest, size, media_type: None, is_new: false };
        Ok(Some(ArchivedFile { manifest, stored, headers, time, redirections: Vec::new() }))
    }

    /// Reads a file of the store, and returns its MD5 and SHA-1.
    async fn digests(self, digest: FileDigest) -> Result<(String, String), FileStoreError> {
        let (mut md5, mut sha1) = (Md5::new(), Sha1::new());
        if let Some(mut content) = self.store.read(digest, None).await? {
            while let Some(piece) = content.pieces.try_next().await? {
                md5.update(&piece);
                sha1.update(&piece);
            }
        }
        Ok((hex::encode(md5.finalize()), hex::encode(sha1.finalize())))
    }
}

/// Time of a response, as in `20260102030405`.
const TIME: &str = "%Y%m%d%H%M%S";

fn time_of(text: &str) -> Option<Timestamp> {
    Some(Timestamp::from_datetime(NaiveDateTime::parse_from_str(text, TIME).ok()?.and_utc()))
}

/// Returns the archived entry of a file, if its figures are those of the platform. One digest must agree, because a file
/// may change without its size.
fn entry_of<'m>(manifest: &'m [ManifestFile], file: &PlatformFile) -> Option<&'m ManifestFile> {
    let entry = manifest.iter().find(|entry| entry.path == file.manifest.path)?;
    let platform = &file.manifest;
    let (noted_size, noted_md5) = noted_figures(entry);
    let is_equal = |platform: &Option<String>, archived: Option<&str>| {
        platform.as_deref().map(|digest| archived.is_some_and(|archived| archived.eq_ignore_ascii_case(digest)))
    };
    let digests = [
        is_equal(&platform.md5, noted_md5),
        is_equal(&platform.sha1, entry.sha1.as_deref()),
        is_equal(&platform.sha256, entry.sha256.as_deref()),
        is_equal(&platform.sha512, entry.sha512.as_deref()),
    ];
    let is_size_equal = platform.size.is_none_or(|size| noted_size == Some(size));
    let is_same = is_size_equal && !digests.contains(&Some(false)) && digests.contains(&Some(true));
    is_same.then_some(entry)
}

/// Returns the size and the MD5 of an archived file in the platform's list. They are noted apart if they are known to be those
/// of another form of the file.
fn noted_figures(entry: &ManifestFile) -> (Option<u64>, Option<&str>) {
    let noted = |name: &str| entry.extra.as_ref()?.get(&format!("platform_{name}"));
    let size = noted("size").and_then(Value::as_u64).or(entry.size);
    (size, noted("md5").and_then(Value::as_str).or(entry.md5.as_deref()))
}

/// Returns the members of the content of an archived file that contradict the present list of its platform. A figure that only
/// one of the two has is no contradiction.
pub(super) fn contradictions(entry: &ManifestFile, platform: &ManifestFile) -> Vec<&'static str> {
    let (noted_size, noted_md5) = noted_figures(entry);
    let is_other_size = platform.size.zip(noted_size).is_some_and(|(told, noted)| told != noted);
    let digests = [
        (platform.md5.as_deref(), noted_md5),
        (platform.sha1.as_deref(), entry.sha1.as_deref()),
        (platform.sha256.as_deref(), entry.sha256.as_deref()),
        (platform.sha512.as_deref(), entry.sha512.as_deref()),
    ];
    let is_other =
        |(told, noted): (Option<&str>, Option<&str>)| told.zip(noted).is_some_and(|(a, b)| !a.eq_ignore_ascii_case(b));
    let members = [("content.size", is_other_size), ("content.digest", digests.into_iter().any(is_other))];
    members.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ManifestFile, PlatformFile, contradictions, entry_of};

    fn entry(members: serde_json::Value) -> ManifestFile {
        serde_json::from_value(members).unwrap()
    }

    #[test]
    fn entry_is_the_same_if_a_digest_agrees_and_nothing_contradicts() {
        let archived = [entry(json!({
            "path": "a", "size": 5, "md5": "0a", "sha1": "0b", "sha256": "0c", "sha512": "0d",
        }))];
        for (platform, is_same) in [
            (json!({ "path": "a", "md5": "0A" }), true),
            (json!({ "path": "a", "size": 5, "sha256": "0c" }), true),
            (json!({ "path": "a", "sha512": "0D" }), true),
            (json!({ "path": "a", "md5": "0a", "sha512": "ff" }), false),
            (json!({ "path": "a", "size": 5 }), false),
            (json!({ "path": "a", "size": 6, "md5": "0a" }), false),
            (json!({ "path": "a", "md5": "0a", "sha1": "ff" }), false),
            (json!({ "path": "b", "md5": "0a" }), false),
        ] {
            let file = PlatformFile::new(entry(platform.clone()));
            assert_eq!(entry_of(&archived, &file).is_some(), is_same, "{platform}");
        }
    }

    #[test]
    fn figures_contradict_each_other_if_both_are_known() {
        let archived = entry(json!({ "path": "a", "size": 5, "md5": "0a", "sha256": "0c" }));
        for (platform, members) in [
            (json!({ "path": "a" }), &[][..]),
            (json!({ "path": "a", "size": 5, "md5": "0A", "sha512": "ff" }), &[]),
            (json!({ "path": "a", "size": 6 }), &["content.size"]),
            (json!({ "path": "a", "md5": "0a", "sha256": "ff" }), &["content.digest"]),
            (json!({ "path": "a", "size": 6, "md5": "ff" }), &["content.size", "content.digest"]),
        ] {
            assert_eq!(contradictions(&archived, &entry(platform.clone())), members, "{platform}");
        }
        let other_form = entry(json!({ "path": "a", "size": 9, "md5": "0a", "extra": { "platform_size": 5 } }));
        assert!(contradictions(&other_form, &entry(json!({ "path": "a", "size": 5 }))).is_empty());
    }

    #[test]
    fn figures_of_another_form_are_compared_with_those_of_the_platform() {
        let archived = [entry(json!({
            "path": "t.csv", "size": 9, "md5": "0a", "extra": { "platform_size": 5, "platform_md5": "ff" },
        }))];
        let soft = |md5: &str| PlatformFile {
            is_soft: true,
            ..PlatformFile::new(entry(json!({ "path": "t.csv", "size": 5, "md5": md5 })))
        };
        assert!(entry_of(&archived, &soft("ff")).is_some());
        assert!(entry_of(&archived, &soft("0a")).is_none());
    }
}
