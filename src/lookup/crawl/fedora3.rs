//! Crawls a Fedora 3: reads the list of its objects (findObjects), and the datastreams of each object.
//!
//! The list has no order (the server's ordering is disabled) and cannot start at a PID, because its operators
//! `>` and `>=` are for dates only. Its session tokens expire, by default after 500 seconds. The crawl
//! therefore sorts by PID itself: it reads the whole list without a pause, keeps the next PIDs, crawls their
//! objects, and reads the list again. The position is a PID and depends on no token.

use std::collections::VecDeque;

use futures_util::future::join_all;

use super::{CrawlError, CrawlPart, CrawlPosition, Look, PART_OBJECTS, bottom_n::BottomN, requests::CrawlRequests};
use crate::{
    format::{
        Limits, Rejection, RestUris,
        fedora_objects::{ListedObject, object_page, object_profile},
        fedora_relations::{Relations, relations},
        fedora_rest::{DatastreamVersion, ListedDatastream, datastream_profile, datastreams},
        stated_dates::DatePredicates,
    },
    lookup::{LookupError, Resource},
    model::{ContentLocation, CrawledItem, CrawledObject, NonEmpty, State, Timestamp, Uri},
};

/// Number of attempts to read the list. A list breaks off if, for example, an object is purged meanwhile.
const LIST_ATTEMPTS: u32 = 5;

/// Page size of the list. Fedora's default maximum is 100.
const PAGE_SIZE: &str = "1000";

const XML: &str = "text/xml, application/xml;q=0.9";

/// Prefix of Fedora's own URIs.
const FEDORA_URI: &str = "info:fedora/";

pub(super) struct Fedora3Crawl {
    requests: CrawlRequests,
    names: RestUris,
    after: Option<String>,
    pending: VecDeque<(String, ListEntry)>,
    /// True if the list has more objects after those in `pending`.
    has_more: bool,
}

/// Facts about an object in the list.
#[derive(Clone, Debug, Default)]
struct ListEntry {
    state: Option<State>,
    created: Option<Timestamp>,
}

impl Fedora3Crawl {
    pub(super) fn new(requests: CrawlRequests, base_url: &str, after: Option<String>) -> Result<Self, CrawlError> {
        let names = RestUris::new(base_url).map_err(|error| CrawlError::InvalidBaseUrl(error.to_string()))?;
        Ok(Self { requests, names, after, pending: VecDeque::new(), has_more: true })
    }

    pub(super) async fn next(&mut self) -> Result<CrawlPart, CrawlError> {
        if self.pending.is_empty() && self.has_more {
            self.refill().await?;
        }
        let batch: Vec<_> = self.pending.iter().take(PART_OBJECTS).cloned().collect();
        let results = join_all(batch.iter().map(|(pid, entry)| self.object(pid, entry))).await;
        let mut part = CrawlPart::default();
        for ((pid, _), object) in batch.iter().zip(results) {
            match object {
                Ok(object) => part.objects.extend(object),
                Err(error) => part.skipped.push(self.requests.skip(pid, error)?),
            }
        }
        self.pending.drain(..batch.len());
        self.after = batch.into_iter().next_back().map(|(pid, _)| pid).or(self.after.take());
        part.position = CrawlPosition::After(self.after.clone().unwrap_or_default()).to_json();
        part.done = self.pending.is_empty() && !self.has_more;
        Ok(part)
    }

    /// Reads the list and keeps the objects that come next.
    async fn refill(&mut self) -> Result<(), CrawlError> {
        let mut last_error = String::new();
        for _ in 0..LIST_ATTEMPTS {
            match self.read_list().await? {
                Ok(bottom_n) => {
                    let (pending, has_more) = bottom_n.into_sorted();
                    self.pending = pending.into_iter().collect();
                    self.has_more = has_more;
                    return Ok(());
                }
                Err(why) => last_error = why,
            }
        }
        Err(CrawlError::List(last_error))
    }

    /// Reads the list once from its beginning. The inner error is the reason why the list broke off.
    async fn read_list(&self) -> Result<Result<BottomN<ListEntry>, String>, CrawlError> {
        let mut bottom_n = BottomN::new(self.after.clone(), self.requests.options.max_names);
        let fields = format!("resultFormat=xml&maxResults={PAGE_SIZE}&pid=true&state=true&cDate=true");
        let first = format!("/objects?terms=*&{fields}");
        let Some(response) = self.requests.get(&first, XML).await? else {
            return Err(CrawlError::NoRepository(self.requests.repository.settings().url.to_string()));
        };
        let mut page = read(&first, &response, object_page)?;
        loop {
            for ListedObject { pid, state, created } in page.objects {
                bottom_n.insert(pid, ListEntry { state, created });
            }
            let Some(token) = page.token else { return Ok(Ok(bottom_n)) };
            let next = format!("/objects?sessionToken={}&{fields}", escaped(&token));
            page = match self.requests.get(&next, XML).await {
                Ok(Some(response)) => read(&next, &response, object_page)?,
                Ok(None) => return Ok(Err("the next page does not exist".to_owned())),
                Err(CrawlError::Request { error: error @ LookupError::Status(_), .. }) => {
                    return Ok(Err(error.to_string()));
                }
                Err(error) => return Err(error),
            };
        }
    }

    /// Requests one object. Its state comes from its profile, because the list may be an hour old.
    pub(super) async fn look(&self, object: &Uri) -> Result<Look, CrawlError> {
        let Some(path) = self.requests.repository.settings().path_of(object.as_str()) else { return Ok(Look::Outside) };
        let Some(pid) = path.strip_prefix("/objects/").filter(|pid| !pid.is_empty() && !pid.contains('/')) else {
            return Ok(Look::Outside);
        };
        let pid = percent_encoding::percent_decode_str(pid).decode_utf8_lossy();
        let path = format!("/objects/{pid}?format=xml");
        let Some(response) = self.requests.get(&path, XML).await? else { return Ok(Look::Gone) };
        let ListedObject { state, created, .. } = read(&path, &response, object_profile)?;
        let found = self.object(&pid, &ListEntry { state, created }).await?;
        Ok(found.map_or(Look::Gone, |found| Look::Present(Box::new(found))))
    }

    /// Returns an object with its datastreams; `None` if it no longer exists.
    async fn object(&self, pid: &str, entry: &ListEntry) -> Result<Option<CrawledObject>, CrawlError> {
        let object = self.names.object(pid).map_err(|error| invalid_response(pid, error.to_string()))?;
        let below = format!("/objects/{pid}/datastreams");
        let path = format!("{below}?format=xml&profiles=true");
        let Some(response) = self.requests.get(&path, XML).await? else { return Ok(None) };
        let mut versions = Vec::new();
        for datastream in read(&path, &response, datastreams)? {
            versions.extend(match datastream {
                ListedDatastream::WithProfile(version) => Some(version),
                ListedDatastream::IdOnly(id) => self.datastream(&below, &id).await?,
            });
        }
        let Relations { models, parent, .. } = self.relations(&below, &versions).await?;
        let oldest = versions.iter().map(|version| version.created).min();
        let at = entry.created.or(oldest).unwrap_or(Timestamp::EPOCH);
        let items = versions.into_iter().map(|version| self.item(pid, version)).collect::<Result<Vec<_>, _>>()?;
        let itself = CrawledItem { uri: object.clone(), at, content: None, state: entry.state.clone() };
        let parent = parent.map(|parent| self.public_uri(parent)).filter(|parent| *parent != object);
        Ok(Some(CrawledObject { object, at, parent, types: models, items: NonEmpty::one_and(itself, items) }))
    }

    /// Requests the profile of a datastream. Before version 3.6, Fedora lists only the names of datastreams.
    /// `None` if it no longer exists.
    async fn datastream(&self, below: &str, id: &str) -> Result<Option<DatastreamVersion>, CrawlError> {
        let path = format!("{below}/{}?format=xml", escaped(id));
        let Some(response) = self.requests.get(&path, XML).await? else { return Ok(None) };
        let mut version = read(&path, &response, datastream_profile)?;
        id.clone_into(&mut version.datastream);
        Ok(Some(version))
    }

    /// Returns the relations in RELS-EXT; empty if it is missing or cannot be parsed.
    async fn relations(&self, below: &str, versions: &[DatastreamVersion]) -> Result<Relations, CrawlError> {
        if !versions.iter().any(|version| version.datastream == "RELS-EXT") {
            return Ok(Relations::default());
        }
        let path = format!("{below}/RELS-EXT/content");
        let response = self.requests.get(&path, "application/rdf+xml, text/xml;q=0.9, */*;q=0.1").await?;
        let predicates = DatePredicates::default();
        Ok(response.and_then(|response| relations(&response.body, &predicates, limits()).ok()).unwrap_or_default())
    }

    fn item(&self, pid: &str, version: DatastreamVersion) -> Result<CrawledItem, CrawlError> {
        let DatastreamVersion { datastream, created, state, media_type, size, digest, is_versioned, .. } = version;
        let invalid = |error: &dyn std::fmt::Display| invalid_response(pid, error.to_string());
        let uri = self.names.datastream(pid, &datastream).map_err(|error| invalid(&error))?;
        // A version that the next change replaces has no lasting URL.
        let dated_url = is_versioned.then(|| RestUris::version(&uri, created)).transpose();
        let url = dated_url.map_err(|error| invalid(&error))?.unwrap_or_else(|| uri.clone());
        let content = ContentLocation { media_type, size, digest, ..ContentLocation::at(url) };
        Ok(CrawledItem { uri, at: created, content: Some(content), state })
    }

    /// Converts a URI of Fedora to the URI that messages use.
    fn public_uri(&self, uri: Uri) -> Uri {
        let pid = uri.as_str().strip_prefix(FEDORA_URI);
        pid.and_then(|pid| self.names.object(pid).ok()).unwrap_or(uri)
    }
}

fn read<T>(
    path: &str,
    response: &Resource,
    reading: fn(&[u8], Limits) -> Result<T, Rejection>,
) -> Result<T, CrawlError> {
    reading(&response.body, limits()).map_err(|rejection| invalid_response(path, rejection.to_string()))
}

fn invalid_response(path: &str, why: String) -> CrawlError {
    CrawlError::Request { path: path.to_owned(), error: LookupError::InvalidResponse(why) }
}

fn limits() -> Limits {
    Limits::default()
}

/// Percent-encodes a text for a path or a query.
fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
