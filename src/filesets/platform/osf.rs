//! OSF: `/ID`. Its interface is JSON:API with pages of ten entries, and folders are lists of their own.
//!
//! Only the storage of OSF itself is read. Linked storage of other services (GitHub, S3, …) has neither digests nor
//! versions, and belongs to the other service.

use std::collections::{HashSet, VecDeque};

use futures_util::future::BoxFuture;
use serde::{Deserialize, de::IgnoredAny};
use url::Url;

use super::{
    Dataset, DatasetMetadata, MAX_ENTRIES, PlatformFile, PlatformHelper, PlatformSettings, below, domain, is_below,
    item_name, of_list, out_of_scope, own_link, partial_list, paths::with_id, segments,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient, PlatformToken,
        client::named,
        json::{self, List, Number, Text, TextOr},
    },
    format::fileset::{message::ManifestFile, status::IngestStatus},
};

/// OSF.
pub(super) struct Osf;

pub(super) const NAME: &str = "osf";

/// Maximum number of requests for one dataset.
const MAX_REQUESTS: usize = 1000;

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] =
    &[json::is::<Node>, json::is::<Page>, json::is::<Guid>, json::is::<AnyEntries>];

#[derive(Deserialize)]
struct Page {
    data: List<Entry>,
    #[serde(default)]
    links: PageLinks,
    #[serde(default)]
    meta: TextOr<Totals>,
}

#[derive(Default, Deserialize)]
struct PageLinks {
    #[serde(default)]
    next: Option<String>,
    #[serde(default)]
    meta: TextOr<Totals>,
}

/// Facts about the whole list.
#[derive(Deserialize)]
struct Totals {
    #[serde(default)]
    total: Number,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    id: Text,
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
    extra: TextOr<Extra>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Folder,
}

#[derive(Default, Deserialize)]
struct Extra {
    #[serde(default)]
    hashes: TextOr<Hashes>,
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

/// A list of which only the number of entries is used.
#[derive(Deserialize)]
struct AnyEntries {
    data: List<IgnoredAny>,
}

#[derive(Deserialize)]
struct Guid {
    data: GuidData,
}

#[derive(Deserialize)]
struct GuidData {
    #[serde(default, rename = "type")]
    kind: Text,
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
        place(&page.url, settings).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let (api, token) = (&settings.osf_api, settings.token_for(NAME, &settings.osf_api));
            let id = match place(&page.url, settings) {
                Some(Place::Node(id)) => id,
                Some(Place::Other) | None => return Err(out_of_scope("the page is no project or registration")),
            };
            let key = view_only_key(page);
            let with_key = |url: Url| with_query(url, key.as_deref().map(|key| ("view_only", key)));
            let node = client.json::<Node>(&with_key(below(api, ["nodes", &id, ""])), token.as_ref()).await;
            // A registration, the frozen form of a project, has a place of its own.
            let (kind, node) = match node {
                Err(failure) if failure.status == IngestStatus::PLATFORM_404 => {
                    let place = with_key(below(api, ["registrations", &id, ""]));
                    let registration = client.json::<Node>(&place, token.as_ref()).await;
                    match registration {
                        Err(failure) if failure.status == IngestStatus::PLATFORM_404 => {
                            return Err(other_kind(&id, api, client, token.as_ref()).await.unwrap_or(failure));
                        }
                        registration => ("registrations", registration?),
                    }
                }
                node => ("nodes", node?),
            };
            let lister = Lister { client, site: &settings.osf, api, token: token.as_ref(), key: key.as_deref() };
            let files = lister.files(below(api, [kind, &id, "files", "osfstorage", ""])).await?;
            if files.is_empty() {
                return Err(lister.empty(kind, &id).await);
            }
            let (host, NodeAttributes { title, description, date_created }) =
                (domain(&settings.osf), node.data.attributes);
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&host, &[&id]),
                former_item_name: None,
                told_bytes: None,
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

/// Place at OSF.
enum Place {
    /// A project or registration, or perhaps a file or preprint.
    Node(String),
    /// Another kind of page.
    Other,
}

/// Returns the place of a page: five or more letters and digits, alone or before `files`, are an identifier.
fn place(url: &Url, settings: &PlatformSettings) -> Option<Place> {
    let path = segments(url);
    let (id, rest) = path.get(segments(&settings.osf).len()..)?.split_first()?;
    if !is_below(url, &settings.osf) {
        return None;
    }
    if matches!(id.as_str(), "preprints" | "collections" | "institutions") {
        return Some(Place::Other);
    }
    let is_id = id.len() >= 5 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_project = rest.is_empty() || (rest[0] == "files" && rest.len() <= 2) || rest[0] == "overview";
    (is_id && is_project).then(|| Place::Node(id.clone()))
}

/// Returns the key of a link that opens a private project.
fn view_only_key(page: &LandingPage) -> Option<String> {
    let key = |hop: &Url| hop.query_pairs().find(|(name, _)| name == "view_only").map(|(_, key)| key.into_owned());
    page.hops.iter().rev().find_map(key)
}

fn with_query(mut url: Url, parameters: impl IntoIterator<Item = (&'static str, impl AsRef<str>)>) -> Url {
    let parameters: Vec<_> = parameters.into_iter().collect();
    if !parameters.is_empty() {
        let known: Vec<_> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        let new = parameters.iter().filter(|(name, _)| !known.iter().any(|known| known == name));
        url.query_pairs_mut().extend_pairs(new);
    }
    url
}

/// Returns the failure for an identifier of something else, such as a file or a preprint; `None` if nothing has it.
async fn other_kind(
    id: &str,
    api: &Url,
    client: &PlatformClient,
    token: Option<&PlatformToken>,
) -> Option<IngestFailure> {
    let guid = client.json::<Guid>(&below(api, ["guids", id, ""]), token).await.ok()?;
    let kind = guid.data.kind.0?;
    Some(out_of_scope(format!("{id} is one of the {kind}; request a project or registration")))
}

/// Requests the list of the files.
struct Lister<'a> {
    client: &'a PlatformClient,
    /// Landing pages, and interface.
    site: &'a Url,
    api: &'a Url,
    token: Option<&'a PlatformToken>,
    /// Key of a link that opens a private project.
    key: Option<&'a str>,
}

impl Lister<'_> {
    /// Returns all files below a folder. Only sorted pages are complete: without an order, the last entry of a page comes
    /// back on the next one and displaces another.
    async fn files(&self, root: Url) -> Result<Vec<PlatformFile>, IngestFailure> {
        let (mut folders, mut files, mut requests) = (VecDeque::from([root]), Vec::new(), 0);
        while let Some(folder) = folders.pop_front() {
            let (mut next, mut seen, mut total) = (Some(folder.clone()), HashSet::new(), None);
            while let Some(list) = next.take() {
                requests += 1;
                if requests > MAX_REQUESTS || files.len() > MAX_ENTRIES {
                    let message = format!("the list of files needs more than {MAX_REQUESTS} requests");
                    return Err(IngestFailure::permanent(IngestStatus::TOO_MANY_FILES, message));
                }
                let page = self.client.json::<Page>(&self.paged(list), self.token).await.map_err(of_list)?;
                let mut has_new = false;
                for entry in page.data {
                    let Attributes { name, kind, materialized_path, .. } = &entry.attributes;
                    let path = materialized_path.as_ref().unwrap_or(name);
                    let identity = entry.id.0.clone().unwrap_or_else(|| format!("{kind:?} {path}"));
                    if !seen.insert(identity) {
                        continue;
                    }
                    has_new = true;
                    let href = entry.relationships.files.as_ref().map(|files| files.links.related.href.clone());
                    match (kind, href) {
                        (Kind::File, _) => files.push(self.keyed(entry.manifest())),
                        (Kind::Folder, Some(href)) => folders.push_back(own_link(self.api, &href)?),
                        (Kind::Folder, None) => {
                            return Err(IngestFailure::bad_answer("a folder of the answer has no list"));
                        }
                    }
                }
                let of = |totals: TextOr<Totals>| totals.object().and_then(|totals| totals.total.0);
                total = of(page.links.meta).or(of(page.meta)).or(total);
                // A server that ignores the number of the page repeats the first one.
                let following = page.links.next.filter(|_| has_new);
                next = following.map(|next| own_link(self.api, &next)).transpose()?;
            }
            let listed = seen.len() as u64;
            if let Some(total) = total.filter(|total| *total != listed) {
                let message = format!("{} has {total} entries, and lists {listed}", named(&folder));
                return Err(partial_list(message));
            }
        }
        Ok(files)
    }

    /// Returns a file with the key in the URL of its download, if that is at a host of OSF.
    fn keyed(&self, mut file: PlatformFile) -> PlatformFile {
        let url = file.manifest.platform_url.as_deref().and_then(|url| Url::parse(url).ok());
        let is_own = |url: &Url| {
            let below_site = || Some(url.domain()?.strip_suffix(self.site.domain()?)?.ends_with('.'));
            [self.site, self.api].iter().any(|own| own.origin() == url.origin()) || below_site() == Some(true)
        };
        if let (Some(key), Some(url)) = (self.key, url.filter(is_own)) {
            file.manifest.platform_url = Some(with_query(url, [("view_only", key)]).into());
        }
        file
    }

    /// Returns the failure of a project without files, which says where files may be instead.
    async fn empty(&self, kind: &str, id: &str) -> IngestFailure {
        let mut elsewhere = Vec::new();
        for (part, what) in [("children", "components"), ("files", "storages")] {
            let list = self.paged(below(self.api, [kind, id, part, ""]));
            let entries = self.client.json::<AnyEntries>(&list, self.token).await;
            let count = entries.map_or(0, |entries| entries.data.count);
            // The storage of OSF is one of them.
            let count = if part == "files" { count.saturating_sub(1) } else { count };
            if count > 0 {
                elsewhere.push(format!("{count} {what}"));
            }
        }
        let others = if elsewhere.is_empty() {
            String::new()
        } else {
            format!("; it has {}, which are datasets of their own or belong to other services", elsewhere.join(" and "))
        };
        IngestFailure::permanent(IngestStatus::EMPTY_MANIFEST, format!("the storage of OSF has no files{others}"))
    }

    /// Returns the URL of a page of a list, with the order, the size and the key of all pages.
    fn paged(&self, list: Url) -> Url {
        let page = [("sort", "name"), ("page[size]", "100")];
        with_query(list, page.into_iter().chain(self.key.map(|key| ("view_only", key))))
    }
}

impl Entry {
    fn manifest(self) -> PlatformFile {
        let Attributes { name, materialized_path, size, extra, .. } = self.attributes;
        let path = materialized_path.map_or(name, |path| path.trim_start_matches('/').to_owned());
        let hashes = extra.object().and_then(|extra| extra.hashes.object()).unwrap_or_default();
        let alternative = self.id.0.and_then(|id| with_id(&path, id));
        PlatformFile {
            alternative,
            ..PlatformFile::new(ManifestFile {
                path,
                size,
                md5: hashes.md5,
                sha256: hashes.sha256,
                platform_url: self.links.download,
                ..ManifestFile::default()
            })
        }
    }
}
