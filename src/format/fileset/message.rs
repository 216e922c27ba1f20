//! Members of the result of an ingest, with the names of Sandcrawler's messages.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{
    FilesetRequest,
    public_url::{remove_secrets, remove_signature},
    status::IngestStatus,
};

/// Result of an ingest. Only `hit`, `status` and `request` are always there; the others depend on how far it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilesetResult {
    /// Whether the files are archived.
    pub hit: bool,
    /// Outcome.
    pub status: IngestStatus,
    /// Reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The request.
    pub request: FilesetRequest,
    /// URLs from the one of the request to the landing page.
    #[serde(default)]
    pub hops: Vec<String>,
    /// Landing page.
    #[serde(flatten)]
    pub landing_page: Capture,
    /// Bibliographic data of the landing page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html_biblio: Option<Map<String, Value>>,
    /// Name of the platform, as in `zenodo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_name: Option<String>,
    /// Host of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_domain: Option<String>,
    /// Identifier of the dataset at the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_id: Option<String>,
    /// URL below which the files are at the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_base_url: Option<String>,
    /// Name of the item at archive.org.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archiveorg_item_name: Option<String>,
    /// Files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Vec<ManifestFile>>,
    /// Number of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_count: Option<u64>,
    /// Sum of the known sizes, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_size: Option<u64>,
    /// Strategy of the archiving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest_strategy: Option<IngestStrategy>,
    /// URL of the archive of the whole dataset, if the gateway has archived it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_url: Option<String>,
    /// SHA-256 of the WARC file in the file store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warc_sha256: Option<String>,
    /// SHA-256 of the index of the WARC file in the file store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cdx_sha256: Option<String>,
    /// The bundle, if the files are archived in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fileset_bundle: Option<FilesetBundle>,
    /// The file, if it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fileset_file: Option<Capture>,
}

impl FilesetResult {
    /// Creates a result of which only the request and the outcome are known.
    #[must_use]
    pub fn new(request: FilesetRequest, status: IngestStatus) -> Self {
        Self {
            hit: status.is_success(),
            status,
            error_message: None,
            request,
            hops: Vec::new(),
            landing_page: Capture::default(),
            html_biblio: None,
            platform_name: None,
            platform_domain: None,
            platform_id: None,
            platform_base_url: None,
            archiveorg_item_name: None,
            manifest: None,
            file_count: None,
            total_size: None,
            ingest_strategy: None,
            archive_url: None,
            warc_sha256: None,
            cdx_sha256: None,
            fileset_bundle: None,
            fileset_file: None,
        }
    }
}

impl FilesetResult {
    /// Returns the SHA-256 of each file that was downloaded: the bundle, or else all files. `None` for one without it.
    #[must_use]
    pub fn downloaded_sha256(&self) -> Vec<Option<&str>> {
        let bundle = self.fileset_bundle.as_ref().and_then(|bundle| bundle.capture.file_meta.as_ref());
        match bundle {
            Some(meta) => vec![Some(&meta.sha256hex)],
            None => self.manifest.iter().flatten().map(|file| file.sha256.as_deref()).collect(),
        }
    }

    /// Returns the result without credentials in URLs, and without SHA-1s that are the MD5. URLs of the list keep a query
    /// that is no signature, because it can name the file.
    #[must_use]
    pub fn publishable(&self) -> Self {
        let mut result = self.clone();
        result.hops.iter_mut().for_each(remove_secrets);
        result.landing_page.remove_secrets();
        for file in result.manifest.iter_mut().flatten() {
            [&mut file.platform_url, &mut file.archive_url].into_iter().flatten().for_each(remove_signature);
            let is_listed = file.terminal_url == file.platform_url;
            file.terminal_url.iter_mut().filter(|_| !is_listed).for_each(remove_secrets);
            file.sha1 = file.sha1.take().filter(|sha1| file.md5.as_ref() != Some(sha1));
        }
        if let Some(bundle) = &mut result.fileset_bundle {
            bundle.capture.remove_secrets();
        }
        if let Some(file) = &mut result.fileset_file {
            file.remove_secrets();
        }
        result
    }
}

impl Capture {
    fn remove_secrets(&mut self) {
        self.terminal.iter_mut().for_each(|terminal| remove_secrets(&mut terminal.terminal_url));
        [&mut self.cdx, &mut self.revisit_cdx]
            .into_iter()
            .flatten()
            .for_each(|line| [&mut line.url, &mut line.surt].into_iter().for_each(remove_secrets));
    }
}

/// A file of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path in the dataset.
    pub path: String,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// MD5 in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// SHA-1 in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// SHA-256 in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SHA-512 in hexadecimal, if the platform lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha512: Option<String>,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimetype: Option<String>,
    /// Further facts of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Map<String, Value>>,
    /// Outcome for this file; absent if nothing was attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IngestStatus>,
    /// URL at the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_url: Option<String>,
    /// URL after all redirections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_url: Option<String>,
    /// Time of the response in UTC, as `YYYYMMDDhhmmss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_dt: Option<String>,
    /// URL of the copy, if the gateway has archived it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_url: Option<String>,
}

impl ManifestFile {
    /// Returns whether the entry has a digest.
    #[must_use]
    pub fn has_digest(&self) -> bool {
        [&self.md5, &self.sha1, &self.sha256, &self.sha512].into_iter().any(Option::is_some)
    }
}

named_values! {
    /// Strategy of the archiving of a dataset: the storage, the kind of record in the catalogue, and whether one file
    /// encloses the others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum IngestStrategy {
        /// A single file in a web archive.
        WebFile = "web-file",
        /// Several files in a web archive.
        WebFileset = "web-fileset",
        /// One bundle with all files in a web archive.
        WebFilesetBundled = "web-fileset-bundled",
        /// A single file in an item of archive.org.
        ArchiveorgFile = "archiveorg-file",
        /// Several files in an item of archive.org.
        ArchiveorgFileset = "archiveorg-fileset",
        /// One bundle with all files in an item of archive.org.
        ArchiveorgFilesetBundled = "archiveorg-fileset-bundled",
    }
}

impl IngestStrategy {
    /// Returns whether the files are in a web archive.
    #[must_use]
    pub fn is_web(self) -> bool {
        matches!(self, Self::WebFile | Self::WebFileset | Self::WebFilesetBundled)
    }

    /// Returns whether one file encloses the others.
    #[must_use]
    pub fn is_bundled(self) -> bool {
        matches!(self, Self::WebFilesetBundled | Self::ArchiveorgFilesetBundled)
    }

    /// Returns the strategy for several files that are not enclosed.
    #[must_use]
    pub fn unbundled(self) -> Self {
        match self {
            Self::WebFilesetBundled => Self::WebFileset,
            Self::ArchiveorgFilesetBundled => Self::ArchiveorgFileset,
            other => other,
        }
    }

    /// Returns whether the dataset is a single file.
    #[must_use]
    pub fn is_file(self) -> bool {
        matches!(self, Self::WebFile | Self::ArchiveorgFile)
    }
}

/// A response and its record in a web archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// The response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Facts about the body.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "one_or_first")]
    pub file_meta: Option<FileMeta>,
    /// Line of the index of the web archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cdx: Option<CdxLine>,
    /// Line of the index for a record that repeats an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisit_cdx: Option<CdxLine>,
}

/// A bundle with all files of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilesetBundle {
    /// Its response and record.
    #[serde(flatten)]
    pub capture: Capture,
    /// Path in the item at archive.org.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archiveorg_bundle_path: Option<String>,
    /// The first members that the manifest does not have, such as a description of the bundle. They are not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted_members: Vec<String>,
}

/// The response after all redirections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// URL.
    pub terminal_url: String,
    /// Time in UTC, as `YYYYMMDDhhmmss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_dt: Option<String>,
    /// HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_status_code: Option<u16>,
    /// SHA-1 of the body in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_sha1hex: Option<String>,
}

/// Facts about the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMeta {
    /// Size in bytes.
    pub size_bytes: u64,
    /// MD5 in hexadecimal.
    pub md5hex: String,
    /// SHA-1 in hexadecimal.
    pub sha1hex: String,
    /// SHA-256 in hexadecimal.
    pub sha256hex: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimetype: Option<String>,
}

/// Line of the index of a web archive (CDX).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdxLine {
    /// Sort-friendly form of the URL.
    pub surt: String,
    /// Time in UTC, as `YYYYMMDDhhmmss`.
    pub datetime: String,
    /// URL.
    pub url: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimetype: Option<String>,
    /// HTTP status; `None` for a record that repeats an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// SHA-1 of the body in Base32.
    pub sha1b32: String,
    /// SHA-1 of the body in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha1hex: Option<String>,
    /// Size of the record in the WARC file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warc_csize: Option<u64>,
    /// Position of the record in the WARC file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warc_offset: Option<u64>,
    /// Path of the WARC file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warc_path: Option<String>,
}

/// Reads a value, or the first one of a list: Sandcrawler wraps the `file_meta` of a single web file in a list.
fn one_or_first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<FileMeta>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrList {
        One(FileMeta),
        List(Vec<FileMeta>),
    }
    Ok(match Option::<OneOrList>::deserialize(deserializer)? {
        None => None,
        Some(OneOrList::One(meta)) => Some(meta),
        Some(OneOrList::List(list)) => list.into_iter().next(),
    })
}
