//! Settings of a source that archives the datasets that other sources request.

use std::time::Duration;

use super::{
    error::ConfigErrors,
    transport::{Connection, TransportKind},
    value::{Sources, Time},
};
use crate::{
    filesets::FilesetSettings,
    settings::{Seconds, Setting, Table, Whole, settings},
};

/// The transport `fileset`: the gateway archives the datasets that other sources request.
pub(super) static FILESET: TransportKind = TransportKind {
    name: "fileset",
    keys: &[FilesetTable::KEYS],
    read: |table, _| Ok(Connection::Datasets(read(table)?)),
};

settings! {
    struct FilesetTable {
        /// Sources with the dialect "fileset-request".
        of: Sources,
        /// Number of datasets that are archived at once, 1 to 64. Default: 4.
        jobs: Whole<usize, 1, 64> = 4,
        /// Time after which an archived dataset is looked at again, for new versions and modified files.
        /// Default: never.
        watch: Option<Time>,
        /// Wait after the first failed attempt, 1 to 86400. Each further failure multiplies it by four, up to
        /// a day. Default: 60.
        first_retry as "first_retry_seconds": Seconds<1, 86_400> = Duration::from_secs(60),
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting) -> Result<FilesetSettings, ConfigErrors> {
    let FilesetTable { of, jobs, watch, first_retry } = FilesetTable::read_part(table)?;
    Ok(FilesetSettings { of, jobs, watch, first_retry })
}
