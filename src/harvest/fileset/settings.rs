//! Settings of a harvest of datasets.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sha2::Digest;

use super::{IngestSettings, Ingester, harvest::FilesetHarvest};
use crate::{
    files::FileStore,
    harvest::{Harvester, HarvesterContext, HarvesterSettings, SetupError, metrics},
    model::SourceName,
};

/// Settings of a harvest of datasets.
#[derive(Clone, Debug)]
pub struct FilesetHarvestSettings {
    /// Sources whose requests are executed.
    pub of: Vec<SourceName>,
    /// Maximum number of jobs that run at once.
    pub jobs: usize,
    /// Time after which an archived dataset is looked at again; `None` for never.
    pub watch: Option<Duration>,
    /// Wait after the first failed attempt. Each further failure multiplies it by four.
    pub first_retry: Duration,
}

impl HarvesterSettings for FilesetHarvestSettings {
    fn dialect(&self) -> &'static str {
        "fileset-result"
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.of.iter().map(SourceName::as_str).collect();
        format!("datasets of {}", names.join(", "))
    }

    fn ca(&self) -> Option<&Path> {
        None
    }

    fn sources(&self) -> &[SourceName] {
        &self.of
    }

    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(async move {
            let HarvesterContext { journal, files, public_url, file_policy, filesets, ingests, budget, .. } = context;
            let settings = IngestSettings {
                owner: source.as_str().into(),
                files_url: Some(format!("{public_url}/files").into()),
                ..(*filesets).clone()
            };
            // Jobs that wait for a change of the program or its configuration begin again after one.
            let configuration = format!("{self:?} {settings:?}");
            let digest = hex::encode(&sha2::Sha256::digest(configuration)[..8]);
            let version = format!("{} {digest}", env!("CARGO_PKG_VERSION"));
            let ingester = Arc::new(Ingester::new(settings, file_policy, FileStore::open(&files)?, budget).await?);
            metrics::register_ingests(&source);
            let harvest = FilesetHarvest::new(source, self.clone(), version, ingester, (journal, ingests));
            Ok(Arc::new(harvest) as Arc<dyn Harvester>)
        })
    }
}
