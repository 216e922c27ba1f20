//! Comparison of an archived dataset with the list of its platform, for an audit. Nothing is downloaded.
//!
//! The figures of a file are those of its newest result. A file of which the platform tells neither size nor digest differs
//! only by being there.

use std::collections::{HashMap, HashSet};

use super::{
    IngestFailure, Ingester, JobLoop, JobPlace,
    existing::contradictions,
    outcome::{is_archived, is_statement},
    platform::{Dataset, PlatformFile, dataset_of},
};
use crate::{
    format::fileset::{
        FilesetRequest, file_uri,
        message::{FilesetResult, ManifestFile},
        public_url::without_signature,
        status::IngestStatus,
    },
    journal::{Journal, JournalError, ingest::IngestJob, registry::ObjectState},
    model::Uri,
};

/// Result of the comparison of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedDataset {
    /// The differences between the platform and the registry.
    Differences(Vec<DatasetDifference>),
    /// The platform has no usable answer, for this reason.
    NoAnswer(String),
}

/// Difference of an item of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetDifference {
    /// URI of the item: a file, or the dataset itself.
    pub item: Uri,
    /// Kind of the difference.
    pub kind: DatasetDifferenceKind,
}

/// Kind of the difference of an item of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetDifferenceKind {
    /// The list of the platform has a file that the registry lacks.
    Missing,
    /// These members differ.
    Different(Vec<&'static str>),
    /// The registry has a file that the list of the platform lacks.
    Extra,
}

impl JobLoop {
    /// Compares the dataset of a job with the registry; `None` if the dataset is not archived.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub async fn compare(&self, journal: &Journal, job: &IngestJob) -> Result<Option<ComparedDataset>, JournalError> {
        let Ok(request) = serde_json::from_str::<FilesetRequest>(job.request.as_str()) else { return Ok(None) };
        if !is_archived(job) {
            return Ok(None);
        }
        let listed = tokio::time::timeout(self.ingester.settings.max_time, self.ingester.list(&request)).await;
        let late = || IngestFailure::transient(IngestStatus::TIMEOUT, "the list takes too long");
        let registered = journal.object(job.dataset.clone()).await?.unwrap_or_default();
        let differences = match listed.unwrap_or_else(|_| Err(late())) {
            Ok(dataset) => {
                let result = journal.object_result(job.dataset.clone()).await?;
                let result =
                    result.and_then(|result| serde_json::from_str::<FilesetResult>(result.result.as_str()).ok());
                let manifest = result.and_then(|result| result.manifest).unwrap_or_default();
                differences(&job.dataset, &dataset, &manifest, &registered)
            }
            // The rules of a watch: only the platform's own word says something about an archived dataset.
            Err(failure) if is_statement(&failure.status, Some(failure.retry)) => {
                let is_known = registered.state(&job.dataset) == Some(&failure.status.state());
                let kind = DatasetDifferenceKind::Different(vec!["state"]);
                let difference = DatasetDifference { item: job.dataset.clone(), kind };
                if is_known { Vec::new() } else { vec![difference] }
            }
            Err(failure) => return Ok(Some(ComparedDataset::NoAnswer(failure.to_string()))),
        };
        Ok(Some(ComparedDataset::Differences(differences)))
    }
}

impl Ingester {
    /// Returns a dataset with its files, as its platform lists them.
    async fn list(&self, request: &FilesetRequest) -> Result<Dataset, IngestFailure> {
        let page = self.landing_page(request, &JobPlace::default()).await?;
        let (_, dataset) = dataset_of(&page, &self.settings.platforms, &self.client).await?;
        dataset.check(&self.settings.limits)?;
        Ok(dataset)
    }
}

fn differences(
    dataset: &Uri,
    listed: &Dataset,
    manifest: &[ManifestFile],
    registered: &ObjectState,
) -> Vec<DatasetDifference> {
    let mut differences = Vec::new();
    let mut known = HashSet::from([dataset.clone()]);
    let archived = ArchivedFiles::of(manifest);
    for file in &listed.files {
        let entry = archived.entry_of(file);
        let path = entry.map_or(&file.manifest.path, |entry| &entry.path);
        // A path that makes no URI has no item either.
        let Ok(item) = file_uri(dataset, path) else { continue };
        known.insert(item.clone());
        let members = entry.map_or_else(Vec::new, |entry| contradictions(entry, &file.manifest));
        if !registered.is_live(&item) {
            differences.push(DatasetDifference { item, kind: DatasetDifferenceKind::Missing });
        } else if !members.is_empty() {
            differences.push(DatasetDifference { item, kind: DatasetDifferenceKind::Different(members) });
        }
    }
    let extra = registered.live_items().filter(|(item, _)| !known.contains(*item));
    differences
        .extend(extra.map(|(item, _)| DatasetDifference { item: item.clone(), kind: DatasetDifferenceKind::Extra }));
    differences
}

/// The archived files of a dataset. A list can have many files, and each is searched here.
struct ArchivedFiles<'m> {
    by_path: HashMap<&'m str, &'m ManifestFile>,
    by_url: HashMap<String, &'m ManifestFile>,
}

impl<'m> ArchivedFiles<'m> {
    /// Of files with the same path or URL, the first counts.
    fn of(manifest: &'m [ManifestFile]) -> Self {
        let (mut by_path, mut by_url) = (HashMap::new(), HashMap::new());
        for entry in manifest {
            by_path.entry(&*entry.path).or_insert(entry);
            if let Some(url) = &entry.platform_url {
                by_url.entry(without_signature(url)).or_insert(entry);
            }
        }
        Self { by_path, by_url }
    }

    /// Returns the archived entry of a file. Its response may have named a file whose path is made of its URL.
    fn entry_of(&self, file: &PlatformFile) -> Option<&'m ManifestFile> {
        let entry = match &file.manifest.platform_url {
            Some(url) if file.is_unnamed => self.by_url.get(&without_signature(url)),
            _ => self.by_path.get(&*file.manifest.path),
        };
        entry.copied()
    }
}
