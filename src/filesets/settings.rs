//! Settings of a source of datasets.

use std::{sync::Arc, time::Duration};

use sha2::Digest;

use super::{IngestMonitor, IngestSettings, Ingester, JobLoop, metrics};
use crate::{
    files::{FileStore, FileStoreError, FileStoreLocation},
    http_client::{ClientError, OutboundPolicy},
    model::SourceName,
    transfer::HarvestBudget,
};

/// Settings of a source of datasets.
#[derive(Clone, Debug)]
pub struct FilesetSettings {
    /// Sources whose requests are executed.
    pub of: Vec<SourceName>,
    /// Maximum number of jobs that run at once.
    pub jobs: usize,
    /// Time after which an archived dataset is looked at again; `None` for never.
    pub watch: Option<Duration>,
    /// Wait after the first failed attempt. Each further failure multiplies it by four.
    pub first_retry: Duration,
}

/// Facts that the jobs of all sources need.
#[derive(Clone)]
pub struct JobContext {
    /// Settings of the archiving of datasets.
    pub ingest: Arc<IngestSettings>,
    /// Location of the file store.
    pub files: FileStoreLocation,
    /// Policy for the files that platforms name.
    pub file_policy: OutboundPolicy,
    /// URL of the gateway, for links to stored files. It has no trailing slash.
    pub public_url: Arc<str>,
    /// Progress of the jobs.
    pub monitor: IngestMonitor,
    /// Memory for the answers of other servers.
    pub budget: HarvestBudget,
}

/// Reason why the jobs of a source cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum JobSetupError {
    /// The HTTP library cannot be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file store cannot be opened.
    #[error(transparent)]
    Files(#[from] FileStoreError),
}

impl FilesetSettings {
    /// Name of the dialect of the results.
    pub const DIALECT: &str = "fileset-result";

    /// Describes what is archived.
    #[must_use]
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.of.iter().map(SourceName::as_str).collect();
        format!("datasets of {}", names.join(", "))
    }

    /// Creates the loop of a source.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up, or the file store cannot be opened.
    pub async fn build(&self, source: &SourceName, context: JobContext) -> Result<JobLoop, JobSetupError> {
        let JobContext { ingest, files, file_policy, public_url, monitor, budget } = context;
        let settings = IngestSettings {
            owner: source.as_str().into(),
            files_url: Some(format!("{public_url}/files").into()),
            ..(*ingest).clone()
        };
        // Jobs that wait for a change of the program or its configuration begin again after one.
        let configuration = format!("{self:?} {settings:?}");
        let digest = hex::encode(&sha2::Sha256::digest(configuration)[..8]);
        let version = format!("{} {digest}", env!("CARGO_PKG_VERSION"));
        let store = FileStore::open(&files)?;
        let ingester = Arc::new(Ingester::new(settings, file_policy, store, budget.clone()).await?);
        metrics::register_ingests(source);
        Ok(JobLoop::new(self.clone(), version, ingester, monitor, budget))
    }
}
