//! Platforms that host datasets. Each knows its landing pages, and reads the list of the files from its interface.
//!
//! To add a platform, add a module and list it in [`PLATFORMS`].

mod archiveorg;
pub(super) mod bagit;
mod datacite;
mod dataverse;
mod dryad;
mod figshare;
mod invenio;
mod item_name;
mod linkset;
mod osf;
pub(super) mod paths;
mod settings;
mod signposting;
mod strategy;
mod tokens;

use self::item_name::{former_name, item_name, item_name_of_page};
pub use self::{
    settings::PlatformSettings,
    strategy::Thresholds,
    tokens::{InvalidTokenPlace, TokenPlace},
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use url::Url;

use super::{
    IngestFailure, LandingPage, PlatformClient, RetryRule,
    archived_file::ArchivedFile,
    client::named,
    json::{MAX_ENTRIES, Reads},
};
use crate::format::fileset::{
    message::{FilesetResult, IngestStrategy, ManifestFile},
    status::IngestStatus,
};

/// Name of the platform archive.org.
pub(super) const ARCHIVE_ORG: &str = archiveorg::NAME;

/// All platforms. The first one that recognizes a landing page reads it.
pub static PLATFORMS: &[&dyn PlatformHelper] = &[
    &dataverse::Dataverse,
    &figshare::Figshare,
    &invenio::Invenio,
    &archiveorg::ArchiveOrg,
    &dryad::Dryad,
    &osf::Osf,
    &bagit::Bag,
    &signposting::Signposting,
    &datacite::DataCite,
];

/// Documents of all platforms.
pub(super) static DOCUMENTS: &[&[Reads]] = &[
    dataverse::DOCUMENTS,
    figshare::DOCUMENTS,
    invenio::DOCUMENTS,
    invenio::files::DOCUMENTS,
    archiveorg::DOCUMENTS,
    dryad::DOCUMENTS,
    osf::DOCUMENTS,
    signposting::DOCUMENTS,
    linkset::DOCUMENTS,
    datacite::DOCUMENTS,
];

/// A platform.
pub trait PlatformHelper: Send + Sync {
    /// Returns the name of the platform in results.
    fn name(&self) -> &'static str;

    /// Returns what the platform recognizes a dataset by.
    fn recognizes_by(&self) -> Recognition {
        Recognition::Url
    }

    /// Returns whether a landing page is one of this platform, even if it is none of a dataset.
    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool;

    /// Reads the dataset of a landing page from the interface of the platform.
    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>>;

    /// Chooses how the files of a dataset are archived.
    fn strategy(&self, dataset: &Dataset, thresholds: &Thresholds) -> IngestStrategy {
        thresholds.choose(dataset)
    }
}

/// Evidence by which a platform recognizes a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognition {
    /// The URL of a page, whatever its content.
    Url,
    /// The content of the page.
    Page,
    /// An identifier on the way to the page.
    Identifier,
}

/// Reads the dataset of a landing page from the platform that recognizes it: by the URL of the page, by its content, by an
/// earlier URL on the way to it, the newest one first, or by an identifier. So a challenge or a loop after the URL of a
/// known platform does not matter.
///
/// # Errors
/// Fails with `no-platform-match`, with the failure of the landing page, with the one of the platform, or with
/// `platform-scope` for a URL of an interface.
pub async fn dataset_of(
    page: &LandingPage,
    settings: &PlatformSettings,
    client: &PlatformClient,
) -> Result<(&'static dyn PlatformHelper, Dataset), IngestFailure> {
    let is_interface = settings.has_interface_at(&page.url);
    let earlier = page.hops.iter().rev().filter(|hop| **hop != page.url).map(|hop| page.at(hop.clone()));
    let steps = std::iter::once((Recognition::Url, page.clone()))
        .chain([(Recognition::Page, page.clone())])
        .chain(earlier.map(|page| (Recognition::Url, page)))
        .chain([(Recognition::Identifier, page.clone())]);
    // The document of an interface is none of the files of a dataset.
    let steps = steps.filter(|(recognition, _)| !is_interface || *recognition != Recognition::Page);
    for (recognition, page) in steps {
        let mut platforms = PLATFORMS.iter().filter(|platform| platform.recognizes_by() == recognition);
        let Some(platform) = platforms.find(|platform| platform.matches(&page, settings)) else { continue };
        match platform.dataset(&page, settings, client).await {
            // A page that seemed to name files names none.
            Err(failure) if failure.status == IngestStatus::NO_PLATFORM_MATCH => {}
            Err(failure) => return Err(failure),
            Ok(mut dataset) => {
                paths::separate(&mut dataset.files);
                dataset.bound()?;
                return Ok((*platform, dataset));
            }
        }
    }
    if is_interface {
        let message = format!("{} belongs to the interface of a platform; request the landing page", named(&page.url));
        return Err(out_of_scope(message));
    }
    Err(no_match(page))
}

/// Returns the failure of a page that is none of a platform: its own, if it has one.
fn no_match(page: &LandingPage) -> IngestFailure {
    page.failure.clone().unwrap_or_else(|| {
        let message = format!("{} is no page of a known platform, and names no files", named(&page.url));
        IngestFailure {
            retry: RetryRule::AfterFix,
            ..IngestFailure::permanent(IngestStatus::NO_PLATFORM_MATCH, message)
        }
    })
}

/// A dataset with its files, as its platform describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Name of the platform.
    pub platform_name: &'static str,
    /// Host of the platform.
    pub platform_domain: String,
    /// Identifier of the dataset at the platform.
    pub platform_id: String,
    /// Name of the item at archive.org.
    pub archiveorg_item_name: String,
    /// Name that an item of this dataset may have from an earlier version of the program.
    pub former_item_name: Option<String>,
    /// Size of all files that the platform tells, where the sizes of the files are not in its list.
    pub told_bytes: Option<u64>,
    /// URL below which the files are.
    pub base_url: Option<String>,
    /// URL of a file with all files.
    pub bundle_url: Option<String>,
    /// Files.
    pub files: Vec<PlatformFile>,
    /// Bibliographic data.
    pub metadata: DatasetMetadata,
}

impl Dataset {
    /// Returns the sum of the known sizes, in bytes.
    #[must_use]
    pub fn total_size(&self) -> u64 {
        self.files.iter().filter_map(|file| file.manifest.size).fold(0, u64::saturating_add)
    }

    /// Returns what identifies the dataset among those of all platforms.
    #[must_use]
    pub fn identity(&self) -> String {
        let Self { platform_name, platform_domain, platform_id, .. } = self;
        format!("{platform_name}:{platform_domain}:{platform_id}")
    }

    /// Returns the name of the item that an earlier version of the program has made for this dataset.
    pub(super) fn item_of(&self, previous: &FilesetResult) -> Option<String> {
        let is_same = previous.hit
            && previous.platform_name.as_deref() == Some(self.platform_name)
            && previous.platform_id.as_ref() == Some(&self.platform_id)
            && previous.ingest_strategy.is_some_and(|strategy| !strategy.is_web());
        let former =
            self.former_item_name.as_ref().filter(|former| previous.archiveorg_item_name.as_ref() == Some(*former));
        former.filter(|_| is_same).cloned()
    }

    /// Returns the dataset with paths, sizes and digests of the files that were downloaded.
    pub(super) fn with_figures(&self, files: &[ArchivedFile]) -> Self {
        let mut dataset = self.clone();
        for (file, archived) in dataset.files.iter_mut().zip(files) {
            file.manifest.path.clone_from(&archived.manifest.path);
            file.manifest.size = Some(archived.stored.size);
            file.manifest.sha256 = Some(archived.stored.digest.to_string());
        }
        dataset
    }

    /// Compares the size of the downloaded files with the platform's total.
    ///
    /// # Errors
    /// Fails with `mismatch-size` if it is another one.
    pub(super) fn check_bytes(&self, bytes: u64) -> Result<(), IngestFailure> {
        match self.told_bytes.filter(|told| *told != bytes) {
            Some(told) => {
                let message = format!("the files have {bytes} bytes; the platform tells {told}");
                Err(IngestFailure::permanent(IngestStatus::MISMATCH_SIZE, message))
            }
            None => Ok(()),
        }
    }

    /// Checks the number and the size of the files, and their paths.
    ///
    /// # Errors
    /// Fails if there are none or more than the limits, or a path leaves the dataset.
    pub fn check(&self, limits: &DatasetLimits) -> Result<(), IngestFailure> {
        let (count, size) = (self.files.len(), self.total_size());
        let DatasetLimits { max_total_size, max_file_count } = *limits;
        let (status, message) = if count == 0 {
            (IngestStatus::EMPTY_MANIFEST, "the dataset has no files".to_owned())
        } else if size > max_total_size {
            (IngestStatus::TOO_LARGE_SIZE, format!("the files have {size} bytes; max_total_size is {max_total_size}"))
        } else if count > max_file_count {
            (IngestStatus::TOO_MANY_FILES, format!("there are {count} files; max_file_count is {max_file_count}"))
        } else if let Some(path) = self.paths().find(|path| !paths::is_safe(path)) {
            (IngestStatus::UNSAFE_PATH, format!("the path {path:?} is no path of a file in a folder"))
        } else {
            return Ok(());
        };
        Err(IngestFailure::permanent(status, message))
    }

    /// Bounds what is kept while the files are downloaded: texts are shortened.
    ///
    /// # Errors
    /// Fails if the paths and URLs of the files have more than [`MAX_LIST_BYTES`].
    fn bound(&mut self) -> Result<(), IngestFailure> {
        let size = |file: &PlatformFile| {
            let ManifestFile { path, platform_url, mimetype, md5, sha1, sha256, sha512, .. } = &file.manifest;
            let others = [platform_url, mimetype, md5, sha1, sha256, sha512].into_iter().flatten().map(String::len);
            let extra = file.manifest.extra.iter().flat_map(Map::values).filter_map(Value::as_str).map(str::len);
            path.len() + others.chain(extra).sum::<usize>()
        };
        if self.files.iter().map(size).sum::<usize>() > MAX_LIST_BYTES {
            return Err(too_long_list());
        }
        let DatasetMetadata { title, creators, date, description, doi, license, version } = &mut self.metadata;
        creators.truncate(MAX_CREATORS);
        let texts = [title, date, description, doi, license, version].into_iter().flatten().chain(creators);
        for text in texts {
            let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        Ok(())
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| &*file.manifest.path)
    }
}

/// Limits of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetLimits {
    /// Maximum size of all files, in bytes.
    pub max_total_size: u64,
    /// Maximum number of files.
    pub max_file_count: usize,
}

/// The limits of Sandcrawler's fileset ingest.
impl Default for DatasetLimits {
    fn default() -> Self {
        Self { max_total_size: 64 << 30, max_file_count: 200 }
    }
}

/// A file, as its platform describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlatformFile {
    /// Entry of the manifest. Its `platform_url` is the URL of the download.
    pub manifest: ManifestFile,
    /// Whether size or digests are known to be those of another form of the file, so that a difference is no failure.
    pub is_soft: bool,
    /// Path for the case that another file has the same one.
    pub alternative: Option<String>,
    /// URL of the same file, for the case that the first one is refused.
    pub other_url: Option<String>,
    /// Whether the path is made of a URL, so that the response with the file names it better.
    pub is_unnamed: bool,
}

impl PlatformFile {
    /// Creates a file with hard figures.
    #[must_use]
    pub fn new(manifest: ManifestFile) -> Self {
        Self { manifest, ..Self::default() }
    }
}

/// Bibliographic data of a dataset, for the item in an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetMetadata {
    /// Title.
    pub title: Option<String>,
    /// Names of the authors.
    pub creators: Vec<String>,
    /// Day of the publication.
    pub date: Option<String>,
    /// Description, with markup.
    pub description: Option<String>,
    /// DOI.
    pub doi: Option<String>,
    /// URL or name of the licence.
    pub license: Option<String>,
    /// Version.
    pub version: Option<String>,
}

/// Maximum size of the paths and URLs of all files of a dataset, in bytes.
const MAX_LIST_BYTES: usize = 8 << 20;

/// Maximum size of each text of the bibliographic data, in bytes, and maximum number of authors.
const MAX_TEXT_BYTES: usize = 64 << 10;
const MAX_CREATORS: usize = 1000;

/// Returns the URL below a base, which is treated as a folder. Segments are percent-encoded.
pub(super) fn below<'s>(base: &Url, segments: impl IntoIterator<Item = &'s str>) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url.set_query(None);
    url
}

/// Returns the URL of a link in a response of an interface.
///
/// # Errors
/// Fails if the link leaves the interface.
fn own_link(interface: &Url, link: &str) -> Result<Url, IngestFailure> {
    let url = interface.join(link).ok().filter(|url| url.origin() == interface.origin());
    url.ok_or_else(|| IngestFailure::bad_answer("a link of the answer leaves the interface of the platform"))
}

/// Returns whether a URL is at the host of a base URL, and below its path.
fn is_below(url: &Url, base: &Url) -> bool {
    url.origin() == base.origin() && url.path().starts_with(base.path().trim_end_matches('/'))
}

/// Returns the segments of the path of a URL, decoded, without empty ones.
fn segments(url: &Url) -> Vec<String> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    url.path_segments().into_iter().flatten().filter(|segment| !segment.is_empty()).map(decoded).collect()
}

/// Returns host and port of a URL.
fn domain(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the last segment of a URL, or the host if there is none.
fn name_of(url: &Url) -> String {
    segments(url).pop().unwrap_or_else(|| domain(url))
}

/// Puts a digest into its member of a manifest entry; a digest of another algorithm goes to `extra`.
fn set_digest(file: &mut ManifestFile, algorithm: &str, value: &str) {
    let value = value.to_ascii_lowercase();
    match algorithm.replace('-', "").to_ascii_lowercase().as_str() {
        "md5" => file.md5 = Some(value),
        "sha1" => file.sha1 = Some(value),
        "sha256" => file.sha256 = Some(value),
        "sha512" => file.sha512 = Some(value),
        other => {
            file.extra.get_or_insert_default().insert(other.to_owned(), Value::String(value));
        }
    }
}

/// Returns the members of `extra` that have a value.
fn extra(members: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Option<Map<String, Value>> {
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let extra: Map<_, _> = members.collect();
    (!extra.is_empty()).then_some(extra)
}

/// Fails for a list whose files have too long paths and URLs.
fn too_long_list() -> IngestFailure {
    let message = format!("the paths and URLs of the files have more than {MAX_LIST_BYTES} bytes");
    IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message)
}

/// Fails for a list that has other totals than its entries. A later answer may be whole.
fn partial_list(message: impl Into<String>) -> IngestFailure {
    IngestFailure::transient(IngestStatus::PLATFORM_BAD_ANSWER, message)
}

/// Returns the failure of a list of files whose dataset the platform has just shown. That the list is unknown says nothing
/// about the dataset: a folder may have been removed since.
fn of_list(failure: IngestFailure) -> IngestFailure {
    if failure.status == IngestStatus::PLATFORM_404 { partial_list(failure.message) } else { failure }
}

/// Fails for a place at a platform that is not one version of a dataset.
fn out_of_scope(message: impl Into<String>) -> IngestFailure {
    IngestFailure::permanent(IngestStatus::PLATFORM_SCOPE, message)
}
