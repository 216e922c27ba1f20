//! `[journal]`: the location of the journal, and its limits.

use std::{ffi::OsString, path::PathBuf};

use super::{error::ConfigErrors, secret, value::Folder};
use crate::{
    journal::store::{PostgresUrl, StoreLocation},
    settings::{SecretText, Setting, Text, Whole, settings},
};

settings! {
    /// `[journal]`: location, retention and memory of the journal.
    #[derive(Clone, Debug)]
    pub struct JournalConfig {
        /// URL of a database, with its password. [`store`] reads it.
        store: Option<SecretText>,
        /// PEM file of the CA certificates of the database server, instead of those of the operating system.
        pub ca: Option<Text<PathBuf>>,
        /// Folder of the journal, as an absolute path; with a database, the folder of temporary files and of rendered pages.
        pub data: Folder,
        /// Maximum age of changes, 0 to 36500 days; 0 means unlimited.
        pub keep_days: Whole<u32, 0, 36_500>,
        /// Maximum number of changes, 0 to 1 000 000 000 000; 0 means unlimited.
        pub keep_changes: Whole<u64, 0, 1_000_000_000_000>,
        /// Time during which a repeated event is recognized as a duplicate, 1 to 3650 days.
        pub dedupe_days: Whole<u32, 1, 3650>,
        /// Minimum number of recent events among which a repeat is recognized as a duplicate, 1000 to 1 000 000 000.
        pub dedupe_events: Whole<u64, 1_000, 1_000_000_000>,
        /// Maximum number of events that wait for the writer, 1 to 1 000 000.
        pub queue: Whole<usize, 1, 1_000_000>,
        /// Maximum number of events in one transaction, 1 to 100 000.
        pub batch: Whole<usize, 1, 100_000>,
        /// Maximum number of the newest changes that are cached in memory, 1 to 1 000 000.
        pub tail_changes: Whole<usize, 1, 1_000_000>,
        /// Maximum size of the cached newest changes, in bytes of JSON, 64 KiB to 1 GiB.
        pub tail_bytes: Whole<usize, 65_536, 1_073_741_824>,
    }
}

/// Reads the location of the journal: `store`, or else the folder `data`.
pub(super) fn store(
    table: &Setting,
    journal: &JournalConfig,
    environment: &[(OsString, OsString)],
) -> Result<StoreLocation, ConfigErrors> {
    let Some(store) = &journal.store else {
        return match journal.ca {
            Some(_) => Err(table.at("ca").invalid("it needs a database; give journal.store, or leave ca out").into()),
            None => Ok(StoreLocation::Folder(journal.data.clone())),
        };
    };
    let url = PostgresUrl::parse(&secret::text(store, environment)?);
    let url = url.map_err(|error| store.invalid(error.to_string()))?;
    match &journal.ca {
        Some(path) if path.as_os_str().is_empty() => {
            Err(table.at("ca").invalid("it is empty; give the path of a file").into())
        }
        Some(_) if !url.may_be_encrypted() => Err(table
            .at("ca")
            .invalid("the connection is not encrypted; give journal.store a host and sslmode=require, or leave ca out")
            .into()),
        _ => Ok(StoreLocation::Postgres(url)),
    }
}
