//! `[filesets.wayback]` and `[filesets.items]`: archives that datasets are sent to.

use std::{ffi::OsString, time::Duration};

use serde::{Deserialize, de::IgnoredAny};
use url::Url;

use super::{
    error::ConfigError,
    filesets::base,
    secret,
    setting::{Setting, bounded},
};
use crate::{
    harvest::fileset::{ArchiveKeys, ItemSettings, WaybackSettings},
    web::Secret,
};

/// Time between two polls of a job of Save Page Now, as Sandcrawler waits.
const POLL: Duration = Duration::from_secs(3);

/// Longest wait that a web archive can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Wait if archive.org accepts no upload, as its own client waits, and between two checks of an upload.
const BUSY: Duration = Duration::from_secs(30);

/// `[filesets.wayback]`
#[derive(Deserialize)]
pub(super) struct WaybackTable {
    enabled: bool,
    #[serde(deserialize_with = "base")]
    cdx: Url,
    #[serde(deserialize_with = "base")]
    replay: Url,
    #[serde(deserialize_with = "base")]
    save: Url,
    #[serde(deserialize_with = "bounded::<0, 10_000, _, _>")]
    max_captures: usize,
    /// The keys are read separately, because they may be in a file or a variable.
    #[serde(default)]
    access_key: Option<IgnoredAny>,
    #[serde(default)]
    secret_key: Option<IgnoredAny>,
}

/// `[filesets.items]`
#[derive(Deserialize)]
pub(super) struct ItemsTable {
    enabled: bool,
    #[serde(deserialize_with = "base")]
    s3: Url,
    collection: String,
    /// The keys are read separately, because they may be in a file or a variable.
    #[serde(default)]
    access_key: Option<IgnoredAny>,
    #[serde(default)]
    secret_key: Option<IgnoredAny>,
}

/// Reads the web archive; `None` if it is not enabled.
pub(super) fn wayback(
    wayback: WaybackTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<WaybackSettings>, ConfigError> {
    let WaybackTable { enabled, cdx, replay, save, max_captures, access_key, secret_key } = wayback;
    let keys = keys((access_key, secret_key), table, environment)?;
    let settings = WaybackSettings { cdx, replay, save, keys, max_captures, poll: POLL, longest_wait: LONGEST_WAIT };
    Ok(enabled.then_some(settings))
}

/// Reads the upload of items; `None` if it is not enabled.
pub(super) fn items(
    items: ItemsTable,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<ItemSettings>, ConfigError> {
    let ItemsTable { enabled, s3, collection, access_key, secret_key } = items;
    match keys((access_key, secret_key), table, environment)? {
        Some(keys) => Ok(enabled.then_some(ItemSettings { s3, keys, collection, busy: BUSY, verification: BUSY })),
        None if enabled => {
            let reason = "give access_key and secret_key too; archive.org accepts no upload without";
            Err(table.entry("enabled")?.invalid(reason))
        }
        None => Ok(None),
    }
}

/// Reads the keys of a user of archive.org, if both are given.
fn keys(
    given: (Option<IgnoredAny>, Option<IgnoredAny>),
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<ArchiveKeys>, ConfigError> {
    match given {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {}
        _ => return Err(table.invalid("give both access_key and secret_key")),
    }
    let text = |name: &str| secret::text(&table.entry(name)?, environment);
    let keys = ArchiveKeys::new(&text("access_key")?, &Secret::new(text("secret_key")?));
    keys.map(Some).ok_or_else(|| table.invalid("a key has characters that a header cannot carry"))
}
