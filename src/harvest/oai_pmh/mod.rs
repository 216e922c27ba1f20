//! Harvests over OAI-PMH 2.0, the protocol for metadata harvesting of the Open Archives Initiative.
//!
//! A run requests `Identify`, and then `ListRecords` from the mark of the last run, page after page. The mark is the
//! date of the first response minus an overlap. A list that the repository cannot deliver is divided into windows.
//!
//! * `client` sends requests, and `response` parses responses, also broken ones;
//! * `position` is the state between two pages;
//! * `harvest` decides about the next request, and `recovery` about the next one after a failure;
//! * `listing` makes messages of records, and notes what a list shows of them;
//! * `record_store` keeps the records in the file store;
//! * `record` requests one record, and `sweep` looks for the records that a complete list no longer has;
//! * `catalogue` lists what a repository offers;
//! * `former` deletes the records of former settings, and `count_check` compares numbers with the repository.

mod catalogue;
mod client;
mod count_check;
mod former;
mod harvest;
mod listing;
mod position;
mod record;
mod record_store;
mod recovery;
mod response;
mod sweep;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::http::HeaderValue;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

pub use self::catalogue::{CatalogueError, FormatDescription, Repository, SetDescription};
use self::{
    client::RepositoryClient,
    harvest::OaiPmhHarvester,
    position::{Place, PositionSettings},
    record_store::RecordStore,
    response::PageLimits,
};
use super::{Harvester, HarvesterContext, HarvesterSettings, ObjectsDigest, SetupError, Timeouts, text};
use crate::{http_client::OutboundUrl, model::SourceName, transfer::Cancelled};

named_values! {
    /// Request that lists the records.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ListVerb {
        /// `ListRecords`, whose pages have the records.
        #[default]
        Records = "records",
        /// `ListIdentifiers`, and `GetRecord` for each record.
        Identifiers = "identifiers",
    }
}

named_values! {
    /// Place of the records besides the registry, which has their facts alone.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum RecordKeeping {
        /// There is none.
        #[default]
        Registry = "registry",
        /// The file store has each record as the repository has sent it.
        Store = "store",
    }
}

/// Settings of a harvest over OAI-PMH.
#[derive(Clone, Debug)]
pub struct OaiPmhSettings {
    /// Base URL of the repository, with its credentials.
    pub url: OutboundUrl,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// E-mail address of the harvest's operator, which requests carry as `From`.
    pub contact: Option<HeaderValue>,
    /// Former base URL, whose records keep their URIs; `None` if the repository has not moved.
    pub formerly: Option<String>,
    /// Parameters of the query of `url` that are not part of a URI, besides those with the names of secrets.
    pub secret_parameters: Vec<String>,
    /// Prefix of the metadata format.
    pub metadata_prefix: String,
    /// Sets to harvest; empty for the whole repository.
    pub sets: Vec<String>,
    /// Time before the last run that is harvested again; `None` for a default that depends on the granularity.
    pub overlap: Option<Duration>,
    /// Length of the first window of a back-fill; `None` without windows, unless the repository needs them.
    pub window: Option<Duration>,
    /// Request that lists the records.
    pub list: ListVerb,
    /// Time between two runs that list all records; `None` for a default that depends on the reports of deletions.
    pub full_every: Option<Duration>,
    /// Maximum share of the records that one such run deletes, in percent.
    pub max_deleted_percent: u64,
    /// Place of the records besides the registry.
    pub records: RecordKeeping,
    /// Maximum size of all records in the file store, in bytes.
    pub total_bytes: u64,
    /// Maximum size of a page, in bytes.
    pub page_bytes: usize,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
}

impl OaiPmhSettings {
    /// Returns a digest of what the URIs of the records depend on.
    #[must_use]
    pub fn objects(&self) -> ObjectsDigest {
        ObjectsDigest::of(&format!("oai-pmh {} {}", self.identity_url(), self.metadata_prefix))
    }

    /// Returns a digest of the settings that a position depends on.
    fn digest(&self) -> String {
        self.digest_of(&self.identity_url())
    }

    fn digest_of(&self, base_url: &str) -> String {
        let Self { metadata_prefix, sets, .. } = self;
        let settings = format!("{base_url}\n{metadata_prefix}\n{}", sets.join("\n"));
        hex::encode(&Sha256::digest(settings)[..8])
    }

    /// Returns the base URL without credentials and query, which earlier versions used.
    fn url_without_query(&self) -> String {
        format!("{}{}", self.url.origin(), self.url.expose().path())
    }

    /// Returns the base URL without credentials, for records and people. Of its query, secret parameters are left out, because
    /// the URL is published.
    fn public_url(&self) -> String {
        let is_secret = |parameter: &str| {
            let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
            SECRET_PARAMETERS.contains(&name.as_str()) || self.secret_parameters.contains(&name)
        };
        let query = self.url.expose().query().unwrap_or_default();
        let parameters: Vec<_> = query.split('&').filter(|part| !part.is_empty() && !is_secret(part)).collect();
        let question_mark = if parameters.is_empty() { "" } else { "?" };
        format!("{}{question_mark}{}", self.url_without_query(), parameters.join("&"))
    }

    /// Returns the base URL of the URIs of the records.
    fn identity_url(&self) -> String {
        self.formerly.clone().unwrap_or_else(|| self.public_url())
    }
}

/// Names of parameters that never become part of a URI.
const SECRET_PARAMETERS: [&str; 12] =
    ["access_token", "api_key", "apikey", "auth", "key", "pass", "password", "passwd", "pwd", "secret", "sig", "token"];

impl HarvesterSettings for OaiPmhSettings {
    fn dialect(&self) -> &'static str {
        "oai-pmh"
    }

    fn can_be_audited(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("{} of {}", self.metadata_prefix, self.public_url())
    }

    fn requests_objects(&self) -> bool {
        true
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn oai_pmh(&self) -> Option<&OaiPmhSettings> {
        Some(self)
    }

    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(async {
            let (max_record_bytes, journal) = (context.max_record_bytes, context.journal.clone());
            let record_store = match self.records {
                RecordKeeping::Registry => None,
                RecordKeeping::Store => Some(RecordStore::open(&context, self.total_bytes)?),
            };
            let client = RepositoryClient::new(self, context).await?;
            let settings = self.clone();
            let place = PositionSettings {
                digest: settings.digest(),
                place: Place { base_url: settings.identity_url(), prefix: settings.metadata_prefix.clone() },
                adoptable: (settings.formerly.is_none() && settings.public_url() != settings.url_without_query())
                    .then(|| settings.digest_of(&settings.url_without_query())),
            };
            let harvester = OaiPmhHarvester {
                settings,
                place,
                source,
                journal,
                client,
                max_record_bytes,
                record_store,
                difference: AtomicU64::default(),
            };
            Ok(Arc::new(harvester) as Arc<dyn Harvester>)
        })
    }
}

/// Reads text as a response of a repository, as a harvest does; returns the number of its records. For fuzzing and
/// tests.
#[doc(hidden)]
#[must_use]
pub fn count_records(body: &[u8]) -> Option<usize> {
    let read = text::read(body.to_vec(), None, usize::MAX).ok()?;
    let limits = PageLimits { record_bytes: 1 << 20, all_bytes: usize::MAX };
    let response = response::parse(&read.text, limits, &[], &Cancelled::default()).ok()?;
    Some(response.list.map_or(0, |list| list.records.len()))
}
