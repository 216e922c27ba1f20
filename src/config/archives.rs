//! `[filesets.wayback]` and `[filesets.items]`: archives that datasets are sent to.

use std::{ffi::OsString, time::Duration};

use super::{secret, value::PlatformBase};
use crate::{
    filesets::{ArchiveKeys, ItemSettings, WaybackSettings},
    settings::{Flag, SecretText, Setting, SettingErrors, Text, Whole, settings},
    web::Secret,
};

/// Time between two polls of a job of Save Page Now, as Sandcrawler waits.
const POLL: Duration = Duration::from_secs(3);

/// Longest wait that a web archive can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Wait if archive.org accepts no upload, as its own client waits, and between two checks of an upload.
const BUSY: Duration = Duration::from_secs(30);

settings! {
    /// `[filesets.wayback]`
    #[derive(Clone)]
    pub(super) struct WaybackTable {
        /// Whether small datasets are captured in the archive.
        enabled: Flag,
        /// Index.
        cdx: PlatformBase,
        /// Replay.
        replay: PlatformBase,
        /// Save Page Now 2.
        save: PlatformBase,
        /// Maximum number of new captures for a dataset, 0 to 10 000.
        max_captures: Whole<usize, 0, 10_000>,
        /// Access key of a user of archive.org.
        access_key: Option<SecretText>,
        /// Secret key of that user.
        secret_key: Option<SecretText>,
    }
}

settings! {
    /// `[filesets.items]`
    #[derive(Clone)]
    pub(super) struct ItemsTable {
        /// Whether large datasets are uploaded.
        enabled: Flag,
        /// S3-like interface of archive.org.
        s3: PlatformBase,
        /// Collection of the items.
        collection: Text,
        /// Access key of a user of archive.org.
        access_key: Option<SecretText>,
        /// Secret key of that user.
        secret_key: Option<SecretText>,
    }
}

/// Reads the web archive; `None` if it is not enabled.
pub(super) fn wayback(
    wayback: &WaybackTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<WaybackSettings>, SettingErrors> {
    let WaybackTable { enabled, cdx, replay, save, max_captures, access_key, secret_key } = wayback.clone();
    let keys = keys((access_key, secret_key), table, environment)?;
    let settings = WaybackSettings { cdx, replay, save, keys, max_captures, poll: POLL, longest_wait: LONGEST_WAIT };
    Ok(enabled.then_some(settings))
}

/// Reads the upload of items; `None` if it is not enabled.
pub(super) fn items(
    items: &ItemsTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<ItemSettings>, SettingErrors> {
    let ItemsTable { enabled, s3, collection, access_key, secret_key } = items.clone();
    match keys((access_key, secret_key), table, environment)? {
        Some(keys) => Ok(enabled.then_some(ItemSettings { s3, keys, collection, busy: BUSY, verification: BUSY })),
        None if enabled => {
            let reason = "give access_key and secret_key too; archive.org accepts no upload without";
            Err(table.at("enabled").invalid(reason).into())
        }
        None => Ok(None),
    }
}

/// Reads the keys of a user of archive.org, if both are given.
fn keys(
    given: (Option<Setting>, Option<Setting>),
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<ArchiveKeys>, SettingErrors> {
    let (access, secret) = match given {
        (None, None) => return Ok(None),
        (Some(access), Some(secret)) => (access, secret),
        _ => return Err(table.invalid("give both access_key and secret_key").into()),
    };
    let keys =
        ArchiveKeys::new(&secret::text(&access, environment)?, &Secret::new(secret::text(&secret, environment)?));
    keys.map(Some).ok_or_else(|| table.invalid("a key has characters that a header cannot carry").into())
}
