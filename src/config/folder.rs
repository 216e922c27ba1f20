//! Settings of a source that is the harvest of a folder or an archive.

use std::sync::Arc;

use super::{
    error::ConfigErrors,
    schedule::{MAX_DELETED_PERCENT, Percent, ScheduleTable, schedule},
    transport::{Connection, TransportKind},
    value::Folder,
};
use crate::{
    harvest::{HarvestSettings, folder::FolderSettings},
    model::{Uri, UrlPattern},
    settings::{Flag, Setting, Table, Text, TextType, Whole, settings},
};

/// The transport `folder`: a folder or an archive that is harvested.
pub(super) static FOLDER: TransportKind = TransportKind {
    name: "folder",
    keys: &[FolderTable::KEYS, ScheduleTable::KEYS],
    read: |table, _| Ok(Connection::Harvest(read(table)?)),
};

settings! {
    struct FolderTable {
        /// Folder with all folders in it, or a zip, tar or tar.gz file.
        path: Folder,
        /// URL of the folder for subscribers, which begins the URIs of the files. Default: a file: URL.
        public_url: Option<FolderUrl>,
        /// Regular expression that matches the whole URI of each file to harvest. Default: all files.
        urls: Option<Text<UrlPattern>>,
        /// Whether a change of a file begins a run, where the file system reports changes. Default: true.
        watch: Flag = true,
        /// Largest share of the files that a run deletes, as for "oai-pmh". Only 100 deletes the files of a
        /// folder that has become empty. Default: 10.
        max_deleted_percent: Percent = MAX_DELETED_PERCENT,
        /// Maximum size of all files of an archive, in bytes, 1048576 (1 MiB) to 1125899906842624 (1 PiB).
        /// Default: 107374182400 (100 GiB).
        unpacked_bytes: Whole<u64, 1_048_576, 1_125_899_906_842_624> = 100 << 30,
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting) -> Result<HarvestSettings, ConfigErrors> {
    let FolderTable { path, public_url, urls, watch, max_deleted_percent, unpacked_bytes } =
        FolderTable::read_part(table)?;
    let settings = FolderSettings { path, public_url, urls, watch, max_deleted_percent, unpacked_bytes };
    Ok(HarvestSettings { objects: None, schedule: schedule(table)?, kind: Arc::new(settings) })
}

/// URL of a folder, which gets a slash at its end.
struct FolderUrl;

impl TextType for FolderUrl {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let is_plain = url::Url::parse(text).is_ok_and(|url| url.query().is_none() && url.fragment().is_none());
        if !is_plain || Uri::parse(text).is_err() {
            let reason = "it is not a URL; give that of the folder, such as \"https://files.example.org/share/\"";
            return Err(reason.to_owned());
        }
        Ok(format!("{}/", text.trim_end_matches('/')))
    }
}
