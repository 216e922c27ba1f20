//! Further documents of a feed (RFC 5005): archives and pages, which the first run reads, and each run whose predecessor
//! has missed entries.
//!
//! Archives are looked for first, from the newest to the oldest, and then read from the oldest to the newest, because an
//! archive may have older versions of entries. Pages are read from the newest to the oldest: new entries move others to
//! older pages meanwhile, so this order repeats entries and misses none.

use axum::http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    harvest::{FeedHarvester, page},
    position::{Position, Walk},
    read_document::ReadDocument,
};
use crate::{
    harvest::{HarvestError, Page, PageEnd},
    http_client::{OutboundUrl, is_transient},
};

/// Maximum number of archives or pages of one run.
const MAX_DOCUMENTS: usize = 500;

/// Number of attempts after which a document is not available at present.
const ATTEMPTS: u32 = 3;

/// Number of successive runs that a document may interrupt. With the waits after failed runs these are about 17 hours.
const MAX_INTERRUPTIONS: u32 = 10;

/// Maximum length of the URL of an archive or a page, in bytes.
const MAX_URL_BYTES: usize = 1024;

impl FeedHarvester {
    /// Returns the next document of a run.
    pub(super) async fn walk(&self, position: Position, walk: Walk, attempt: u32) -> Result<Page, HarvestError> {
        let (before, state) = (position.clone(), walk.clone());
        let result = match walk {
            Walk::Search { archives } => self.search(position, archives, attempt).await,
            Walk::Archives { archives, newest } => self.archive(position, archives, newest, attempt).await,
            Walk::Pages { next, visited } => self.further_page(position, next, visited, attempt).await,
            Walk::Missing { since, entries, is_plausible } => {
                self.delete_missing(position, since, entries, is_plausible).await
            }
            Walk::Subscribe => return self.subscribe(position).await,
        };
        match result {
            Err(HarvestError::Retry { reason, .. }) if attempt + 1 >= ATTEMPTS && state.has_links() => {
                interrupt(before, &state, reason)
            }
            result => result,
        }
    }

    /// Looks into an archive for the next older one.
    async fn search(
        &self,
        mut position: Position,
        mut archives: Vec<String>,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let url = archives.last().cloned().unwrap_or_default();
        let mut remark = None;
        let older = match self.linked_document(position.clone(), &url, attempt).await? {
            Ok((_, document)) => {
                let link = document.links.previous_archive.as_deref();
                let older = link.and_then(|link| self.link(&url, link));
                if link.is_some() && older.is_none() {
                    remark =
                        Some(format!("{} links an older archive by no usable URL; it is not read", short_url(&url)));
                }
                older.filter(|_| !document.overlaps(&position))
            }
            Err(reason) => {
                archives.pop();
                remark = Some(reason);
                None
            }
        };
        let older = older.filter(|older| {
            if archives.contains(older) {
                remark = Some(format!("the archives of the feed do not end: {} is linked again", short_url(older)));
            } else if archives.len() >= MAX_DOCUMENTS {
                remark = Some(format!("the feed has more than {MAX_DOCUMENTS} archives; the oldest are not read"));
            }
            remark.is_none()
        });
        position.walk = Some(match older {
            Some(older) => {
                archives.push(older);
                Walk::Search { archives }
            }
            None => {
                position.has_archives = self.is_audit && remark.is_none();
                let newest = archives.first().cloned().unwrap_or(url);
                Walk::Archives { archives, newest }
            }
        });
        Ok(page(&position, Vec::new(), PageEnd::More, Vec::from_iter(remark)))
    }

    /// Reads the oldest archive that was not read yet, or the feed after all of them.
    async fn archive(
        &self,
        position: Position,
        mut archives: Vec<String>,
        newest: String,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let Some(url) = archives.pop() else { return self.newest_document(position, Some(newest)).await };
        let walk = Some(Walk::Archives { archives, newest });
        Ok(match self.linked_document(position.clone(), &url, attempt).await? {
            Ok((mut position, mut document)) => {
                position.walk = walk;
                // Those of the newest archive are left at the end.
                if !document.facts.entries.is_empty() {
                    position.entries = std::mem::take(&mut document.facts.entries);
                }
                position.has_archives &= document.broken.is_none() && document.shows_all;
                document.remarks.extend(document.broken.take());
                document.into_page(&position, PageEnd::More)
            }
            Err(reason) => {
                let position = Position { walk, has_archives: false, ..position };
                page(&position, Vec::new(), PageEnd::More, vec![reason])
            }
        })
    }

    /// Reads a page after the first one.
    async fn further_page(
        &self,
        position: Position,
        url: String,
        mut visited: Vec<String>,
        attempt: u32,
    ) -> Result<Page, HarvestError> {
        let (mut position, mut document) = match self.linked_document(position.clone(), &url, attempt).await? {
            Ok(read) => read,
            Err(reason) => {
                return Ok(complete(position, |position, end| page(position, Vec::new(), end, vec![reason])));
            }
        };
        visited.push(digest(&url));
        let next = document.links.next.as_deref().and_then(|link| self.link(&url, link));
        let next = next.filter(|_| !document.overlaps(&position));
        if let Some(reason) = document.broken.take() {
            document.remarks.push(reason);
        }
        let next = next.filter(|next| {
            if visited.contains(&digest(next)) {
                document.remarks.push(format!("the pages of the feed do not end: {} is linked again", short_url(next)));
                return false;
            }
            if visited.len() >= MAX_DOCUMENTS {
                document.remarks.push(format!("the feed has more than {MAX_DOCUMENTS} pages; the oldest are not read"));
                return false;
            }
            true
        });
        Ok(match next {
            Some(next) => {
                position.walk = Some(Walk::Pages { next, visited });
                document.into_page(&position, PageEnd::More)
            }
            None => complete(position, |position, end| document.into_page(position, end)),
        })
    }

    /// Requests an archive or a page. The inner error is the reason why the feed has no such document.
    async fn linked_document(
        &self,
        position: Position,
        url: &str,
        attempt: u32,
    ) -> Result<Result<(Position, ReadDocument), String>, HarvestError> {
        let is_last_attempt = attempt + 1 >= ATTEMPTS && position.interruptions >= MAX_INTERRUPTIONS;
        let missing = |reason: &str| format!("the document {} of the feed is not read: {reason}", short_url(url));
        let target = match self.linked_url(url) {
            Ok(target) => target,
            Err(reason) => return Ok(Err(missing(&reason))),
        };
        let read = async {
            let found = self.request(&target, &HeaderMap::new()).await?;
            match found.response.status {
                StatusCode::OK => self.read(found, position).await,
                status if is_transient(status) => Err(HarvestError::retry(format!("the server has failed ({status})"))),
                status => Err(HarvestError::fail(format!("the server does not return it ({status})"))),
            }
        };
        match read.await {
            Ok(read) => Ok(Ok(read)),
            Err(HarvestError::Fail { reason, .. }) => Ok(Err(missing(&reason))),
            Err(HarvestError::Retry { reason, .. }) if is_last_attempt => Ok(Err(missing(&reason))),
            Err(HarvestError::Retry { reason, after }) => Err(HarvestError::Retry { reason: missing(&reason), after }),
            Err(error) => Err(error),
        }
    }

    /// Returns the URL of a link as the position stores it: without the credentials of the feed, which may be in its
    /// query. `None` if it is no URL, or too long.
    pub(super) fn link(&self, document: &str, link: &str) -> Option<String> {
        let mut url = Url::parse(document).ok()?.join(link).ok()?;
        url.set_fragment(None);
        if url.set_username("").and(url.set_password(None)).is_err() {
            return None;
        }
        if self.is_own(&url) {
            let secret: Vec<_> = self.settings.url.expose().query_pairs().collect();
            let others: Vec<_> = url.query_pairs().filter(|pair| !secret.contains(pair)).map(owned).collect();
            set_query(&mut url, others);
        }
        Some(String::from(url)).filter(|url| url.len() <= MAX_URL_BYTES)
    }

    /// Returns the URL to request, with the credentials of the feed if it is on the same server.
    pub(super) fn linked_url(&self, link: &str) -> Result<OutboundUrl, String> {
        let mut url = Url::parse(link).map_err(|error| error.to_string())?;
        if self.is_own(&url) {
            let feed = self.settings.url.expose();
            let pairs = feed.query_pairs().chain(url.query_pairs()).map(owned).collect();
            set_query(&mut url, pairs);
            // Both are URLs with a host.
            let _ = url.set_username(feed.username()).and(url.set_password(feed.password()));
        }
        self.client.allowed(url.as_str()).map_err(|error| error.to_string())
    }

    fn is_own(&self, url: &Url) -> bool {
        self.settings.url.expose().origin() == url.origin()
    }
}

impl Walk {
    /// Returns whether the next document is an archive or a page, and not the feed itself.
    fn has_links(&self) -> bool {
        match self {
            Self::Search { .. } | Self::Pages { .. } => true,
            Self::Archives { archives, .. } => !archives.is_empty(),
            Self::Missing { .. } | Self::Subscribe => false,
        }
    }
}

/// Ends the way back at a document that is not available at present. The run reads the feed itself and fails, so the next
/// one looks for the document again.
fn interrupt(mut position: Position, walk: &Walk, reason: String) -> Result<Page, HarvestError> {
    position.interruptions += 1;
    if matches!(walk, Walk::Pages { .. }) {
        // The first page was read at the beginning.
        position.pending = None;
        return Err(HarvestError::Fail { reason, position: Some(position.text()) });
    }
    position.interruption = Some(reason);
    position.walk = Some(Walk::Archives { archives: Vec::new(), newest: String::new() });
    Ok(page(&position, Vec::new(), PageEnd::More, Vec::new()))
}

/// Completes a run with the facts about its newest document.
pub(super) fn complete(mut position: Position, page: impl FnOnce(&Position, PageEnd) -> Page) -> Page {
    if let Some(facts) = position.pending.take() {
        position.complete(facts);
    }
    page(&position, PageEnd::Complete)
}

fn owned((name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)) -> (String, String) {
    (name.into_owned(), value.into_owned())
}

fn set_query(url: &mut Url, pairs: Vec<(String, String)>) {
    url.set_query(None);
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
}

/// Returns a URL without its query, for people.
fn short_url(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

fn digest(url: &str) -> String {
    hex::encode(&Sha256::digest(url)[..8])
}
