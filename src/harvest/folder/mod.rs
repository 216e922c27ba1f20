//! Harvests of folders and archives.
//!
//! A run lists all files, reads those whose size or time has changed, and passes each to the dialect with its digest. A
//! file that is no longer listed is deleted, if the list is complete and not too many files are missing.
//!
//! * `position` is the state between two pages;
//! * `listed_file` opens files as they were listed;
//! * `walk` lists a folder, `archive` reads a zip or tar file, and `member` gives the files one form;
//! * `harvest` compares the list with the last known one, `content` reads the files that may have changed, and `sweep`
//!   deletes those that are gone;
//! * `single` reads one file for a sample of an audit;
//! * `watch` notices changes between two runs.

mod archive;
mod content;
mod harvest;
mod listed_file;
mod member;
mod position;
mod single;
mod sweep;
mod walk;
mod watch;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;

use self::harvest::FolderHarvester;
use super::{Harvester, HarvesterContext, HarvesterSettings, SetupError};
use crate::model::{SourceName, UrlPattern};

/// Settings of the harvest of a folder or an archive.
#[derive(Clone, Debug)]
pub struct FolderSettings {
    /// Absolute path of the folder or the archive.
    pub path: PathBuf,
    /// URL of the folder for subscribers, with a slash at its end; `None` for a `file:` URL.
    pub public_url: Option<String>,
    /// URLs of the files to harvest; `None` for all.
    pub urls: Option<UrlPattern>,
    /// Whether a change of a file begins a run.
    pub watch: bool,
    /// Maximum share of the files that one run deletes, in percent.
    pub max_deleted_percent: u64,
    /// Maximum size of all files of an archive together, in bytes.
    pub unpacked_bytes: u64,
}

impl HarvesterSettings for FolderSettings {
    fn dialect(&self) -> &'static str {
        "folder"
    }

    fn can_be_audited(&self) -> bool {
        true
    }

    fn requests_objects(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("folder {}", self.path.display())
    }

    fn ca(&self) -> Option<&Path> {
        None
    }

    fn check_folder(&self) -> Option<BoxFuture<'static, Result<(), String>>> {
        let path = self.path.clone();
        Some(Box::pin(async move {
            harvest::blocking(move || harvest::check(&path)).await.unwrap_or_else(|error| Err(error.to_string()))
        }))
    }

    fn build(
        &self,
        source: SourceName,
        context: HarvesterContext,
    ) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        let harvester = FolderHarvester::new(self.clone(), source, context.journal);
        Box::pin(async { Ok(Arc::new(harvester) as Arc<dyn Harvester>) })
    }
}

/// Reads a file as an archive, as a harvest does; returns the number of its files. For fuzzing and tests.
///
/// # Errors
/// Fails if the file is not a readable archive.
#[doc(hidden)]
pub fn count_members(path: &Path, unpacked_bytes: u64) -> Result<usize, String> {
    let version = listed_file::FileVersion::of_configured(path).map_err(|error| error.to_string())?;
    let read = archive::read(path, version, unpacked_bytes, &tokio_util::sync::CancellationToken::new());
    let archive = read.map_err(|error| error.to_string())?;
    archive.map(|archive| archive.files.len()).ok_or_else(|| "it changes while it is read".to_owned())
}
