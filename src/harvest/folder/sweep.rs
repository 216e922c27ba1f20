//! Search for files that are no longer listed, by mark and sweep as for OAI-PMH.

use std::io;

use super::{
    content::absent_message,
    harvest::{FolderHarvester, PAGE_FILES, blocking},
    listed_file::{open_root, version_of},
    member::{decoded, is_hidden},
    position::{List, Position, Sweep},
};
use crate::{
    harvest::{HarvestError, Page, PageEnd, deletions::implausibility},
    journal::harvest::{ListedCounts, ListedRecords},
    model::Uri,
};

impl FolderHarvester {
    /// Deletes the next missing files.
    pub(super) async fn sweep(&self, mut position: Position, mut sweep: Sweep) -> Result<Page, HarvestError> {
        let complete = |position: Position, remark: Option<String>| Page {
            remarks: remark.into_iter().collect(),
            ..Page::new(Vec::new(), position.text(), PageEnd::Complete)
        };
        let Some(list) = position.listed.as_mut() else { return Ok(complete(position, None)) };
        let (began, is_folder) = (list.began, list.archive.is_empty());
        if sweep.after.is_empty() {
            let counts = self.journal.listed_counts(self.source.clone(), began).await?;
            let remark = self.implausibility(list, counts);
            if remark.is_some() {
                return Ok(complete(position, remark));
            }
        }
        let after = sweep.after.clone();
        let missing = self.journal.missing_records(self.source.clone(), began, after, PAGE_FILES).await?;
        let Some(last) = missing.last() else {
            list.is_swept = true;
            return Ok(complete(position, None));
        };
        sweep.after = last.clone();
        position.sweep = Some(sweep);
        let gone = if is_folder { self.confirm(missing).await? } else { missing };
        let messages: Vec<_> =
            gone.iter().filter_map(|url| Some(absent_message(Uri::parse(url).ok()?, began))).collect();
        let listed = ListedRecords { gone, ..ListedRecords::default() };
        Ok(Page { listed, ..Page::new(messages, position.text(), PageEnd::More) })
    }

    /// Returns a remark if so many files are missing that the place is more likely unavailable, as a network share that
    /// is not mounted.
    fn implausibility(&self, list: &List, counts: ListedCounts) -> Option<String> {
        let percent = self.settings.max_deleted_percent;
        if list.files == 0 && counts.missing > 0 && percent < 100 {
            return Some(format!(
                "{} has no file, and had {}; nothing was deleted: if all files are really gone, set \
                 max_deleted_percent to 100 and run the harvest again",
                self.settings.path.display(),
                counts.all
            ));
        }
        implausibility(counts, percent, "files")
    }

    /// Returns those of the missing files that really do not exist, or are not harvested any more.
    async fn confirm(&self, missing: Vec<String>) -> Result<Vec<String>, HarvestError> {
        // If the folder itself is gone, nothing is known about its files.
        self.version().await?;
        let (path, base, urls) = (self.settings.path.clone(), self.base(true), self.settings.urls.clone());
        let confirmed = blocking(move || {
            let root = open_root(&path)?;
            let exists = |url: &str| {
                let is_harvested = urls.as_ref().is_none_or(|urls| urls.is_match(url));
                let path = url.strip_prefix(&base).map(decoded).filter(|path| is_harvested && !is_hidden(path));
                path.is_some_and(|path| match version_of(&root, &path) {
                    Ok(version) => version.is_some_and(|version| version.is_file()),
                    Err(error) => error.kind() != io::ErrorKind::NotFound,
                })
            };
            Ok(missing.into_iter().filter(|url| !exists(url)).collect())
        });
        confirmed.await?.map_err(|error: io::Error| self.unreadable(&error))
    }
}
