//! `[segments]`: the journal as immutable files.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    error::ConfigErrors,
    files::{FilesConfig, S3Table, location_in_bucket},
    value::Folder,
};
use crate::{
    files::{FileStoreLocation, S3Settings},
    journal::store::StoreLocation,
    segments::KeptSegments,
    settings::{Choice, Choose, Flag, Setting, settings},
};

/// `[segments]`: where the closed spans of the journal are sealed.
#[derive(Clone, Debug)]
pub struct SegmentsConfig {
    enabled: bool,
    /// Folder of the segments, as an absolute path.
    folder: Option<PathBuf>,
    s3: Option<S3Settings>,
    /// Segments that stay when retention has removed their changes.
    pub keep: KeptSegments,
}

impl SegmentsConfig {
    /// Returns the location of the segments; `None` if there are none. `data` is the folder of the journal. Nodes that share
    /// a database need a place that all of them see, so they have segments only if one is configured.
    #[must_use]
    pub fn location(&self, journal: &StoreLocation, data: &Path) -> Option<FileStoreLocation> {
        let location = match (&self.s3, &self.folder, journal) {
            (Some(settings), ..) => Some(FileStoreLocation::S3(settings.clone())),
            (None, Some(folder), _) => Some(FileStoreLocation::Folder(folder.clone())),
            (None, None, StoreLocation::Folder(_)) => Some(FileStoreLocation::Folder(data.join("segments"))),
            (None, None, StoreLocation::Postgres(_)) => None,
        };
        location.filter(|_| self.enabled)
    }

    /// Refuses a place that overlaps that of the downloaded files, whose maintenance removes everything that no item has.
    pub(super) fn refuse_shared_place(
        &self,
        files: &FilesConfig,
        journal: &StoreLocation,
        data: &Path,
        table: &Setting,
    ) -> Result<(), ConfigErrors> {
        let segments = self.location(journal, data);
        if segments.is_some_and(|segments| segments.overlaps(&files.location(data))) {
            let reason = "the downloaded files are there, or in a folder of it, and their maintenance would remove the segments; give \
                          it a folder or a prefix of its own";
            return Err(table.invalid(reason).into());
        }
        Ok(())
    }
}

settings! {
    /// `[segments]` as it is written.
    pub(super) struct SegmentsTable {
        /// Whether closed spans of the journal are sealed in files.
        enabled: Flag = true,
        /// Folder of the files. Default: the folder "segments" in `journal.data`; none if the journal is in a database.
        folder: Option<Folder>,
        /// Files that stay when retention has removed their changes: "changes" or "all".
        keep: Choice<KeptSegments> = KeptSegments::default(),
        /// A bucket instead of the folder, with the keys of `files.s3`.
        s3: Option<S3Table>,
    }
}

impl Choose for KeptSegments {
    const WHAT: &'static str = "choice of segments to keep";
}

/// Reads the settings of segments.
pub(super) fn read(
    segments: &SegmentsTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<SegmentsConfig, ConfigErrors> {
    let SegmentsTable { enabled, folder, keep, s3 } = segments;
    if folder.is_some() && s3.is_some() {
        let reason = "the segments are in a bucket (segments.s3); leave the folder out";
        return Err(table.at("folder").invalid(reason).into());
    }
    let s3 = location_in_bucket(s3.as_ref(), table, environment)?;
    Ok(SegmentsConfig { enabled: *enabled, folder: folder.clone(), s3, keep: *keep })
}
