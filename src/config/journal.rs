//! `[journal]`: the location of the journal, and its limits.

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::ConfigError,
    folder, secret,
    setting::{Setting, bounded},
};
use crate::journal::store::{PostgresUrl, StoreLocation};

/// `[journal]`: location, retention and memory of the journal.
#[derive(Clone, Debug, Deserialize)]
pub struct JournalConfig {
    /// `store` is read separately, because it contains a password, which may be in a file or a variable.
    #[serde(default, rename = "store")]
    _store: IgnoredAny,
    /// PEM file of the CA certificates of the database server, instead of those of the operating system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Folder of the journal, as an absolute path; with a database, the folder of temporary files and of rendered pages.
    #[serde(deserialize_with = "folder")]
    pub data: PathBuf,
    /// `--new-journal`: whether a new journal is begun in a folder whose journal is missing.
    #[serde(skip)]
    pub begin_new: bool,
    /// Maximum age of changes, 0 to 36500 days; 0 means unlimited.
    #[serde(deserialize_with = "bounded::<0, 36_500, _, _>")]
    pub keep_days: u32,
    /// Maximum number of changes, 0 to 1 000 000 000 000; 0 means unlimited.
    #[serde(deserialize_with = "bounded::<0, 1_000_000_000_000, _, _>")]
    pub keep_changes: u64,
    /// Time during which a repeated event is recognized as a duplicate, 1 to 3650 days.
    #[serde(deserialize_with = "bounded::<1, 3650, _, _>")]
    pub dedupe_days: u32,
    /// Minimum number of recent events among which a repeat is recognized as a duplicate, 1000 to 1 000 000 000.
    #[serde(deserialize_with = "bounded::<1_000, 1_000_000_000, _, _>")]
    pub dedupe_events: u64,
    /// Maximum number of events that wait for the writer, 1 to 1 000 000.
    #[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")]
    pub queue: usize,
    /// Maximum number of events in one transaction, 1 to 100 000.
    #[serde(deserialize_with = "bounded::<1, 100_000, _, _>")]
    pub batch: usize,
    /// Maximum number of the newest changes that are cached in memory, 1 to 1 000 000.
    #[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")]
    pub tail_changes: usize,
    /// Maximum size of the cached newest changes, in bytes of JSON, 64 KiB to 1 GiB.
    #[serde(deserialize_with = "bounded::<65_536, 1_073_741_824, _, _>")]
    pub tail_bytes: usize,
}

/// Reads the location of the journal: `store`, or else the folder `data`.
pub(super) fn store(
    table: &Setting,
    journal: &JournalConfig,
    environment: &[(OsString, OsString)],
) -> Result<StoreLocation, ConfigError> {
    let store = table.entry("store")?;
    if !store.is_given() {
        return match journal.ca {
            Some(_) => Err(table.entry("ca")?.invalid("it needs a database; give journal.store, or leave ca out")),
            None => Ok(StoreLocation::Folder(journal.data.clone())),
        };
    }
    let url = PostgresUrl::parse(&secret::text(&store, environment)?);
    let url = url.map_err(|error| store.invalid(error.to_string()))?;
    match &journal.ca {
        Some(path) if path.as_os_str().is_empty() => {
            Err(table.entry("ca")?.invalid("it is empty; give the path of a file"))
        }
        Some(_) if !url.may_be_encrypted() => Err(table.entry("ca")?.invalid(
            "the connection is not encrypted; give journal.store a host and sslmode=require, or leave ca out",
        )),
        _ => Ok(StoreLocation::Postgres(url)),
    }
}
