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
    harvest::{FeedHarvester, ReadDocument, page},
    position::{Position, Walk},
};
use crate::{
    harvest::{HarvestError, Page, PageEnd, client::RawResponse},
    http_client::{OutboundUrl, is_transient},
};

/// Maximum number of archives or pages of one run.
const MAX_DOCUMENTS: usize = 500;

/// Maximum length of the URL of an archive or a page, in bytes.
const MAX_URL_BYTES: usize = 1024;

impl FeedHarvester {
    /// Returns the next document of a run.
    pub(super) async fn walk(&self, position: Position, walk: Walk) -> Result<Page, HarvestError> {
        match walk {
            Walk::Search { archives } => self.search(position, archives).await,
            Walk::Archives { archives, newest } => self.archive(position, archives, newest).await,
            Walk::Pages { next, visited } => self.further_page(position, next, visited).await,
            Walk::Missing { since, is_plausible } => self.delete_missing(position, since, is_plausible).await,
        }
    }

    /// Looks into an archive for the next older one.
    async fn search(&self, mut position: Position, mut archives: Vec<String>) -> Result<Page, HarvestError> {
        let url = archives.last().cloned().unwrap_or_default();
        let mut remark = None;
        let older = match self.linked_document(position.clone(), &url).await? {
            Ok((_, document)) => {
                let older = document.links.previous_archive.as_deref().and_then(|link| self.link(&url, link));
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
                remark = Some(format!("the archives of the feed do not end: {} is linked again", shown(older)));
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
    ) -> Result<Page, HarvestError> {
        let Some(url) = archives.pop() else { return self.newest_document(position, Some(newest)).await };
        let walk = Some(Walk::Archives { archives, newest });
        Ok(match self.linked_document(position.clone(), &url).await? {
            Ok((mut position, mut document)) => {
                position.walk = walk;
                // Those of the newest archive are left at the end.
                position.entries = std::mem::take(&mut document.facts.entries);
                document.remarks.extend(document.broken.take());
                document.into_page(&position, PageEnd::More)
            }
            Err(reason) => page(&Position { walk, ..position }, Vec::new(), PageEnd::More, vec![reason]),
        })
    }

    /// Reads a page after the first one.
    async fn further_page(
        &self,
        position: Position,
        url: String,
        mut visited: Vec<String>,
    ) -> Result<Page, HarvestError> {
        let (mut position, mut document) = match self.linked_document(position.clone(), &url).await? {
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
                document.remarks.push(format!("the pages of the feed do not end: {} is linked again", shown(next)));
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
    ) -> Result<Result<(Position, ReadDocument), String>, HarvestError> {
        let missing = |reason: &str| format!("the document {} of the feed is not read: {reason}", shown(url));
        let target = match self.linked_url(url) {
            Ok(target) => target,
            Err(reason) => return Ok(Err(missing(&reason))),
        };
        let raw: RawResponse = self.request(&target, &HeaderMap::new()).await?;
        match raw.status {
            StatusCode::OK => Ok(Ok(self.read(raw, position).await?)),
            status if is_transient(status) => Err(HarvestError::retry(format!("the server has failed ({status})"))),
            status => Ok(Err(missing(&format!("the server does not return it ({status})")))),
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
    fn linked_url(&self, link: &str) -> Result<OutboundUrl, String> {
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
fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

fn digest(url: &str) -> String {
    hex::encode(&Sha256::digest(url)[..8])
}
