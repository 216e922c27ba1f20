//! Settings of a source that downloads the files of other sources.

use std::{sync::Arc, time::Duration};

use super::{
    error::ConfigErrors,
    transport::{Connection, TransportKind},
    value::Sources,
};
use crate::{
    harvest::{HarvestSettings, Mode, Schedule, download::DownloadSettings},
    model::{MediaRange, UrlPattern},
    settings::{Flag, List, Setting, Table, Text, Whole, settings},
};

/// Time between two runs without new files.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of bytes, 1 to 1 PiB.
pub(super) type Bytes = Whole<u64, 1, 1_125_899_906_842_624>;

/// The transport `download`: the gateway downloads the files that other sources name.
pub(super) static DOWNLOAD: TransportKind = TransportKind {
    name: "download",
    keys: &[DownloadTable::KEYS],
    read: |table, _| Ok(Connection::Harvest(read(table)?)),
};

settings! {
    struct DownloadTable {
        /// Sources whose files are downloaded.
        of: Sources,
        /// Regular expression that matches the whole URL of each file to download.
        urls: Text<UrlPattern>,
        /// Media types of the files. Default: all.
        media_types: List<Text<MediaRange>> = Vec::new(),
        /// Maximum size of a file, in bytes. Default: 1073741824 (1 GiB).
        max_bytes: Bytes = 1 << 30,
        /// Maximum size of all files of this source, in bytes. Default: 107374182400 (100 GiB).
        total_bytes: Bytes = 100 << 30,
        /// Whether robots.txt counts. Default: true.
        robots: Flag = true,
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting) -> Result<HarvestSettings, ConfigErrors> {
    let DownloadTable { of, urls, media_types, max_bytes, total_bytes, robots } = DownloadTable::read_part(table)?;
    let settings = DownloadSettings { of, urls, media_types, max_bytes, total_bytes, robots };
    let schedule = Schedule::new(Mode::Periodic, EVERY, EVERY / 10);
    Ok(HarvestSettings { objects: None, schedule, kind: Arc::new(settings) })
}
