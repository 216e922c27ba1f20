//! Crawl: one pass over a repository, in parts and in a fixed order, so that an interrupted crawl continues
//! after its last stored part.
//!
//! Memory is limited by a number of names, whatever the size of the repository. From an unordered list the
//! smallest names after the position are kept ([`bottom_n::BottomN`]), and the list is read again for the next
//! ones.

mod bottom_n;
mod fedora3;
mod ldp;
mod ntriples;
mod requests;

use serde::{Deserialize, Serialize};

use self::requests::CrawlRequests;
pub use self::requests::RateLimit;
use super::{LookupError, Repository};
use crate::{
    format::RepositoryApi,
    model::{CrawledObject, Uri},
};

/// Approximate number of objects in a part. Their requests run concurrently.
const PART_OBJECTS: usize = 50;

/// A crawl of one repository.
pub struct Crawler(ApiCrawl);

enum ApiCrawl {
    Fedora3(Box<fedora3::Fedora3Crawl>),
    Ldp(Box<ldp::LdpCrawl>),
}

/// A part of a crawl.
#[derive(Debug, Default)]
pub struct CrawlPart {
    /// The objects that were found.
    pub objects: Vec<CrawledObject>,
    /// Position after this part, from which the crawl continues.
    pub position: String,
    /// Resources that were skipped.
    pub skipped: Vec<SkippedResource>,
    /// True if this is the last part.
    pub done: bool,
}

/// A resource that the crawl skipped because of an error.
#[derive(Debug, PartialEq, Eq)]
pub struct SkippedResource {
    /// Name of the resource in the repository.
    pub name: String,
    /// The error.
    pub reason: String,
}

/// Answer of a repository about one object.
#[derive(Debug)]
pub enum Look {
    /// The object exists.
    Present(Box<CrawledObject>),
    /// The repository has no such object.
    Gone,
    /// The URI is outside of the repository, so it cannot be requested.
    Outside,
}

/// Options of a crawl.
#[derive(Clone, Debug)]
pub struct CrawlOptions {
    /// Base URL of the URIs of objects, if it differs from the repository's settings.
    pub base_url: Option<String>,
    /// Maximum rate of requests.
    pub rate_limit: RateLimit,
    /// Number of retries of a failed request.
    pub retries: u32,
    /// If true, resources whose requests fail are skipped. Otherwise the crawl ends there.
    pub skip_failing: bool,
    /// Approximate maximum number of names in memory. In a tree of containers, each level may hold at least a
    /// hundredth of it.
    pub max_names: usize,
}

impl Default for CrawlOptions {
    /// No rate limit, no retries, and 100 000 names.
    fn default() -> Self {
        Self { base_url: None, rate_limit: RateLimit::default(), retries: 0, skip_failing: false, max_names: 100_000 }
    }
}

/// Reason why a crawl cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum CrawlError {
    /// A request failed.
    #[error("{error} (request: {path})")]
    Request {
        /// Path of the request below the repository's URL.
        path: String,
        /// The error.
        error: LookupError,
    },
    /// The repository's URL does not exist.
    #[error("there is no repository at {0}; check the url of [sources.NAME.repository]")]
    NoRepository(String),
    /// Every attempt to read the list of objects broke off.
    #[error("the list of objects was interrupted in every attempt: {0}")]
    List(String),
    /// The repository uses a base URL that is not configured.
    #[error(
        "the repository uses a base URL that is not configured ({0}); add it to public_urls of \
         [sources.NAME.repository]"
    )]
    UnknownBaseUrl(String),
    /// The base URL of objects is invalid.
    #[error("the base URL of its messages is wrong: {0}")]
    InvalidBaseUrl(String),
    /// Containers are nested too deep.
    #[error("containers are nested deeper than {0} levels at {1}")]
    TooDeep(usize, String),
    /// The position does not belong to a crawl of this kind.
    #[error("the crawl was started by another version, or in another kind of repository; start again with --restart")]
    InvalidPosition,
}

/// Position of a crawl in its stored form.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CrawlPosition {
    /// In a list of objects: after this one.
    After(String),
    /// In a tree of containers: the current path, each container with the last child that was crawled
    /// completely.
    Within(Vec<(String, Option<String>)>),
}

impl Crawler {
    /// Starts a crawl of `repository`, or continues one at the position of an earlier part.
    ///
    /// # Errors
    /// Fails if the position or the base URL is invalid.
    pub fn new(repository: Repository, options: CrawlOptions, position: Option<&str>) -> Result<Self, CrawlError> {
        // A crawl that was interrupted during its first part has no position yet.
        let position = position.filter(|position| !position.is_empty());
        let position = position
            .map(|position| serde_json::from_str(position).map_err(|_| CrawlError::InvalidPosition))
            .transpose()?;
        let settings = repository.settings();
        let public_url = settings.public_urls.first().unwrap_or(&settings.url).as_str();
        let base_url = options.base_url.clone().unwrap_or_else(|| public_url.to_owned());
        let base_url = base_url.trim_end_matches('/').to_owned();
        let api = settings.api;
        let requests = CrawlRequests::new(repository, options);
        Ok(Self(match (api, position) {
            (RepositoryApi::Fedora3, None) => {
                ApiCrawl::Fedora3(Box::new(fedora3::Fedora3Crawl::new(requests, &base_url, None)?))
            }
            (RepositoryApi::Fedora3, Some(CrawlPosition::After(pid))) => {
                ApiCrawl::Fedora3(Box::new(fedora3::Fedora3Crawl::new(requests, &base_url, Some(pid))?))
            }
            (RepositoryApi::Ldp, None) => ApiCrawl::Ldp(Box::new(ldp::LdpCrawl::new(requests, base_url, Vec::new()))),
            (RepositoryApi::Ldp, Some(CrawlPosition::Within(path))) => {
                ApiCrawl::Ldp(Box::new(ldp::LdpCrawl::new(requests, base_url, path)))
            }
            (RepositoryApi::Fedora3, Some(CrawlPosition::Within(_)))
            | (RepositoryApi::Ldp, Some(CrawlPosition::After(_))) => {
                return Err(CrawlError::InvalidPosition);
            }
        }))
    }

    /// Requests one object, by its URI as messages write it.
    ///
    /// # Errors
    /// Fails as [`Crawler::next`] does.
    pub async fn look(&self, object: &Uri) -> Result<Look, CrawlError> {
        match &self.0 {
            ApiCrawl::Fedora3(crawl) => crawl.look(object).await,
            ApiCrawl::Ldp(crawl) => crawl.look(object).await,
        }
    }

    /// Returns the next part. Do not call it after the last part.
    ///
    /// # Errors
    /// Fails if the repository does not respond, or the response is invalid. The crawl can continue from the
    /// position of the previous part.
    pub async fn next(&mut self) -> Result<CrawlPart, CrawlError> {
        match &mut self.0 {
            ApiCrawl::Fedora3(crawl) => crawl.next().await,
            ApiCrawl::Ldp(crawl) => crawl.next().await,
        }
    }
}

impl CrawlPosition {
    fn to_json(&self) -> String {
        // Serialization cannot fail: strings in lists have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl CrawlError {
    /// Returns whether the error is about a single resource: the repository answers, and says nothing usable about it.
    #[must_use]
    pub fn is_of_one_resource(&self) -> bool {
        matches!(self, Self::Request { error: LookupError::Status(_) | LookupError::InvalidResponse(_), .. })
    }

    /// True if the crawl may succeed later without anyone's intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Request { error, .. } if error.is_transient())
    }
}
