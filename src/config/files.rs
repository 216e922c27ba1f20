//! `[files]`: the store of downloaded files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use super::folder;

/// `[files]`: location of the store of downloaded files.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FilesConfig {
    /// Folder of the store, as an absolute path; `None` for the folder `files` in that of the journal.
    #[serde(default, deserialize_with = "some_folder")]
    folder: Option<PathBuf>,
}

impl FilesConfig {
    /// Returns the folder of the store. `data` is the folder of the journal.
    #[must_use]
    pub fn folder(&self, data: &Path) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| data.join("files"))
    }
}

fn some_folder<'de, D: Deserializer<'de>>(setting: D) -> Result<Option<PathBuf>, D::Error> {
    folder(setting).map(Some)
}
