//! OSF: `/ID`. Its interface is JSON:API with pages of ten entries, and folders are lists of their own.
//!
//! Only the storage of OSF itself is read. Linked storage of other services (GitHub, S3, …) has neither digests nor
//! versions, and belongs to the other service.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_ENTRIES, PlatformFile, PlatformHelper, PlatformSettings, below, domain, is_below,
    item_name, out_of_scope, own_link, segments,
};
use crate::{
    format::fileset::{message::ManifestFile, status::IngestStatus},
    harvest::fileset::{
        IngestFailure, LandingPage, PlatformClient,
        json::{self, List},
    },
};

/// OSF.
pub(super) struct Osf;

pub(super) const NAME: &str = "osf";

/// Maximum number of requests for one dataset.
const MAX_REQUESTS: usize = 1000;

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Node>, json::is::<Page>];

#[derive(Deserialize)]
struct Page {
    data: List<Entry>,
    #[serde(default)]
    links: PageLinks,
}

#[derive(Default, Deserialize)]
struct PageLinks {
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    attributes: Attributes,
    #[serde(default)]
    links: EntryLinks,
    #[serde(default)]
    relationships: Relationships,
}

#[derive(Deserialize)]
struct Attributes {
    kind: Kind,
    name: String,
    #[serde(default)]
    materialized_path: Option<String>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    extra: Extra,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Folder,
}

#[derive(Default, Deserialize)]
struct Extra {
    #[serde(default)]
    hashes: Hashes,
}

#[derive(Default, Deserialize)]
struct Hashes {
    #[serde(default)]
    md5: Option<String>,
    #[serde(default)]
    sha256: Option<String>,
}

#[derive(Default, Deserialize)]
struct EntryLinks {
    #[serde(default)]
    download: Option<String>,
}

#[derive(Default, Deserialize)]
struct Relationships {
    #[serde(default)]
    files: Option<Relationship>,
}

#[derive(Deserialize)]
struct Relationship {
    links: RelatedLinks,
}

#[derive(Deserialize)]
struct RelatedLinks {
    related: Related,
}

#[derive(Deserialize)]
struct Related {
    href: String,
}

#[derive(Deserialize)]
struct Node {
    data: NodeData,
}

#[derive(Deserialize)]
struct NodeData {
    attributes: NodeAttributes,
}

#[derive(Deserialize)]
struct NodeAttributes {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    date_created: Option<String>,
}

impl PlatformHelper for Osf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, settings: &PlatformSettings) -> bool {
        node_id(&page.url, settings).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (api, token) = (&settings.osf_api, settings.token_for(NAME, &settings.osf_api));
            let id = node_id(&page.url, settings).ok_or_else(|| out_of_scope("the page is no project"))?;
            let node = client.json::<Node>(&below(api, ["nodes", &id, ""]), token).await;
            // A registration, the frozen form of a project, has a place of its own.
            let (kind, node) = match node {
                Err(failure) if failure.status == IngestStatus::PLATFORM_404 => {
                    let registration = client.json::<Node>(&below(api, ["registrations", &id, ""]), token).await;
                    ("registrations", registration?)
                }
                node => ("nodes", node?),
            };
            let mut lists = VecDeque::from([below(api, [kind, &id, "files", "osfstorage", ""])]);
            let (mut files, mut requests) = (Vec::new(), 0);
            while let Some(list) = lists.pop_front() {
                requests += 1;
                if requests > MAX_REQUESTS || files.len() > MAX_ENTRIES {
                    let message = format!("the list of files needs more than {MAX_REQUESTS} requests");
                    return Err(IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message));
                }
                let page: Page = client.json(&list, token).await?;
                for entry in page.data {
                    let folder = entry.relationships.files.as_ref().map(|files| files.links.related.href.clone());
                    match (entry.attributes.kind, folder) {
                        (Kind::File, _) => files.push(entry.manifest()),
                        (Kind::Folder, Some(href)) => lists.push_back(own_link(api, &href)?),
                        (Kind::Folder, None) => {
                            return Err(IngestFailure::bad_answer("a folder of the answer has no list"));
                        }
                    }
                }
                if let Some(next) = page.links.next {
                    lists.push_front(own_link(api, &next)?);
                }
            }
            let (host, NodeAttributes { title, description, date_created }) =
                (domain(&settings.osf), node.data.attributes);
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&[&host, &id]),
                platform_domain: host,
                base_url: None,
                bundle_url: None,
                files,
                metadata: DatasetMetadata {
                    title,
                    description,
                    date: date_created.and_then(|time| time.get(..10).map(str::to_owned)),
                    ..DatasetMetadata::default()
                },
                platform_id: id,
            })
        })
    }
}

/// Returns the identifier of the project of a page: five or more letters and digits, alone or before `files`.
fn node_id(url: &Url, settings: &PlatformSettings) -> Option<String> {
    let path = segments(url);
    let (id, rest) = path.get(segments(&settings.osf).len()..)?.split_first()?;
    let is_id = id.len() >= 5 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_project = rest.is_empty() || (rest[0] == "files" && rest.len() <= 2) || rest[0] == "overview";
    (is_below(url, &settings.osf) && is_id && is_project).then(|| id.clone())
}

impl Entry {
    fn manifest(self) -> PlatformFile {
        let Attributes { name, materialized_path, size, extra, .. } = self.attributes;
        let path = materialized_path.map_or(name, |path| path.trim_start_matches('/').to_owned());
        PlatformFile::new(ManifestFile {
            path,
            size,
            md5: extra.hashes.md5,
            sha256: extra.hashes.sha256,
            platform_url: self.links.download,
            ..ManifestFile::default()
        })
    }
}
