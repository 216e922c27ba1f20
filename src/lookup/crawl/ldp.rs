//! Crawls a Fedora 4, 5 or 6, or any tree of LDP containers: reads the children of each container
//! (`ldp:contains`), descends into containers, and reads the descriptions of binaries.
//!
//! Tombstones (410) are skipped, and so are resources with the prefix `fcr:` that are no descriptions, because
//! access control is no content. The digest of a binary is read from its description, where Fedora stores it;
//! for `Want-Digest` Fedora 6 would read the whole binary.

use std::collections::{HashSet, VecDeque};

use axum::http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED, LINK},
};
use futures_util::future::join_all;

use super::{
    CrawlError, CrawlPart, CrawlPosition, Look, PART_OBJECTS,
    bottom_n::BottomN,
    ntriples::{Lines, Object, triple},
    requests::CrawlRequests,
};
use crate::{
    format::{resource_uri, web_links::link_targets},
    http_client::header_text,
    lookup::LookupError,
    model::{
        ContentLocation, CrawledItem, CrawledObject, Digest, DigestAlgorithm, MediaType, NonEmpty, Timestamp, Uri,
    },
    web::header_date,
};

/// Maximum nesting depth of containers.
const MAX_DEPTH: usize = 64;

const N_TRIPLES: &str = "application/n-triples";
const CONTAINS: &str = "http://www.w3.org/ns/ldp#contains";
const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
const HAS_MESSAGE_DIGEST: &str = "http://www.loc.gov/premis/rdf/v1#hasMessageDigest";
const NON_RDF_SOURCE: &str = "http://www.w3.org/ns/ldp#NonRDFSource";
/// Namespace of Fedora's own types. Fedora 6 lists them in the headers, other versions only in the
/// representation.
const FEDORA: &str = "http://fedora.info/definitions/";

pub(super) struct LdpCrawl {
    requests: CrawlRequests,
    base_url: String,
    /// The containers on the current path, from the outermost. Paths are below the repository's URL.
    path: Vec<Container>,
    has_begun: bool,
}

/// A container on the current path.
struct Container {
    path: String,
    /// The last child that was crawled with all of its descendants.
    last: Option<String>,
    /// The next children, not requested yet.
    pending: VecDeque<String>,
    /// Children that were requested; the flag is true if a child may have children of its own.
    requested: VecDeque<(String, bool)>,
    has_more: bool,
}

/// The result of requesting a resource.
struct CrawledResource {
    objects: Vec<CrawledObject>,
    is_container: bool,
}

/// Facts about a resource, from its headers or its representation.
#[derive(Default)]
struct Facts {
    types: Vec<Uri>,
    /// Set of `types`, for finding duplicates.
    type_set: HashSet<Uri>,
    digest: Option<Digest>,
}

impl Container {
    fn at(path: String, last: Option<String>) -> Self {
        Self { path, last, pending: VecDeque::new(), requested: VecDeque::new(), has_more: true }
    }
}

impl LdpCrawl {
    pub(super) fn new(requests: CrawlRequests, base_url: String, path: Vec<(String, Option<String>)>) -> Self {
        let path = if path.is_empty() { vec![(String::new(), None)] } else { path };
        let path = path.into_iter().map(|(path, last)| Container::at(path, last)).collect();
        Self { requests, base_url, path, has_begun: false }
    }

    /// Requests one resource. Its parent is the path above it, which need not be a container.
    pub(super) async fn look(&self, object: &Uri) -> Result<Look, CrawlError> {
        let Some(path) = self.path_of(object.as_str()) else { return Ok(Look::Outside) };
        let path = no_slash(&path);
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        // A binary is followed by its description, which is an object of its own.
        let found = self.resource(path, parent).await?.objects.into_iter().next();
        Ok(found.map_or(Look::Gone, |found| Look::Present(Box::new(under_name(found, object)))))
    }

    /// Continues until at least one resource was found or skipped, or the crawl ends.
    pub(super) async fn next(&mut self) -> Result<CrawlPart, CrawlError> {
        let mut part = CrawlPart::default();
        while part.objects.is_empty() && part.skipped.is_empty() && !self.path.is_empty() {
            self.step(&mut part).await?;
        }
        part.position = CrawlPosition::Within(
            self.path.iter().map(|container| (container.path.clone(), container.last.clone())).collect(),
        )
        .to_json();
        part.done = self.path.is_empty();
        Ok(part)
    }

    async fn step(&mut self, part: &mut CrawlPart) -> Result<(), CrawlError> {
        let depth = self.path.len();
        let pending_names: usize = self.path.iter().map(|container| container.pending.len()).sum();
        let Some(container) = self.path.last_mut() else { return Ok(()) };
        if let Some((path, is_container)) = container.requested.pop_front() {
            if !is_container {
                container.last = Some(path);
            } else if depth == MAX_DEPTH {
                return Err(CrawlError::TooDeep(MAX_DEPTH, path));
            } else {
                self.path.push(Container::at(path, None));
            }
        } else if !container.pending.is_empty() {
            self.request_children(part).await?;
        } else if container.has_more {
            let names = self.requests.options.max_names;
            let capacity = names.saturating_sub(pending_names).max(names / 100);
            self.refill(capacity).await?;
        } else if let Some(done) = self.path.pop()
            && let Some(parent) = self.path.last_mut()
        {
            parent.last = Some(done.path);
        }
        Ok(())
    }

    /// Reads the children of the innermost container and keeps those that come next.
    async fn refill(&mut self, capacity: usize) -> Result<(), CrawlError> {
        let Some(container) = self.path.last() else { return Ok(()) };
        let mut bottom_n = BottomN::new(container.last.clone(), capacity);
        let exists = self.children(&container.path, &mut bottom_n).await?;
        if !exists && !self.has_begun && container.path.is_empty() {
            return Err(CrawlError::NoRepository(self.requests.repository.settings().url.to_string()));
        }
        self.has_begun = true;
        let (pending, has_more) = bottom_n.into_sorted();
        if let Some(container) = self.path.last_mut() {
            container.pending = pending.into_keys().collect();
            // If no child was kept, the list has no more children either.
            container.has_more = has_more;
        }
        Ok(())
    }

    /// Adds the children of a container to `bottom_n`, and returns true if the container exists.
    async fn children(&self, path: &str, bottom_n: &mut BottomN<()>) -> Result<bool, CrawlError> {
        let mut foreign = None;
        let headers = self
            .read(path, |subject, predicate, object| {
                let Object::Resource(child) = object else { return };
                if predicate != CONTAINS || self.path_of(subject).as_deref().map(no_slash) != Some(no_slash(path)) {
                    return;
                }
                match self.path_of(child) {
                    Some(child) if is_content(&child) => bottom_n.insert(no_slash(&child).to_owned(), ()),
                    Some(_) => {}
                    None => foreign = Some(child.to_owned()),
                }
            })
            .await?;
        match foreign {
            Some(foreign) => Err(CrawlError::UnknownBaseUrl(foreign)),
            None => Ok(headers.is_some()),
        }
    }

    /// Requests the next children concurrently.
    async fn request_children(&mut self, part: &mut CrawlPart) -> Result<(), CrawlError> {
        let Some(container) = self.path.last() else { return Ok(()) };
        let batch: Vec<String> = container.pending.iter().take(PART_OBJECTS).cloned().collect();
        let parent_path = container.path.clone();
        let results = join_all(batch.iter().map(|path| self.resource(path, &parent_path))).await;
        let mut requested = VecDeque::with_capacity(batch.len());
        for (path, result) in batch.into_iter().zip(results) {
            match result {
                Ok(crawled) => {
                    part.objects.extend(crawled.objects);
                    requested.push_back((path, crawled.is_container));
                }
                Err(error) => {
                    part.skipped.push(self.requests.skip(&path, error)?);
                    requested.push_back((path, false));
                }
            }
        }
        if let Some(container) = self.path.last_mut() {
            container.pending.drain(..requested.len());
            container.requested = requested;
        }
        Ok(())
    }

    /// Requests a resource, with its description if it is a binary. Empty if the resource no longer exists.
    async fn resource(&self, path: &str, parent_path: &str) -> Result<CrawledResource, CrawlError> {
        // All versions require the slash for the repository root.
        let at = if path.is_empty() { "/" } else { path };
        let Some(head) = self.requests.head(at, &[]).await? else { return Ok(CrawledResource::missing()) };
        let mut facts = Facts::of(&head.headers);
        let is_binary = targets(&head.headers, "type").iter().any(|kind| kind == NON_RDF_SOURCE);
        let parent = Some(self.public_uri(parent_path)?);
        if !is_binary {
            if !facts.has_types_of_fedora() {
                self.describe(path, path, &mut facts).await?;
            }
            let content = ContentLocation::at(self.public_uri(path)?);
            return Ok(CrawledResource {
                objects: vec![self.object(path, &head.headers, parent, facts, content)?],
                is_container: true,
            });
        }
        let mut objects = Vec::with_capacity(2);
        let description = targets(&head.headers, "describedby").first().and_then(|target| self.path_of(target));
        if let Some(described) = description
            && let Some(headers) = self.describe(&described, path, &mut facts).await?
        {
            let own = Facts::of(&headers);
            let content = ContentLocation::at(self.public_uri(&described)?);
            objects.push(self.object(&described, &headers, Some(self.public_uri(path)?), own, content)?);
        }
        let content = ContentLocation {
            media_type: text(&head.headers, CONTENT_TYPE.as_str()).and_then(|kind| MediaType::parse(kind).ok()),
            size: text(&head.headers, CONTENT_LENGTH.as_str()).and_then(|size| size.parse().ok()),
            digest: facts.digest.clone(),
            ..ContentLocation::at(self.public_uri(path)?)
        };
        objects.insert(0, self.object(path, &head.headers, parent, facts, content)?);
        Ok(CrawledResource { objects, is_container: false })
    }

    /// Reads facts about the resource `about` from the representation at `path`. Returns the headers; `None`
    /// if the representation does not exist.
    async fn describe(&self, path: &str, about: &str, facts: &mut Facts) -> Result<Option<HeaderMap>, CrawlError> {
        self.read(path, |subject, predicate, object| {
            if self.path_of(subject).as_deref().map(no_slash) != Some(no_slash(about)) {
                return;
            }
            match (predicate, object) {
                (TYPE, Object::Resource(kind)) => facts.add_type(kind),
                (HAS_MESSAGE_DIGEST, Object::Resource(digest)) => {
                    facts.digest = facts.digest.take().or_else(|| digest_of(digest));
                }
                _ => {}
            }
        })
        .await
    }

    /// Reads a representation triple by triple. Returns the headers; `None` if the representation does not
    /// exist.
    async fn read(
        &self,
        path: &str,
        mut each: impl FnMut(&str, &str, Object<'_>),
    ) -> Result<Option<HeaderMap>, CrawlError> {
        let request_error = |error| CrawlError::Request { path: path.to_owned(), error };
        // All versions require the slash for the repository root.
        let at = if path.is_empty() { "/" } else { path };
        let Some(mut body) = self.requests.open(at, N_TRIPLES).await? else { return Ok(None) };
        if !text(&body.headers, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(N_TRIPLES)) {
            return Err(request_error(LookupError::InvalidResponse(format!(
                "it is not {N_TRIPLES}, which was requested"
            ))));
        }
        let mut lines = Lines::default();
        let mut line = |line: &str| {
            if let Some((subject, predicate, object)) = triple(line) {
                each(subject, predicate, object);
            }
        };
        while let Some(piece) = body.piece().await.map_err(request_error)? {
            lines.push(&piece, &mut line);
        }
        lines.finish(line);
        Ok(Some(body.headers))
    }

    fn object(
        &self,
        path: &str,
        headers: &HeaderMap,
        parent: Option<Uri>,
        facts: Facts,
        content: ContentLocation,
    ) -> Result<CrawledObject, CrawlError> {
        let object = self.public_uri(path)?;
        let at = header_date(headers, &LAST_MODIFIED).map_or(Timestamp::EPOCH, Timestamp::from_datetime);
        let item = CrawledItem { uri: object.clone(), at, content: Some(content), state: None };
        Ok(CrawledObject { object, at, parent, types: facts.types, items: NonEmpty::one(item) })
    }

    /// Returns the URI that messages use for the resource at a path.
    fn public_uri(&self, path: &str) -> Result<Uri, CrawlError> {
        // The repository root ends with a slash, as in lookups for events.
        resource_uri(&self.base_url, path).map_err(|error| CrawlError::InvalidBaseUrl(error.to_string()))
    }

    /// Returns the path of a resource below the repository's URL, spelled as the repository spells it.
    fn path_of(&self, uri: &str) -> Option<String> {
        let settings = self.requests.repository.settings();
        let below = |base: &str| uri.strip_prefix(base).filter(|path| path.is_empty() || path.starts_with('/'));
        let bases = std::iter::once(&settings.url).chain(&settings.public_urls);
        let as_written = bases.filter_map(|base| below(base.as_str())).min_by_key(|path| path.len());
        as_written.map(str::to_owned).or_else(|| settings.path_of(uri))
    }
}

impl CrawledResource {
    fn missing() -> Self {
        Self { objects: Vec::new(), is_container: false }
    }
}

impl Facts {
    /// Returns the facts in the headers: the types.
    fn of(headers: &HeaderMap) -> Self {
        let mut facts = Self::default();
        targets(headers, "type").into_iter().for_each(|kind| facts.add_type(&kind));
        facts
    }

    fn has_types_of_fedora(&self) -> bool {
        self.types.iter().any(|kind| kind.as_str().starts_with(FEDORA))
    }

    fn add_type(&mut self, kind: &str) {
        if let Ok(kind) = Uri::parse(kind)
            && self.type_set.insert(kind.clone())
        {
            self.types.push(kind);
        }
    }
}

/// Returns a resource under another spelling of its URI: a message may name the repository root without its slash.
fn under_name(found: CrawledObject, name: &Uri) -> CrawledObject {
    let (former, items) = (&found.object, found.items.clone());
    let renamed = |uri: Uri| if uri == *former { name.clone() } else { uri };
    let items = items.map(|item| CrawledItem {
        uri: renamed(item.uri),
        content: item.content.map(|content| ContentLocation { url: renamed(content.url), ..content }),
        ..item
    });
    CrawledObject { object: name.clone(), items, ..found }
}

/// Returns the targets of all links with a relation.
fn targets(headers: &HeaderMap, relation: &str) -> Vec<String> {
    link_targets(headers.get_all(LINK).iter().map(header_text), relation)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Parses a digest in Fedora's notation, `urn:sha-512:…`.
fn digest_of(urn: &str) -> Option<Digest> {
    let (algorithm, value) = urn.strip_prefix("urn:")?.split_once(':')?;
    Digest::parse(DigestAlgorithm::parse(algorithm)?, value).ok()
}

/// True for content; false for the repository root and Fedora's administrative resources (`fcr:`).
fn is_content(path: &str) -> bool {
    let path = no_slash(path);
    !path.is_empty() && !path.rsplit('/').next().is_some_and(|name| name.starts_with("fcr:"))
}

fn no_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}
