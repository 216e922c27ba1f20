//! Harvests: scheduled pulls from repositories that answer only when asked.
//!
//! One loop serves all kinds of harvest ([`Engine`]). A kind implements [`Harvester`]: one call that returns the next
//! page of records and the position after it. The engine keeps the schedule, passes the records to the dialect of the
//! source in parts, writes the last part and the position in one transaction, and keeps the history of runs.
//!
//! * `harvests` is the set of harvests, of the configuration and made over HTTP, and `runner` runs them;
//! * `membership` knows in which sets a record was seen, and so when it is deleted, and `oddities` counts what is strange about
//!   records;
//! * `page` is a page and its parts, and `engine` is the loop, `schedule` and `hours` decide when a run begins, and `waits` waits for that, and `pauses` are those of an administrator;
//! * `client` sends the requests, with the `cookies` of the run, and `text` repairs the text of responses;
//! * [`status`] is the state for people, [`metrics`] the numbers;
//! * [`oai_pmh`] is the kind for OAI-PMH 2.0, [`feed`] the one for RSS and Atom feeds, [`folder`] the one for folders and
//!   archives, [`gateway`] the one for other gateways, and [`download`] copies the files that other sources name;
//! * [`announcements`] makes the harvests of the sources that another system announces;
//! * `datasets` runs the jobs of a source of datasets ([`crate::filesets`]);
//! * `stored_file` says where a stored file is, for the content of items;
//! * `deletions` limits the number of deletions that no repository has reported.

pub mod announcements;
mod client;
mod cookies;
mod datasets;
mod deletions;
pub mod download;
mod engine;
pub mod feed;
pub mod folder;
pub mod gateway;
mod harvests;
mod hours;
mod membership;
pub mod metrics;
pub mod oai_pmh;
mod oddities;
mod page;
mod pauses;
mod runner;
mod schedule;
pub mod status;
mod stored_file;
mod text;
mod waits;

use std::{fmt::Debug, path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub(crate) use self::deletions::is_plausible;
pub use self::{
    announcements::HarvestsHandle,
    client::{SharedClients, Timeouts},
    engine::{Engine, Waits},
    harvests::{
        Harvest, HarvestLaunch, HarvestOperationError, HarvestParts, Harvests, InvalidHarvest, MAX_HARVESTS, OpenError,
        ReadDefinition, WorkSettings,
    },
    hours::Hours,
    membership::{Listing, RecordCounts, Sight, ViewCounts},
    page::{HarvestedRecord, Page, PageEnd, Records},
    runner::HarvestRunner,
    schedule::{Mode, Schedule},
};
use crate::{
    files::{FileLinks, FileStoreError, FileStoreLocation},
    filesets::JobSetupError,
    format::{Headers, Limits, oai_pmh::kept_record::KeptRecords},
    http_client::{ClientError, OutboundPolicy},
    intake::{Incoming, ReceivedMessage},
    journal::{Journal, JournalError},
    model::{SourceName, Timestamp, Uri},
    transfer::{HarvestBudget, Hosts},
};

/// Reason why a harvest cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The HTTP library cannot be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file store cannot be opened.
    #[error(transparent)]
    Files(#[from] FileStoreError),
}

impl From<JobSetupError> for SetupError {
    fn from(error: JobSetupError) -> Self {
        match error {
            JobSetupError::Client(error) => Self::Client(error),
            JobSetupError::Files(error) => Self::Files(error),
        }
    }
}

/// Settings of a source that is harvested.
#[derive(Clone, Debug)]
pub struct HarvestSettings {
    /// Digest of what the URIs of the objects depend on; `None` for kinds whose sources cannot share their objects. Sources
    /// with equal ones have the same objects.
    pub objects: Option<ObjectsDigest>,
    /// Times of the runs.
    pub schedule: Schedule,
    /// Settings of the kind of harvest.
    pub kind: Arc<dyn HarvesterSettings>,
}

/// Digest of what the URIs of a harvest's objects depend on, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectsDigest([u8; 32]);

impl ObjectsDigest {
    /// Returns the digest of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

/// Checked settings of one kind of harvest.
pub trait HarvesterSettings: Debug + Send + Sync {
    /// Returns the name of the dialect of the records.
    fn dialect(&self) -> &'static str;

    /// Describes the place that is harvested, without credentials.
    fn describe(&self) -> String;

    /// Returns the file of the CA certificates that the server's certificate is checked against, if one is configured.
    fn ca(&self) -> Option<&Path>;

    /// Checks that the place can be read, if it is a folder or a file of this machine; `None` for all other kinds. The error
    /// has the words of a run.
    fn check_folder(&self) -> Option<BoxFuture<'static, Result<(), String>>> {
        None
    }

    /// Returns the settings of a harvest over OAI-PMH; `None` for all other kinds.
    fn oai_pmh(&self) -> Option<&oai_pmh::OaiPmhSettings> {
        None
    }

    /// Returns whether an audit can compare the list of a harvest from its beginning.
    fn can_be_audited(&self) -> bool {
        false
    }

    /// Returns whether the repository answers requests for single objects ([`Harvester::object`]), which a sample needs.
    fn requests_objects(&self) -> bool {
        false
    }

    /// Returns the names of the sources whose changes are read.
    fn sources(&self) -> &[SourceName] {
        &[]
    }

    /// Creates the harvester of a source. It sends no request yet.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up, or the file store cannot be opened.
    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>>;

    /// Creates the harvester of an audit of a source. An audit writes nothing of a list to the journal. By default the
    /// harvester has a name of which the journal knows nothing, so its list is one of a first run.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    fn build_reader(
        &self,
        source: &SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        self.build(request_name("reader", source), context)
    }
}

/// Facts that every kind of harvest needs.
#[derive(Clone)]
pub struct HarvesterContext {
    /// Limits on the requests to each host.
    pub hosts: Hosts,
    /// Memory for the answers of other servers, together.
    pub budget: HarvestBudget,
    /// HTTP clients of all harvests.
    pub clients: SharedClients,
    /// Whether the operator has configured the harvest. Others may not name internal hosts.
    pub is_configured: bool,
    /// Policy for other origins than the configured one: redirections, links and hubs.
    pub redirects: OutboundPolicy,
    /// Maximum size of a record, in bytes.
    pub max_record_bytes: usize,
    /// Limits on the form of a record, which its dialect applies.
    pub limits: Limits,
    /// The journal, for the kinds that read it.
    pub journal: Journal,
    /// Location of the file store.
    pub files: FileStoreLocation,
    /// Links to stored files.
    pub file_links: FileLinks,
    /// URL of the gateway, for links to stored files. It has no trailing slash.
    pub public_url: Arc<str>,
    /// Policy for the files that records name.
    pub file_policy: OutboundPolicy,
    /// All harvests, for the kind that makes others.
    pub harvests: HarvestsHandle,
    /// URL of the gateway at which hubs can reach it, without a trailing slash; `None` if none is configured.
    pub callbacks: Option<Arc<str>>,
}

/// One kind of harvest, set up for one source.
pub trait Harvester: Send + Sync {
    /// Describes the place that is harvested, without credentials.
    fn describe(&self) -> String;

    /// Requests the page after `position`, which is empty before the first run, and otherwise a position of an earlier
    /// page or error. `attempt` is the number of attempts that have failed at this position.
    ///
    /// The result depends only on the position and the repository, so that a repeat after a crash returns the same
    /// page or a newer one.
    fn page<'a>(&'a self, position: &'a str, attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>>;

    /// Returns whether the page after `position` may be requested before the page that ends there is on disk. The two
    /// then overlap, and memory holds both. A kind that reads its own changes or records in the journal returns false.
    fn may_request_ahead(&self, position: &str) -> bool {
        let _ = position;
        false
    }

    /// Returns the number of records of the present list at `position`, if the repository has announced it.
    fn announced(&self, position: &str) -> Option<u64> {
        let _ = position;
        None
    }

    /// Returns the size of the files that were stored up to a position, in bytes; `None` for a kind that stores no files.
    fn stored_bytes(&self, position: &str) -> Option<u64> {
        let _ = position;
        None
    }

    /// Keeps records that were read and count, each with the position of its message. Returns the headers that their dialect
    /// reads.
    fn keep(&self, messages: Vec<(usize, Incoming)>) -> BoxFuture<'_, Result<AddedHeaders, HarvestError>> {
        let _ = messages;
        Box::pin(std::future::ready(Ok(AddedHeaders::default())))
    }

    /// Returns which records the harvest keeps in the file store, if it does.
    fn kept_records(&self) -> Vec<KeptRecords> {
        Vec::new()
    }

    /// Returns by how many records the repository and the journal differed when their numbers were last compared, if this
    /// kind of harvest compares them.
    fn difference(&self) -> Option<u64> {
        None
    }

    /// Returns why the list that ends at a position may lack things that exist; `None` if it has all.
    fn gap(&self, position: &str) -> Option<String> {
        let _ = position;
        None
    }

    /// Returns the position at which the list of an audit begins, for a harvest that is at `position`.
    fn audit_position(&self, position: &str) -> String {
        let _ = position;
        String::new()
    }

    /// Returns those objects that no longer exist, because the list that ends at `position` does not have them. By default
    /// a list has everything that the source has reported first.
    fn gone<'a>(
        &'a self,
        position: &'a str,
        unlisted: Vec<UnlistedObject>,
    ) -> BoxFuture<'a, Result<Vec<Uri>, JournalError>> {
        let _ = position;
        let gone = unlisted.into_iter().filter(|unlisted| unlisted.is_own).map(|unlisted| unlisted.object).collect();
        Box::pin(std::future::ready(Ok(gone)))
    }

    /// Requests one object of the repository for a sample, which is at the position of an audit. No record means that the
    /// object does not exist.
    fn object<'a>(&'a self, position: &'a str, object: &'a Uri) -> BoxFuture<'a, Result<Records, HarvestError>> {
        let _ = position;
        let reason = format!("{object} cannot be requested alone");
        Box::pin(std::future::ready(Err(HarvestError::fail(reason))))
    }

    /// Returns the time before which no run may begin after a complete one, because the server has asked for that.
    /// Runs on request begin earlier.
    fn earliest_run(&self, position: &str) -> Option<Timestamp> {
        let _ = position;
        None
    }

    /// Returns the place at which a hub may send notifications to the harvest at `position`.
    fn callback(&self, position: &str) -> Option<Callback> {
        let _ = position;
        None
    }

    /// Ends the work that goes on between two pages, because the harvest rests, is paused or stops.
    fn rest(&self) {}

    /// Waits until there is work after `position`, for which a run begins before its time. A kind that cannot notice new
    /// work waits for ever.
    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        let _ = position;
        Box::pin(std::future::pending())
    }
}

/// Headers for messages that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedHeaders {
    /// Name of the header.
    pub name: &'static str,
    /// Values by the positions of the messages.
    pub values: Vec<(usize, String)>,
    /// Facts that an administrator should know.
    pub remarks: Vec<String>,
}

/// An object of the registry that the list of an audit does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedObject {
    /// URI of the object.
    pub object: Uri,
    /// Whether the source of the harvest has reported it first.
    pub is_own: bool,
}

/// Place for the notifications of a WebSub hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// URL of the feed, as the hub knows it.
    pub topic: String,
    /// Secret part of the URL of the place.
    pub token: String,
}

/// Returns a message of the gateway itself for a dialect that reads JSON.
fn json_message(body: &impl Serialize) -> ReceivedMessage {
    // Serialization fails only for maps without text keys, and the types have none.
    let body = serde_json::to_vec(body).unwrap_or_default().into();
    ReceivedMessage::Readable(Incoming {
        content_type: Some("application/json".to_owned()),
        headers: Headers::default(),
        body,
        transport_id: None,
        redelivered: false,
        set: None,
    })
}

/// Returns the name under which the journal notes that all records of a source are to be listed.
#[doc(hidden)]
pub fn full_list_request(source: &SourceName) -> SourceName {
    request_name("full", source)
}

/// Returns the name under which the journal notes that the records of former settings are to be deleted.
#[doc(hidden)]
pub fn retirement_request(source: &SourceName) -> SourceName {
    request_name("retire", source)
}

/// Returns the name under which the journal notes a request of this kind about a source.
pub(crate) fn request_name(kind: &str, source: &SourceName) -> SourceName {
    let digest = hex::encode(&Sha256::digest(source.as_str())[..12]);
    // A name of these characters, and shorter than the longest one, is valid.
    SourceName::parse(&format!("{kind}_{digest}")).unwrap_or_else(|_| source.clone())
}

/// Reason why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// The same request may succeed later.
    #[error("{reason}")]
    Retry {
        /// The reason.
        reason: String,
        /// Wait that the server asks for.
        after: Option<Duration>,
    },
    /// The harvest continues at another position, without a page. The kind bounds the number of such errors in a row.
    #[error("{reason}")]
    Continue {
        /// The reason.
        reason: String,
        /// The other position.
        position: String,
    },
    /// The run has failed.
    #[error("{reason}")]
    Fail {
        /// The reason.
        reason: String,
        /// Position of the next run; `None` if it begins at the same position.
        position: Option<String>,
    },
}

impl From<JournalError> for HarvestError {
    fn from(error: JournalError) -> Self {
        Self::retry(error.to_string())
    }
}

impl HarvestError {
    /// Returns an error after which the same request may succeed.
    #[must_use]
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { reason: reason.into(), after: None }
    }

    /// Returns an error that ends the run. The next run begins at the same position.
    #[must_use]
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Fail { reason: reason.into(), position: None }
    }
}
