//! `[files]`: the store of downloaded files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de::Error};

use super::folder;
use crate::files::FileLinks;

/// `[files]`: location of the store of downloaded files.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FilesConfig {
    /// Folder of the store, as an absolute path; `None` for the folder `files` in that of the journal.
    #[serde(default, deserialize_with = "some_folder")]
    folder: Option<PathBuf>,
    /// Links to the copies in the content of items.
    #[serde(default, deserialize_with = "links")]
    pub links: FileLinks,
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

fn links<'de, D: Deserializer<'de>>(setting: D) -> Result<FileLinks, D::Error> {
    let name = String::deserialize(setting)?;
    let known = FileLinks::ALL.into_iter().find(|links| links.name() == name);
    known.ok_or_else(|| D::Error::custom(format!("there are no links {name:?}; there are gateway, store")))
}
