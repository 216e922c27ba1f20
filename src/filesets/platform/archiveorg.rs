//! archive.org: `/details/ITEM` and `/download/ITEM`. Its numbers are text, and an unknown item is an empty object.

use futures_util::future::BoxFuture;
use serde::{Deserialize, de::IgnoredAny};
use url::Url;

use super::{
    Dataset, DatasetMetadata, PlatformFile, PlatformHelper, PlatformSettings, Thresholds, below, domain, is_below,
    out_of_scope, segments,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient,
        json::{self, List, Number, Text, Texts},
    },
    format::fileset::{
        message::{IngestStrategy, ManifestFile},
        status::IngestStatus,
    },
};

/// archive.org.
pub(super) struct ArchiveOrg;

pub(super) const NAME: &str = "archiveorg";

/// Ends of the names of the files that archive.org itself adds to an item.
const OWN_FILES: [&str; 8] = [
    "_meta.sqlite",
    "_archive.torrent",
    "_itemimage.jpg",
    "_meta.xml",
    "_thumb.png",
    "_files.xml",
    "_reviews.xml",
    "_rules.conf",
];

/// Picture that archive.org makes of an item.
const THUMBNAIL: &str = "__ia_thumb.jpg";

/// Folder with former versions of files.
const HISTORY: &str = "history/";

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Item>];

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    is_dark: bool,
    #[serde(default)]
    metadata: ItemFacts,
    #[serde(default)]
    files: Option<List<File>>,
}

/// Metadata of an item. Each member is a text or a list of texts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemFacts {
    mediatype: Text,
    creator: Texts,
    title: Text,
    date: Text,
    description: Text,
    doi: Text,
    licenseurl: Text,
    version: Text,
}

#[derive(Deserialize)]
struct File {
    name: String,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    size: Number,
    #[serde(default)]
    md5: Option<String>,
    #[serde(default)]
    sha1: Option<String>,
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    old_version: Option<IgnoredAny>,
    #[serde(default)]
    private: Option<IgnoredAny>,
}

impl PlatformHelper for ArchiveOrg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        item_path(&page.url, &settings.archiveorg).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (base, token) = (&settings.archiveorg, settings.token_for(NAME, &settings.archiveorg));
            let path = item_path(&page.url, base).unwrap_or_default();
            let [name] = path.as_slice() else {
                return Err(out_of_scope("the page is a part of an item; request the item"));
            };
            let item: Item = client.json(&below(base, ["metadata", name]), token.as_ref()).await?;
            let (name, base) = (name.clone(), base.clone());
            client.convert(item.files.as_deref().map_or(0, <[_]>::len), move || item.dataset(&name, &base)).await
        })
    }

    /// Its items are in the archive already.
    fn strategy(&self, dataset: &Dataset, _: &Thresholds) -> IngestStrategy {
        if dataset.files.len() == 1 { IngestStrategy::ArchiveorgFile } else { IngestStrategy::ArchiveorgFileset }
    }
}

/// Returns the path after `/details/` or `/download/`.
fn item_path(url: &Url, base: &Url) -> Option<Vec<String>> {
    let path = segments(url);
    let (kind, rest) = path.get(segments(base).len()..)?.split_first()?;
    let is_item = is_below(url, base) && matches!(kind.as_str(), "details" | "download") && !rest.is_empty();
    is_item.then(|| rest.to_vec())
}

impl Item {
    fn dataset(self, name: &str, base: &Url) -> Result<Dataset, IngestFailure> {
        let Self { is_dark, metadata, files } = self;
        if is_dark {
            return Err(IngestFailure::restricted("the item is not public", None));
        }
        let Some(files) = files else {
            return Err(IngestFailure::permanent(IngestStatus::PLATFORM_404, format!("there is no item {name}")));
        };
        if let Some(kind @ ("collection" | "web")) = metadata.mediatype.0.as_deref() {
            return Err(out_of_scope(format!("the item is a {kind}")));
        }
        let files: Vec<_> = files.into_iter().filter(|file| file.is_original(name)).collect();
        if files.iter().any(|file| file.private.is_some()) {
            return Err(IngestFailure::restricted("some files of the item are private", None));
        }
        Ok(Dataset {
            platform_name: NAME,
            platform_domain: domain(base),
            platform_id: name.to_owned(),
            archiveorg_item_name: name.to_owned(),
            former_item_name: None,
            told_bytes: None,
            base_url: Some(below(base, ["download", name]).to_string()),
            bundle_url: None,
            files: files.into_iter().map(|file| file.manifest(name, base)).collect(),
            metadata: DatasetMetadata {
                title: metadata.title.0,
                creators: metadata.creator.0.into_iter().collect(),
                date: metadata.date.0,
                description: metadata.description.0,
                doi: metadata.doi.0,
                license: metadata.licenseurl.0,
                version: metadata.version.0,
            },
        })
    }
}

impl File {
    /// Returns whether the depositor has added the file.
    fn is_original(&self, item: &str) -> bool {
        let is_own = OWN_FILES.iter().any(|end| self.name.strip_suffix(end).is_some_and(|start| start == item));
        let is_torrent = item.starts_with("academictorrents_")
            && [".torrent", "_torrent.txt", ".bib"].iter().any(|end| self.name.ends_with(end));
        let is_former = self.old_version.is_some() && self.name.starts_with(HISTORY);
        let is_original = self.source.as_deref() == Some("original");
        is_original && self.name != THUMBNAIL && !is_former && !is_own && !is_torrent
    }

    fn manifest(self, item: &str, base: &Url) -> PlatformFile {
        let mut url = below(base, ["download", item]);
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(self.name.split('/'));
        }
        PlatformFile::new(ManifestFile {
            path: self.name,
            size: self.size.0,
            md5: self.md5,
            sha1: self.sha1,
            mimetype: self.format.as_deref().and_then(media_type).map(str::to_owned),
            platform_url: Some(url.to_string()),
            ..ManifestFile::default()
        })
    }
}

/// Returns the media type of a format of archive.org.
fn media_type(format: &str) -> Option<&'static str> {
    Some(match format {
        "BZIP" => "application/x-bzip",
        "BZIP2" => "application/x-bzip2",
        "ZIP" => "application/zip",
        "GZIP" => "application/gzip",
        "RAR" => "application/vnd.rar",
        "TAR" => "application/x-tar",
        "7z" => "application/x-7z-compressed",
        "HTML" => "text/html",
        "Text" => "text/plain",
        "PDF" => "application/pdf",
        "CSV" | "Comma-Separated Values" => "text/csv",
        "XML" => "application/xml",
        "JSON" => "application/json",
        "MP3" | "VBR MP3" => "audio/mpeg",
        "MP4" | "MPEG4" => "video/mp4",
        "MPEG" | "MPEG2" => "video/mpeg",
        "JPEG" => "image/jpeg",
        "GIF" => "image/gif",
        "PNG" => "image/png",
        "TIFF" => "image/tiff",
        _ => return None,
    })
}
