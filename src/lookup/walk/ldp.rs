//! Through a Fedora 4, 5 or 6, as through any tree of LDP containers: what each contains (`ldp:contains`), containers with
//! what they contain in turn, binaries with their descriptions.
//!
//! Tombstones answer 410 and are left out, and so is what begins with `fcr:` and is no description: access control is no
//! content. The digest of a binary is read from its description, where Fedora keeps it: asked for it by `Want-Digest`,
//! Fedora 6 reads the whole binary.

use std::collections::{HashSet, VecDeque};

use axum::http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED, LINK},
};
use futures_util::future::join_all;

use super::{
    AT_ONCE, Part, Place, WalkError,
    asking::Asking,
    smallest::Smallest,
    triples::{Lines, Object, triple},
};
use crate::{
    format::{ldp::links, resource_at},
    lookup::LookupError,
    model::{
        ContentLocation, CrawledItem, CrawledObject, Digest, DigestAlgorithm, MediaType, NonEmpty, Timestamp, Uri,
    },
    web::header_date,
};

/// How deep containers may be nested.
const DEEPEST: usize = 64;

const N_TRIPLES: &str = "application/n-triples";
const CONTAINS: &str = "http://www.w3.org/ns/ldp#contains";
const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";
const DIGEST: &str = "http://www.loc.gov/premis/rdf/v1#hasMessageDigest";
const NON_RDF_SOURCE: &str = "http://www.w3.org/ns/ldp#NonRDFSource";
/// Where Fedora's own types are: a Fedora 6 tells them in the headers, others in the representation alone.
const FEDORA: &str = "http://fedora.info/definitions/";

pub(super) struct Way {
    asking: Asking,
    base_url: String,
    /// The containers that are being walked through, from the outermost. Paths are below the repository's address.
    within: Vec<Container>,
    has_begun: bool,
}

/// A container on the way.
struct Container {
    path: String,
    /// The last of its resources that was walked through with all that it contains.
    last: Option<String>,
    /// Those that come next and are not looked at yet.
    coming: VecDeque<String>,
    /// Those that were looked at, and whether there may be more in them.
    looked_at: VecDeque<(String, bool)>,
    has_more: bool,
}

/// A resource that was looked at.
struct Seen {
    found: Vec<CrawledObject>,
    is_container: bool,
}

/// What its headers, or its representation, say of a resource.
#[derive(Default)]
struct Facts {
    types: Vec<Uri>,
    /// The same, to see which is known already.
    known: HashSet<Uri>,
    digest: Option<Digest>,
}

impl Container {
    fn at(path: String, last: Option<String>) -> Self {
        Self { path, last, coming: VecDeque::new(), looked_at: VecDeque::new(), has_more: true }
    }
}

impl Way {
    pub(super) fn new(asking: Asking, base_url: String, path: Vec<(String, Option<String>)>) -> Self {
        let path = if path.is_empty() { vec![(String::new(), None)] } else { path };
        let within = path.into_iter().map(|(path, last)| Container::at(path, last)).collect();
        Self { asking, base_url, within, has_begun: false }
    }

    /// Goes on until something was found, or to the end.
    pub(super) async fn next(&mut self) -> Result<Part, WalkError> {
        let mut part = Part::default();
        while part.found.is_empty() && part.left_out.is_empty() && !self.within.is_empty() {
            self.step(&mut part).await?;
        }
        part.place =
            Place::Within(self.within.iter().map(|held| (held.path.clone(), held.last.clone())).collect()).written();
        part.done = self.within.is_empty();
        Ok(part)
    }

    async fn step(&mut self, part: &mut Part) -> Result<(), WalkError> {
        let depth = self.within.len();
        let held: usize = self.within.iter().map(|container| container.coming.len()).sum();
        let Some(container) = self.within.last_mut() else { return Ok(()) };
        if let Some((path, is_container)) = container.looked_at.pop_front() {
            if !is_container {
                container.last = Some(path);
            } else if depth == DEEPEST {
                return Err(WalkError::TooDeep(DEEPEST, path));
            } else {
                self.within.push(Container::at(path, None));
            }
        } else if !container.coming.is_empty() {
            self.look(part).await?;
        } else if container.has_more {
            let names = self.asking.manner.names;
            let room = names.saturating_sub(held).max(names / 100);
            self.list(room).await?;
        } else if let Some(done) = self.within.pop()
            && let Some(around) = self.within.last_mut()
        {
            around.last = Some(done.path);
        }
        Ok(())
    }

    /// Reads what the innermost container contains, for what comes next.
    async fn list(&mut self, room: usize) -> Result<(), WalkError> {
        let Some(container) = self.within.last() else { return Ok(()) };
        let mut smallest = Smallest::new(container.last.clone(), room);
        let listed = self.children(&container.path, &mut smallest).await?;
        if !listed && !self.has_begun && container.path.is_empty() {
            return Err(WalkError::NoRepository(self.asking.repository.settings().url.to_string()));
        }
        self.has_begun = true;
        let (coming, has_more) = smallest.into_sorted();
        if let Some(container) = self.within.last_mut() {
            container.coming = coming.into_keys().collect();
            // What came to nothing has come to its end.
            container.has_more = has_more;
        }
        Ok(())
    }

    /// Picks from what a container contains; says whether the container is there.
    async fn children(&self, path: &str, smallest: &mut Smallest<()>) -> Result<bool, WalkError> {
        let mut foreign = None;
        let there = self
            .read(path, |subject, predicate, object| {
                let Object::Resource(child) = object else { return };
                if predicate != CONTAINS || self.path_of(subject).as_deref().map(no_slash) != Some(no_slash(path)) {
                    return;
                }
                match self.path_of(child) {
                    Some(child) if is_content(&child) => smallest.take(no_slash(&child).to_owned(), ()),
                    Some(_) => {}
                    None => foreign = Some(child.to_owned()),
                }
            })
            .await?;
        match foreign {
            Some(foreign) => Err(WalkError::Foreign(foreign)),
            None => Ok(there.is_some()),
        }
    }

    /// Looks at those that come next, several at once.
    async fn look(&mut self, part: &mut Part) -> Result<(), WalkError> {
        let Some(container) = self.within.last() else { return Ok(()) };
        let now: Vec<String> = container.coming.iter().take(AT_ONCE).cloned().collect();
        let around = container.path.clone();
        let seen = join_all(now.iter().map(|path| self.resource(path, &around))).await;
        let mut looked_at = VecDeque::with_capacity(now.len());
        for (path, seen) in now.into_iter().zip(seen) {
            match seen {
                Ok(seen) => {
                    part.found.extend(seen.found);
                    looked_at.push_back((path, seen.is_container));
                }
                Err(error) => {
                    part.left_out.push(self.asking.left_out(&path, error)?);
                    looked_at.push_back((path, false));
                }
            }
        }
        if let Some(container) = self.within.last_mut() {
            container.coming.drain(..looked_at.len());
            container.looked_at = looked_at;
        }
        Ok(())
    }

    /// A resource, with its description where it is a binary; nothing where it is gone.
    async fn resource(&self, path: &str, around: &str) -> Result<Seen, WalkError> {
        let Some(told) = self.asking.head(path, &[]).await? else { return Ok(Seen::nothing()) };
        let mut facts = Facts::of(&told.headers);
        let is_binary = targets(&told.headers, "type").contains(&NON_RDF_SOURCE);
        let parent = Some(self.named(around)?);
        if !is_binary {
            if !facts.has_types_of_fedora() {
                self.describe(path, path, &mut facts).await?;
            }
            let content = ContentLocation::at(self.named(path)?);
            return Ok(Seen {
                found: vec![self.found(path, &told.headers, parent, facts, content)?],
                is_container: true,
            });
        }
        let mut found = Vec::with_capacity(2);
        let description = targets(&told.headers, "describedby").first().and_then(|target| self.path_of(target));
        if let Some(described) = description
            && let Some(headers) = self.describe(&described, path, &mut facts).await?
        {
            let own = Facts::of(&headers);
            let content = ContentLocation::at(self.named(&described)?);
            found.push(self.found(&described, &headers, Some(self.named(path)?), own, content)?);
        }
        let content = ContentLocation {
            media_type: text(&told.headers, CONTENT_TYPE.as_str()).and_then(|kind| MediaType::parse(kind).ok()),
            size: text(&told.headers, CONTENT_LENGTH.as_str()).and_then(|size| size.parse().ok()),
            digest: facts.digest.clone(),
            ..ContentLocation::at(self.named(path)?)
        };
        found.insert(0, self.found(path, &told.headers, parent, facts, content)?);
        Ok(Seen { found, is_container: false })
    }

    /// Reads what the representation at `path` says of the resource `about`; gives its headers, if it is there.
    async fn describe(&self, path: &str, about: &str, facts: &mut Facts) -> Result<Option<HeaderMap>, WalkError> {
        self.read(path, |subject, predicate, object| {
            if self.path_of(subject).as_deref().map(no_slash) != Some(no_slash(about)) {
                return;
            }
            match (predicate, object) {
                (TYPE, Object::Resource(kind)) => facts.add_type(kind),
                (DIGEST, Object::Resource(digest)) => facts.digest = facts.digest.take().or_else(|| digest_of(digest)),
                _ => {}
            }
        })
        .await
    }

    /// Reads a representation triple by triple; gives its headers, if it is there.
    async fn read(
        &self,
        path: &str,
        mut each: impl FnMut(&str, &str, Object<'_>),
    ) -> Result<Option<HeaderMap>, WalkError> {
        let asked = |error| WalkError::Asked { path: path.to_owned(), error };
        // The repository itself answers with a slash, whatever the version.
        let at = if path.is_empty() { "/" } else { path };
        let Some(mut body) = self.asking.open(at, N_TRIPLES).await? else { return Ok(None) };
        if !text(&body.headers, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(N_TRIPLES)) {
            return Err(asked(LookupError::Nonsense(format!("it is not {N_TRIPLES}, as was asked for"))));
        }
        let mut lines = Lines::default();
        let mut line = |line: &str| {
            if let Some((subject, predicate, object)) = triple(line) {
                each(subject, predicate, object);
            }
        };
        while let Some(piece) = body.piece().await.map_err(asked)? {
            lines.take(&piece, &mut line);
        }
        lines.finish(line);
        Ok(Some(body.headers))
    }

    fn found(
        &self,
        path: &str,
        headers: &HeaderMap,
        parent: Option<Uri>,
        facts: Facts,
        content: ContentLocation,
    ) -> Result<CrawledObject, WalkError> {
        let object = self.named(path)?;
        let at = header_date(headers, &LAST_MODIFIED).map_or(Timestamp::EPOCH, Timestamp::from_datetime);
        let item = CrawledItem { uri: object.clone(), at, content: Some(content), state: None };
        Ok(CrawledObject { object, at, parent, types: facts.types, items: NonEmpty::one(item) })
    }

    /// What messages call the resource at a path.
    fn named(&self, path: &str) -> Result<Uri, WalkError> {
        // The repository itself has a slash, as in what is looked up of events.
        resource_at(&self.base_url, path).map_err(|error| WalkError::BaseUrl(error.to_string()))
    }

    /// The path of a resource below the repository's address, as the repository wrote it.
    fn path_of(&self, uri: &str) -> Option<String> {
        let settings = self.asking.repository.settings();
        let below = |base: &str| uri.strip_prefix(base).filter(|path| path.is_empty() || path.starts_with('/'));
        let bases = std::iter::once(&settings.url).chain(&settings.public_urls);
        let written = bases.filter_map(|base| below(base.as_str())).min_by_key(|path| path.len());
        written.map(str::to_owned).or_else(|| settings.path_of(uri))
    }
}

impl Seen {
    fn nothing() -> Self {
        Self { found: Vec::new(), is_container: false }
    }
}

impl Facts {
    /// The types that headers tell.
    fn of(headers: &HeaderMap) -> Self {
        let mut facts = Self::default();
        targets(headers, "type").into_iter().for_each(|kind| facts.add_type(kind));
        facts
    }

    fn has_types_of_fedora(&self) -> bool {
        self.types.iter().any(|kind| kind.as_str().starts_with(FEDORA))
    }

    fn add_type(&mut self, kind: &str) {
        if let Ok(kind) = Uri::parse(kind)
            && self.known.insert(kind.clone())
        {
            self.types.push(kind);
        }
    }
}

/// The targets of the links of that relation.
fn targets<'h>(headers: &'h HeaderMap, relation: &str) -> Vec<&'h str> {
    links(headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok()), relation)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// `urn:sha-512:…`, as Fedora writes digests.
fn digest_of(urn: &str) -> Option<Digest> {
    let (algorithm, value) = urn.strip_prefix("urn:")?.split_once(':')?;
    Digest::parse(DigestAlgorithm::parse(algorithm)?, value).ok()
}

/// Whether it is content, and nothing that Fedora keeps beside it.
fn is_content(path: &str) -> bool {
    let path = no_slash(path);
    !path.is_empty() && !path.rsplit('/').next().is_some_and(|name| name.starts_with("fcr:"))
}

fn no_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}
