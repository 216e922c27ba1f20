//! Filesets: the files of datasets, from the request to the archive.
//!
//! A request names a URL. Its redirections lead to the landing page of the dataset, from which a platform is recognized; the
//! interface of the platform has the list of the files, the manifest. The manifest decides how the files are archived.
//!
//! * `settings` are those of a source, `job_loop` executes requests as jobs, which `job_claims` begins, `outcome` decides about the next attempt of a
//!   job, `pool` has those that run, `host_places` gives each host one place, and `monitor` has the progress;
//! * `client` sends the requests, `token` carries access tokens, and failures are classified ([`IngestFailure`]);
//!   `answers` reads the bodies, and `json`
//!   has parts of documents with a bound;
//! * `landing_page` follows the redirections, `page_links` reads the links of the page (`page_elements` its elements, and
//!   `page_biblio` its bibliographic data), and `page_body` keeps its body;
//! * [`platform`] has the platforms, one file each; [`Thresholds`](platform::Thresholds) choose how the files are archived;
//! * `ingest` executes an ingest, `patience` waits between its attempts, `description` puts its facts into the result,
//!   `existing` finds the files of earlier ones, `files` downloads the others as [`ArchivedFile`](archived_file::ArchivedFile), `check` compares them with the manifest, and
//!   `disposition` reads their names;
//! * `archiving` archives the files, `bundle` reads a file that encloses them (`bundle_name` has the names of its members),
//!   `warc` writes a web archive, and `surt` makes the keys of its index;
//! * `readers` has all readers of foreign documents, for fuzzing;
//! * `wayback` uses a configured web archive instead, and `item` uploads to archive.org.

mod answers;
mod archived_file;
mod archiving;
mod bundle;
mod bundle_name;
mod check;
mod client;
mod comparison;
mod description;
mod disposition;
mod existing;
mod files;
mod host_places;
mod ingest;
mod item;
mod job_claims;
mod job_loop;
mod json;
mod landing_page;
pub mod metrics;
mod monitor;
mod outcome;
mod page_biblio;
mod page_body;
mod page_elements;
mod page_links;
mod patience;
pub mod platform;
mod pool;
#[doc(hidden)]
pub mod readers;
mod settings;
mod surt;
mod token;
mod warc;
mod wayback;

use std::time::Duration;

pub use self::{
    client::{ClientLimits, PlatformClient},
    comparison::{ComparedDataset, DatasetDifference, DatasetDifferenceKind},
    host_places::JobPlace,
    ingest::{IngestContext, IngestSettings, Ingested, Ingester},
    item::ItemSettings,
    job_loop::{JobActivity, JobLoop},
    landing_page::LandingPage,
    monitor::{IngestMonitor, IngestNumbers, IngestProgress},
    page_biblio::PageBiblio,
    page_body::PageBody,
    page_links::{Link, PageLinks, Relation},
    settings::{FilesetSettings, JobContext, JobSetupError},
    token::PlatformToken,
    wayback::{ArchiveKeys, WaybackSettings},
};
use crate::{format::fileset::status::IngestStatus, model::Timestamp};

/// Reason why a dataset cannot be archived, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {message}")]
pub struct IngestFailure {
    /// Outcome.
    pub status: IngestStatus,
    /// Reason for people.
    pub message: String,
    /// Time at which another attempt may succeed.
    pub retry: RetryRule,
}

/// Time at which a failed ingest is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryRule {
    /// Never: the dataset must change first.
    Never,
    /// After the wait that the server has named, or else one that grows with each attempt.
    Backoff(Option<Duration>),
    /// When the server accepts connections. It may just start, so a command that somebody has typed repeats within seconds.
    WhenListening,
    /// At this time: the end of an embargo.
    At(Timestamp),
    /// After a change of this program or of its configuration.
    AfterFix,
    /// When no other job is at the host. Nothing has been attempted.
    WhenHostIsFree,
}

impl IngestFailure {
    /// Creates a failure that a later attempt repeats.
    #[must_use]
    pub fn permanent(status: IngestStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry: RetryRule::Never }
    }

    /// Creates a failure after which a later attempt may succeed.
    #[must_use]
    pub fn transient(status: IngestStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry: RetryRule::Backoff(None) }
    }

    /// Creates the failure of a response that is not what the interface of the platform promises.
    #[must_use]
    pub fn bad_answer(message: impl Into<String>) -> Self {
        Self { status: IngestStatus::PLATFORM_BAD_ANSWER, message: message.into(), retry: RetryRule::AfterFix }
    }

    /// Creates the failure for a dataset that is not public, with the day of the end of its embargo, if it has one.
    #[must_use]
    pub fn restricted(message: impl Into<String>, embargo_end: Option<&str>) -> Self {
        let end = embargo_end.and_then(|date| Timestamp::parse(date).or_else(|_| start_of(date)).ok());
        let retry = end.map_or(RetryRule::Never, RetryRule::At);
        Self { status: IngestStatus::PLATFORM_RESTRICTED, message: message.into(), retry }
    }
}

/// Returns the first moment of a day, written as `YYYY-MM-DD`.
fn start_of(date: &str) -> Result<Timestamp, crate::model::InvalidTimestamp> {
    Timestamp::parse(&format!("{date}T00:00:00Z"))
}
