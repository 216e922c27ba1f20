//! Landing pages of other platforms that name their files themselves: by links with the relation `item` (Signposting), by
//! a description in RO-Crate, or because the URL is the one of a file.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_ENTRIES, PlatformFile, PlatformHelper, PlatformSettings, domain, item_name, name_of,
    segments, set_digest,
};
use crate::{
    format::fileset::message::ManifestFile,
    harvest::fileset::{IngestFailure, LandingPage, PlatformClient, client::text_header, landing_page::Link},
};

/// Landing pages with links to their files.
pub(super) struct Signposting;

const NAME: &str = "web";

/// Name of the description of a crate (RO-Crate 1.2).
const CRATE: &str = "ro-crate-metadata.json";

/// Description of a crate: a graph of entities in JSON-LD.
#[derive(Deserialize)]
struct Crate {
    #[serde(rename = "@graph")]
    graph: Vec<Value>,
}

impl PlatformHelper for Signposting {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, _: &PlatformSettings) -> bool {
        page.is_file() || !page.links("item").is_empty() || crate_of(page).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        _: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (files, metadata) = match crate_of(page) {
                Some(place) => {
                    let Crate { graph } = client.json(&place, None).await?;
                    (files_of_crate(&graph, &place), metadata_of_crate(&graph))
                }
                None if page.is_file() => (vec![only_file(page)], DatasetMetadata::default()),
                None => (linked_files(page.links("item")), DatasetMetadata::default()),
            };
            let doi = page.links("cite-as").first().and_then(|link| {
                link.url.host_str().is_some_and(|host| host.ends_with("doi.org")).then(|| segments(&link.url).join("/"))
            });
            let (host, path) = (domain(&page.url), segments(&page.url).join("-"));
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&[&host, &path]),
                platform_domain: host,
                platform_id: doi.clone().unwrap_or_else(|| page.url.path().to_owned()),
                base_url: None,
                bundle_url: None,
                files,
                metadata: DatasetMetadata { doi: doi.or(metadata.doi.clone()), ..metadata },
            })
        })
    }
}

/// Returns the place of the crate's description: linked by the page with `describedby`, or the response itself.
fn crate_of(page: &LandingPage) -> Option<Url> {
    let is_crate = |url: &Url| url.path().ends_with(CRATE);
    let linked = page.links("describedby").into_iter().map(|link| link.url);
    std::iter::once(page.url.clone()).chain(linked).find(is_crate)
}

/// Returns the file of a response that is no page.
fn only_file(page: &LandingPage) -> PlatformFile {
    let size = text_header(&page.headers, "content-length").and_then(|length| length.parse().ok());
    let media_type =
        text_header(&page.headers, "content-type").map(|text| text.split(';').next().unwrap_or(text).trim());
    PlatformFile::new(ManifestFile {
        path: name_of(&page.url),
        size,
        mimetype: media_type.map(str::to_owned),
        platform_url: Some(page.url.to_string()),
        ..ManifestFile::default()
    })
}

/// Returns the files of links. A link whose last segment another one has gets its host and whole path.
pub(super) fn linked_files(links: Vec<Link>) -> Vec<PlatformFile> {
    let mut names = HashSet::new();
    let mut file = |Link { url, media_type }: Link| {
        let short = name_of(&url);
        let path =
            if names.insert(short.clone()) { short } else { format!("{}/{}", domain(&url), segments(&url).join("/")) };
        PlatformFile::new(ManifestFile {
            path,
            mimetype: media_type,
            platform_url: Some(url.to_string()),
            ..ManifestFile::default()
        })
    };
    links.into_iter().take(MAX_ENTRIES + 1).map(&mut file).collect()
}

/// Returns the files of a crate, whose identifiers are paths relative to its description.
fn files_of_crate(graph: &[Value], place: &Url) -> Vec<PlatformFile> {
    let is_file = |entity: &&Value| match &entity["@type"] {
        Value::String(kind) => kind == "File",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "File"),
        _ => false,
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let file = |entity: &Value| {
        let id = entity["@id"].as_str()?;
        let url = place.join(id).ok()?;
        let size = match &entity["contentSize"] {
            Value::String(size) => size.parse().ok(),
            size => size.as_u64(),
        };
        let mimetype = match &entity["encodingFormat"] {
            Value::Array(all) => all.first().and_then(text),
            one => text(one),
        };
        let mut file = ManifestFile {
            path: if id.contains("://") { name_of(&url) } else { decoded(id.trim_start_matches("./")) },
            size,
            mimetype,
            platform_url: Some(url.to_string()),
            ..ManifestFile::default()
        };
        for algorithm in ["md5", "sha1", "sha256", "sha512"] {
            if let Some(value) = entity[algorithm].as_str() {
                set_digest(&mut file, algorithm, value);
            }
        }
        Some(PlatformFile::new(file))
    };
    graph.iter().filter(is_file).filter_map(file).take(MAX_ENTRIES + 1).collect()
}

fn metadata_of_crate(graph: &[Value]) -> DatasetMetadata {
    let Some(root) = graph.iter().find(|entity| entity["@id"] == "./") else { return DatasetMetadata::default() };
    let text = |name: &str| root[name].as_str().map(str::to_owned);
    let license = root["license"]["@id"].as_str().map(str::to_owned).or_else(|| text("license"));
    DatasetMetadata {
        title: text("name"),
        date: text("datePublished"),
        description: text("description"),
        license,
        version: text("version"),
        ..DatasetMetadata::default()
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
