//! Settings of a source that is the harvest of an RSS or Atom feed.

use std::{ffi::OsString, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    error::ConfigError,
    harvest::{PageBytes, Place, Time, place, schedule},
    setting::Setting,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::harvest::{
    HarvestSettings, Hours, ObjectsDigest, Timeouts,
    feed::{EntryMeaning, FeedSettings},
};

/// Default maximum size of a document, in bytes.
const PAGE_BYTES: PageBytes = PageBytes(16 * 1024 * 1024);

/// The transport `feed`: an RSS or Atom feed that is harvested.
pub(super) static FEED: TransportKind = TransportKind {
    name: "feed",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("mode"),
        TransportKey::of::<Time>("every"),
        TransportKey::of::<Time>("jitter"),
        TransportKey::of::<Hours>("hours"),
        TransportKey::of::<PageBytes>("page_bytes"),
        TransportKey::of::<bool>("websub"),
    ],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigError> {
    let Place { url, ca } = place(table, environment)?;
    let PageBytes(page_bytes) = table.get("page_bytes")?.unwrap_or(PAGE_BYTES);
    // Entries of another gateway are changes, which their dialect reads.
    let is_gateway = table.get::<String>("dialect")?.is_some_and(|dialect| dialect == "content-change");
    let entries = if is_gateway { EntryMeaning::Changes } else { EntryMeaning::Objects };
    let websub = table.get("websub")?.unwrap_or(true);
    let kind = FeedSettings { url, ca, page_bytes, timeouts: Timeouts::default(), entries, websub };
    let query = kind.url.expose().query().unwrap_or_default();
    let objects = ObjectsDigest::of(&format!("feed {}{}?{query}", kind.url.origin(), kind.url.expose().path()));
    Ok(HarvestSettings { objects: Some(objects), schedule: schedule(table)?, kind: Arc::new(kind) })
}
