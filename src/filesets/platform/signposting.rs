//! Landing pages of other platforms that name their files themselves: by links with the relation `item` (Signposting), by
//! a description in RO-Crate, or because the URL is the one of a file.

use std::{collections::HashSet, fmt};

use futures_util::future::BoxFuture;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_LIST_BYTES, PlatformFile, PlatformHelper, PlatformSettings, Recognition, domain,
    former_name, item_name_of_page, linkset, name_of, no_match, paths::is_safe, segments, set_digest, too_long_list,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, Link, PlatformClient, Relation,
        client::text_header,
        json::{self, MAX_ENTRIES, Number, Text, TextOr, Texts, skip_entries},
    },
    format::fileset::{message::ManifestFile, public_url::without_secrets, status::IngestStatus},
};

/// Landing pages with links to their files.
pub(super) struct Signposting;

const NAME: &str = "web";

/// Name of the description of a crate (RO-Crate 1.2).
const CRATE: &str = "ro-crate-metadata.json";

/// Documents that pages link.
pub(super) const DOCUMENTS: &[json::Reads] = &[is_crate];

/// Returns whether a document describes a crate. It makes the files of the crate too.
fn is_crate(body: &[u8]) -> bool {
    let place = Url::parse("https://crate.invalid/ro-crate-metadata.json");
    let (Ok(Crate { graph }), Ok(place)) = (json::document(body), place) else { return false };
    files_of_crate(graph.files, &place).is_ok()
}

/// Description of a crate: a graph of entities in JSON-LD.
#[derive(Deserialize)]
struct Crate {
    #[serde(rename = "@graph")]
    graph: Graph,
}

/// The entities of a graph that are used.
#[derive(Default)]
struct Graph {
    /// The dataset.
    root: Option<Entity>,
    /// Its files: at most one more than [`MAX_ENTRIES`].
    files: Vec<Entity>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entity {
    #[serde(rename = "@id")]
    id: Text,
    #[serde(rename = "@type")]
    kinds: Texts,
    #[serde(rename = "contentSize")]
    size: Number,
    #[serde(rename = "encodingFormat")]
    media_type: Text,
    md5: Text,
    sha1: Text,
    sha256: Text,
    sha512: Text,
    name: Text,
    #[serde(rename = "datePublished")]
    date: Text,
    description: Text,
    license: TextOr<Reference>,
    version: Text,
}

/// Reference to another entity.
#[derive(Deserialize)]
struct Reference {
    #[serde(rename = "@id", default)]
    id: Text,
}

impl<'de> Deserialize<'de> for Graph {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GraphVisitor;
        impl<'de> Visitor<'de> for GraphVisitor {
            type Value = Graph;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of entities")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entities: A) -> Result<Graph, A::Error> {
                let mut graph = Graph::default();
                while graph.files.len() <= MAX_ENTRIES {
                    let Some(entity) = entities.next_element::<TextOr<Entity>>()? else { return Ok(graph) };
                    let Some(entity) = entity.object() else { continue };
                    if graph.root.is_none() && entity.id.0.as_deref() == Some("./") {
                        graph.root = Some(entity);
                    } else if entity.kinds.0.iter().any(|kind| kind == "File") {
                        graph.files.push(entity);
                    }
                }
                skip_entries(entities)?;
                Ok(graph)
            }
        }
        deserializer.deserialize_seq(GraphVisitor)
    }
}

impl PlatformHelper for Signposting {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognizes_by(&self) -> Recognition {
        Recognition::Page
    }

    fn matches(&self, page: &LandingPage, _: &PlatformSettings) -> bool {
        let has = |relation| page.links.of(relation).next().is_some();
        page.is_file() || has(Relation::Item) || has(Relation::LinkSet) || crate_of(page).is_some()
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
                    let max_bytes = client.limits.description_bytes;
                    let crate_place = place.clone();
                    let read = move |Crate { graph: Graph { root, files } }: Crate| {
                        let files = files_of_crate(files, &crate_place)?;
                        Ok((files, root.map_or_else(DatasetMetadata::default, metadata_of_crate)))
                    };
                    client.json_as(&place, None, max_bytes, read).await?
                }
                None if page.is_file() => (vec![only_file(page)], DatasetMetadata::default()),
                None if page.links.is_cut => return Err(too_many_links()),
                None => {
                    let mut links: Vec<_> = page.links.of(Relation::Item).cloned().collect();
                    let linksets = page.links.of(Relation::LinkSet).map(|link| link.url.clone()).collect();
                    links.extend(linkset::items(linksets, page, client).await?);
                    if links.is_empty() {
                        return Err(no_match(page));
                    }
                    if links.len() > 2 * MAX_ENTRIES {
                        return Err(too_many_links());
                    }
                    let files = client.convert(links.len(), || linked_files(links)).await;
                    (files, DatasetMetadata::default())
                }
            };
            let doi = page.links.of(Relation::CiteAs).next().and_then(|link| {
                link.url.host_str().is_some_and(|host| host.ends_with("doi.org")).then(|| segments(&link.url).join("/"))
            });
            let host = domain(&page.url);
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name_of_page(&page.url),
                former_item_name: Some(former_name(&[&host, &segments(&page.url).join("-")])),
                told_bytes: None,
                platform_domain: host,
                platform_id: doi.clone().unwrap_or_else(|| id_of_page(&page.url)),
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
    let linked = page.links.of(Relation::DescribedBy).map(|link| &link.url);
    std::iter::once(&page.url).chain(linked).find(|url| is_crate(url)).cloned()
}

/// Returns the file of a response that is no page.
fn only_file(page: &LandingPage) -> PlatformFile {
    let size = text_header(&page.headers, "content-length").and_then(|length| length.parse().ok());
    let media_type =
        text_header(&page.headers, "content-type").map(|text| text.split(';').next().unwrap_or(text).trim());
    PlatformFile {
        is_unnamed: true,
        ..PlatformFile::new(ManifestFile {
            path: name_of(&page.url),
            size,
            mimetype: media_type.map(str::to_owned),
            platform_url: Some(page.url.to_string()),
            ..ManifestFile::default()
        })
    }
}

/// Returns the files of links, each URL once. A link whose last segment another one has gets its host and whole path. The
/// response names the file better, and so does the title of a link if it is a name.
pub(super) fn linked_files(links: Vec<Link>) -> Vec<PlatformFile> {
    let (mut urls, mut names) = (HashSet::new(), HashSet::new());
    let mut file = |Link { url, media_type, title }: Link| {
        if !urls.insert(url.clone()) {
            return None;
        }
        let short = title.filter(|title| is_file_name(title)).unwrap_or_else(|| name_of(&url));
        let path =
            if names.insert(short.clone()) { short } else { format!("{}/{}", domain(&url), segments(&url).join("/")) };
        Some(PlatformFile {
            is_unnamed: true,
            ..PlatformFile::new(ManifestFile {
                path,
                mimetype: media_type,
                platform_url: Some(url.to_string()),
                ..ManifestFile::default()
            })
        })
    };
    links.into_iter().filter_map(&mut file).collect()
}

/// Returns whether the title of a link is the name of a file: one with an extension, and no sentence.
fn is_file_name(title: &str) -> bool {
    let extension = title.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_extension = (1..=8).contains(&extension.len()) && extension.bytes().all(|b| b.is_ascii_alphanumeric());
    is_extension && !title.contains('/') && is_safe(title)
}

/// Returns the identifier of a dataset that has only a URL: path and query.
fn id_of_page(page: &Url) -> String {
    let query = page.query().map(|query| format!("?{query}")).unwrap_or_default();
    without_secrets(&format!("{}{query}", page.path()))
}

/// Fails for a page with more links than are read.
fn too_many_links() -> IngestFailure {
    let message = format!("the page links more than {MAX_ENTRIES} files, or their URLs are too long");
    IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message)
}

/// Returns the files of a crate, whose identifiers are paths relative to its description.
///
/// # Errors
/// Fails if their URLs are too long together, because each has the whole place of the description.
fn files_of_crate(files: Vec<Entity>, place: &Url) -> Result<Vec<PlatformFile>, IngestFailure> {
    let mut made = 0;
    let mut file = |entity: Entity| {
        let id = entity.id.0?;
        let url = place.join(&id).ok()?;
        made += url.as_str().len();
        if made > MAX_LIST_BYTES {
            return Some(Err(too_long_list()));
        }
        let mut file = ManifestFile {
            path: if id.contains("://") { name_of(&url) } else { decoded(id.trim_start_matches("./")) },
            size: entity.size.0,
            mimetype: entity.media_type.0,
            platform_url: Some(url.to_string()),
            ..ManifestFile::default()
        };
        let digests =
            [("md5", entity.md5), ("sha1", entity.sha1), ("sha256", entity.sha256), ("sha512", entity.sha512)];
        for (algorithm, value) in digests {
            if let Some(value) = value.0 {
                set_digest(&mut file, algorithm, &value);
            }
        }
        Some(Ok(PlatformFile::new(file)))
    };
    files.into_iter().filter_map(&mut file).collect()
}

fn metadata_of_crate(root: Entity) -> DatasetMetadata {
    DatasetMetadata {
        title: root.name.0,
        date: root.date.0,
        description: root.description.0,
        license: root.license.text(|license| license.id.0),
        version: root.version.0,
        ..DatasetMetadata::default()
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
