//! A single file of a folder or an archive, for a sample of an audit.

use std::{collections::HashMap, io};

use tokio_util::sync::CancellationToken;

use super::{
    content::{Candidate, PageContent, present_message, read},
    harvest::{FolderHarvester, blocking},
    listed_file::{entries, open_root, version_of},
    member::{Member, decoded, is_hidden},
};
use crate::{
    harvest::{HarvestError, Records},
    model::Uri,
};

impl FolderHarvester {
    /// Returns the report about a file; none if it does not exist, or is not harvested.
    pub(super) async fn single_file(&self, url: &Uri) -> Result<Records, HarvestError> {
        let version = self.version().await?;
        let base = self.base(version.is_folder());
        let is_harvested = self.settings.urls.as_ref().is_none_or(|urls| urls.is_match(url.as_str()));
        let Some(path) = url.as_str().strip_prefix(&base).filter(|_| is_harvested) else {
            return Ok(Vec::new().into());
        };
        if version.is_folder() {
            return self.file_of_folder(url, path).await;
        }
        match self.archive(version).await?.files.get(path) {
            Some(Member::Read(facts)) => Ok(vec![present_message(url.clone(), version.time(), facts)].into()),
            Some(Member::Unreadable) => Err(HarvestError::fail("the file in the archive cannot be read")),
            None => Ok(Vec::new().into()),
        }
    }

    async fn file_of_folder(&self, url: &Uri, path: &str) -> Result<Records, HarvestError> {
        let (folder, url, file, path) = (self.settings.path.clone(), url.clone(), decoded(path), path.to_owned());
        let stop = CancellationToken::new();
        // A file that is no longer awaited is read no further.
        let _stopped = stop.clone().drop_guard();
        let read = move || {
            let root = open_root(&folder)?;
            if entries(&root)?.next().is_none() {
                return Err(io::Error::other("it has no file; it may not be mounted"));
            }
            let version = match version_of(&root, &file) {
                Ok(version) => version.filter(|version| version.is_file() && !is_hidden(&file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let Some(version) = version else { return Ok(PageContent::default()) };
            let candidate = Candidate { url, path, file, version };
            Ok(read(&root, &[candidate], &HashMap::new(), &stop))
        };
        let content = blocking(read).await?.map_err(|error| self.unreadable(&error))?;
        let PageContent { messages, present, .. } = content;
        match messages.is_empty() && !present.is_empty() {
            true => Err(HarvestError::retry("the file cannot be read, or changes while it is read")),
            false => Ok(messages.into()),
        }
    }
}
