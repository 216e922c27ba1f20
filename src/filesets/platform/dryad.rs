//! Dryad: `/dataset/doi:…` and `/stash/dataset/doi:…`. Its interface is HAL. Downloads need an access token.

use futures_util::future::BoxFuture;
use serde::Deserialize;
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_ENTRIES, PlatformFile, PlatformHelper, PlatformSettings, domain, former_name,
    is_below, item_name, of_list, out_of_scope, own_link, partial_list, segments, set_digest,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient, PlatformToken,
        json::{self, List, TextOr},
    },
    format::fileset::message::ManifestFile,
    model::Timestamp,
};

/// Dryad.
pub(super) struct Dryad;

pub(super) const NAME: &str = "dryad";

/// Number of files of a page.
const PAGE_FILES: usize = 100;

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Record>, json::is::<Page>];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    identifier: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    authors: List<Author>,
    #[serde(default, rename = "abstract")]
    summary: Option<String>,
    #[serde(default)]
    version_number: Option<u64>,
    #[serde(default)]
    visibility: Option<String>,
    #[serde(default)]
    curation_status: Option<String>,
    #[serde(default)]
    publication_date: Option<String>,
    #[serde(default)]
    license: Option<String>,
    #[serde(rename = "_links")]
    links: Links,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Author {
    #[serde(default)]
    first_name: Option<String>,
    #[serde(default)]
    last_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Links {
    #[serde(default, rename = "stash:version")]
    version: Option<Target>,
    #[serde(default, rename = "stash:download")]
    download: Option<Target>,
    #[serde(default, rename = "stash:file-download")]
    file_download: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    href: String,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    total: Option<usize>,
    #[serde(default, rename = "_links")]
    links: PageLinks,
    #[serde(rename = "_embedded")]
    embedded: Embedded,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageLinks {
    next: TextOr<Target>,
}

#[derive(Deserialize)]
struct Embedded {
    #[serde(rename = "stash:files")]
    files: List<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    path: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    digest_type: Option<String>,
    #[serde(default, rename = "_links")]
    links: Links,
}

impl PlatformHelper for Dryad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        is_below(&page.url, &settings.dryad) && doi(&page.url).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (base, token) = (&settings.dryad, settings.token_for(NAME, &settings.dryad));
            let doi = doi(&page.url).ok_or_else(|| out_of_scope("the page is no dataset"))?;
            // The identifier is one segment, so its slash is encoded.
            let encoded = percent_encoding::utf8_percent_encode(&doi, percent_encoding::NON_ALPHANUMERIC);
            let record: Record =
                client.json(&own_link(base, &format!("/api/v2/datasets/{encoded}"))?, token.as_ref()).await?;
            if !record.identifier.eq_ignore_ascii_case(&doi) {
                let own = &record.identifier;
                return Err(IngestFailure::bad_answer(format!("the answer is about {own}, not about {doi}")));
            }
            if record.visibility.as_deref().is_some_and(|visibility| visibility != "public") {
                let status = record.curation_status.as_deref().unwrap_or("restricted");
                let today = Timestamp::now().datetime().format("%Y-%m-%d").to_string();
                // An embargo ends with the publication.
                let end = record.publication_date.as_deref().filter(|date| *date > &*today);
                return Err(IngestFailure::restricted(format!("the dataset is {status}"), end));
            }
            let version = record.links.version.as_ref();
            let version = version.ok_or_else(|| out_of_scope("the dataset has no published version"))?;
            let files = files(&own_link(base, &format!("{}/files", version.href))?, client, token.as_ref()).await?;
            let (host, number) = (domain(base), record.version_number.unwrap_or(1));
            let interface = base.clone();
            let manifests = client.convert(files.len(), move || {
                let files = files.into_iter().filter(|file| file.status.as_deref() != Some("deleted"));
                files.map(|file| file.manifest(&interface)).collect::<Result<Vec<_>, _>>()
            });
            let manifests = manifests.await?;
            let (last, version_name) = (doi.rsplit('/').next().unwrap_or_default(), format!("v{number}"));
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&host, &[&doi, &version_name]),
                former_item_name: Some(former_name(&[&host, last, &version_name])),
                told_bytes: None,
                platform_domain: host,
                base_url: None,
                bundle_url: Some(own_link(base, &format!("{}/download", version.href))?.to_string()),
                files: manifests,
                metadata: record.bibliography(number),
                platform_id: doi,
            })
        })
    }
}

/// Returns the DOI of a page, with `doi:` before it: in the path after `dataset`, or in the query of older links.
fn doi(url: &Url) -> Option<String> {
    let path = segments(url).join("/");
    let of_path = path.find("dataset/doi:").and_then(|at| path.get(at + "dataset/".len()..));
    let of_query = || {
        let id = url.query_pairs().find(|(name, _)| name == "id").map(|(_, id)| id.into_owned());
        id.filter(|_| path.ends_with("landing/show"))
    };
    let doi = of_path.map(str::to_owned).or_else(of_query)?;
    (doi.starts_with("doi:") && doi.contains('/')).then_some(doi)
}

/// Requests all pages of the list of files.
async fn files(
    place: &Url,
    client: &PlatformClient,
    token: Option<&PlatformToken>,
) -> Result<Vec<File>, IngestFailure> {
    let (mut files, mut all) = (Vec::new(), None);
    for page in 1.. {
        let mut url = place.clone();
        url.set_query(Some(&format!("page={page}&per_page={PAGE_FILES}")));
        let Page { total, links, embedded } = client.json(&url, token).await.map_err(of_list)?;
        // A page after the last one may have no total.
        all = total.or(all);
        let total = all;
        let (is_empty, has_next) = (embedded.files.is_empty(), links.next.object().is_some());
        files.extend(embedded.files);
        if files.len() > MAX_ENTRIES {
            break;
        }
        let has_all = total.is_some_and(|total| files.len() >= total);
        if is_empty || has_all || (total.is_none() && !has_next) {
            match total.filter(|total| *total != files.len()) {
                Some(total) => {
                    let listed = files.len();
                    return Err(partial_list(format!("the version has {total} files, and lists {listed}")));
                }
                None => break,
            }
        }
    }
    Ok(files)
}

impl Record {
    fn bibliography(self, number: u64) -> DatasetMetadata {
        let name = |author: Author| {
            let parts = [author.first_name, author.last_name].into_iter().flatten().collect::<Vec<_>>();
            (!parts.is_empty()).then(|| parts.join(" "))
        };
        DatasetMetadata {
            title: self.title,
            creators: self.authors.into_iter().filter_map(name).collect(),
            date: self.publication_date,
            description: self.summary,
            doi: self.identifier.strip_prefix("doi:").map(str::to_owned),
            license: self.license,
            version: Some(number.to_string()),
        }
    }
}

impl File {
    fn manifest(self, base: &Url) -> Result<PlatformFile, IngestFailure> {
        let link = self.links.file_download.or(self.links.download);
        let url = link.map(|link| own_link(base, &link.href)).transpose()?;
        let mut file = ManifestFile {
            path: self.path,
            size: self.size,
            mimetype: self.mime_type,
            platform_url: url.map(String::from),
            ..ManifestFile::default()
        };
        if let (Some(algorithm), Some(value)) = (self.digest_type, self.digest) {
            set_digest(&mut file, &algorithm, &value);
        }
        Ok(PlatformFile::new(file))
    }
}
