//! Figshare: `/articles/…/ID/VERSION`, at figshare.com and at the hosts of institutions.
//!
//! An article shows at most ten files, so longer lists are requested in pages, and the sum of the sizes is compared.

use futures_util::future::BoxFuture;
use serde::Deserialize;
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_ENTRIES, PlatformFile, PlatformHelper, PlatformSettings, below, domain, item_name,
    of_list, out_of_scope, partial_list, paths::with_id, segments,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient, PlatformToken,
        json::{self, List, Text, TextMap, TextOr},
    },
    format::fileset::message::ManifestFile,
};

/// Figshare.
pub(super) struct Figshare;

pub(super) const NAME: &str = "figshare";

/// Number of files that an article shows.
const SHOWN_FILES: usize = 10;

/// Number of files of a page.
const PAGE_FILES: usize = 100;

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Article>, json::is::<List<File>>];

#[derive(Deserialize)]
struct Article {
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    is_public: Option<bool>,
    #[serde(default)]
    is_embargoed: bool,
    #[serde(default)]
    embargo_date: Option<String>,
    #[serde(default)]
    embargo_reason: Option<String>,
    #[serde(default)]
    is_confidential: bool,
    #[serde(default)]
    download_disabled: bool,
    #[serde(default)]
    is_metadata_record: bool,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    files: List<File>,
    #[serde(default)]
    folder_structure: TextOr<TextMap>,
    #[serde(default)]
    authors: List<Author>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    doi: Option<String>,
    #[serde(default)]
    published_date: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    license: Option<License>,
}

#[derive(Deserialize)]
struct Author {
    #[serde(default)]
    full_name: Option<String>,
}

#[derive(Deserialize)]
struct License {
    #[serde(default)]
    url: Text,
}

#[derive(Clone, Deserialize)]
struct File {
    id: u64,
    name: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    computed_md5: Option<String>,
    #[serde(default)]
    supplied_md5: Option<String>,
    #[serde(default)]
    mimetype: Option<String>,
    #[serde(default)]
    download_url: Option<String>,
    #[serde(default)]
    is_link_only: bool,
}

impl PlatformHelper for Figshare {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        let domain = domain(&page.url);
        let is_place = |first: &String| {
            matches!(first.as_str(), "articles" | "collections" | "projects" | "s" | "account" | "authors")
        };
        let is_host = |pattern: &String| match pattern.strip_prefix('*') {
            Some(end) => domain.ends_with(end),
            None => domain == *pattern,
        };
        settings.figshare_hosts.iter().any(is_host) && segments(&page.url).first().is_some_and(is_place)
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (api, token) = (&settings.figshare_api, settings.token_for(NAME, &settings.figshare_api));
            let Some((id, version)) = article_id(&page.url) else { return Err(out_of_scope("the page is no article")) };
            let place = match &version {
                Some(version) => below(api, ["articles", &id, "versions", version]),
                None => below(api, ["articles", &id]),
            };
            let mut article: Article = client.json(&place, token.as_ref()).await?;
            article.check()?;
            let version = version.or(article.version.map(|version| version.to_string()));
            let version = version.ok_or_else(|| IngestFailure::bad_answer("the article has no version"))?;
            let list = below(api, ["articles", &id, "versions", &version, "files"]);
            let files = article.all_files(&list, client, token.as_ref()).await?;
            if let Some(linked) = files.iter().find(|file| file.is_link_only) {
                return Err(out_of_scope(format!("{:?} is only a link to another place", linked.name)));
            }
            let sum = files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
            if let Some(size) = article.size.filter(|size| *size != sum) {
                return Err(partial_list(format!("the files have {sum} bytes, and the article {size}")));
            }
            let (folders, host) = (std::mem::take(&mut article.folder_structure).object(), domain(&page.url));
            let interface = api.clone();
            let manifests = client.convert(files.len(), move || {
                files.into_iter().map(|file| file.manifest(folders.as_ref(), &interface)).collect()
            });
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&host, &[&id, &format!("v{version}")]),
                former_item_name: None,
                told_bytes: None,
                platform_domain: host,
                base_url: None,
                bundle_url: Some(
                    below(&settings.figshare_bundles, ["articles", &id, "versions", &version]).to_string(),
                ),
                files: manifests.await,
                metadata: article.bibliography(version),
                platform_id: id,
            })
        })
    }
}

/// Returns the identifier of the article of a page, and the version if the URL has one.
fn article_id(url: &Url) -> Option<(String, Option<String>)> {
    let path = segments(url);
    if path.first().is_none_or(|first| first != "articles") {
        return None;
    }
    let is_number = |text: &&String| text.len() < 20 && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = path.iter().rev().take_while(is_number).take(2).cloned().collect::<Vec<_>>();
    match <[String; 2]>::try_from(numbers) {
        Ok([version, id]) => Some((id, Some(version))),
        Err(mut one) => Some((one.pop()?, None)),
    }
}

impl Article {
    fn check(&self) -> Result<(), IngestFailure> {
        if self.is_embargoed {
            let reason = self.embargo_reason.as_deref().filter(|reason| !reason.is_empty());
            let message = format!("the article is under an embargo: {}", reason.unwrap_or("no reason is given"));
            return Err(IngestFailure::restricted(message, self.embargo_date.as_deref()));
        }
        if self.is_public == Some(false) || self.is_confidential || self.download_disabled {
            return Err(IngestFailure::restricted("the article is not public", None));
        }
        if self.is_metadata_record {
            return Err(out_of_scope("the article is a record without files"));
        }
        Ok(())
    }

    /// Returns all files; an article shows only the first ones.
    async fn all_files(
        &self,
        place: &Url,
        client: &PlatformClient,
        token: Option<&PlatformToken>,
    ) -> Result<Vec<File>, IngestFailure> {
        let mut files: Vec<File> = Vec::new();
        if self.files.len() < SHOWN_FILES {
            return Ok(self.files.to_vec());
        }
        for page in 1.. {
            let mut url = place.clone();
            url.set_query(Some(&format!("page={page}&page_size={PAGE_FILES}")));
            let next = client.json::<List<File>>(&url, token).await.map_err(of_list)?;
            let is_last = next.is_empty();
            // A server that ignores `page` repeats the first one.
            let is_known = next.first().is_some_and(|file| files.iter().any(|known| known.id == file.id));
            if is_last || is_known {
                break;
            }
            files.extend(next);
            if files.len() > MAX_ENTRIES {
                break;
            }
        }
        Ok(files)
    }

    fn bibliography(self, version: String) -> DatasetMetadata {
        let license = self.license.and_then(|license| license.url.0);
        DatasetMetadata {
            title: self.title,
            creators: self.authors.into_iter().filter_map(|author| author.full_name).collect(),
            date: self.published_date,
            description: self.description,
            doi: self.doi.filter(|doi| !doi.is_empty()),
            license,
            version: Some(version),
        }
    }
}

impl File {
    fn manifest(self, folders: Option<&TextMap>, api: &Url) -> PlatformFile {
        let folder =
            folders.and_then(|folders| folders.0.get(&self.id.to_string())).map(|folder| folder.trim_matches('/'));
        let path = match folder.filter(|folder| !folder.is_empty()) {
            Some(folder) => format!("{folder}/{}", self.name),
            None => self.name,
        };
        // Downloads at the host of the landing pages answer robots with a challenge.
        let usable = |url: &String| !url.contains("://figshare.com/ndownloader/");
        let by_id = below(api, ["file", "download", &self.id.to_string()]).to_string();
        let url = self.download_url.filter(usable).unwrap_or_else(|| by_id.clone());
        let md5 = self.computed_md5.or(self.supplied_md5).filter(|md5| !md5.is_empty());
        PlatformFile {
            alternative: with_id(&path, self.id),
            // At the hosts of institutions, the interface may send what their downloads refuse.
            other_url: (by_id != url).then_some(by_id),
            ..PlatformFile::new(ManifestFile {
                path,
                size: self.size,
                md5: md5.map(|md5| md5.to_ascii_lowercase()),
                mimetype: self.mimetype,
                platform_url: Some(url),
                ..ManifestFile::default()
            })
        }
    }
}
