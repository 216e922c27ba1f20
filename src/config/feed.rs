//! Settings of a source that is the harvest of an RSS or Atom feed.

use std::{ffi::OsString, sync::Arc};

use super::{
    error::ConfigErrors,
    schedule::{PageBytes, Place, ScheduleTable, place, schedule},
    transport::{Connection, TransportKind},
};
use crate::{
    harvest::{
        HarvestSettings, ObjectsDigest, Timeouts,
        feed::{EntryMeaning, FeedSettings},
    },
    settings::{Flag, SecretText, Setting, Table, Text, settings},
};

/// The transport `feed`: an RSS or Atom feed that is harvested.
pub(super) static FEED: TransportKind = TransportKind {
    name: "feed",
    keys: &[FeedTable::KEYS, ScheduleTable::KEYS],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

settings! {
    struct FeedTable {
        /// URL of the feed, with its credentials if it needs any; given as for "amqp".
        url: SecretText,
        /// PEM file with the CA certificate for https. Default: the CA certificates of the operating system.
        ca: Option<Text>,
        /// Maximum size of a document, compressed or decompressed, in bytes, 1048576 (1 MiB) to 1073741824 (1
        /// GiB). Default: 16777216. An entry has at most limits.body_bytes.
        page_bytes: PageBytes = 16 * 1024 * 1024,
        /// Whether to subscribe at the hub that the feed names, if server.public_url is set. Default: true.
        websub: Flag = true,
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigErrors> {
    let FeedTable { url, ca, page_bytes, websub } = FeedTable::read_part(table)?;
    let Place { url, ca } = place(&url, ca, table, environment)?;
    // Entries of another gateway are changes, which their dialect reads.
    let is_gateway = table.get::<Text>("dialect")?.is_some_and(|dialect| dialect == "content-change");
    let entries = if is_gateway { EntryMeaning::Changes } else { EntryMeaning::Objects };
    let kind = FeedSettings { url, ca, page_bytes, timeouts: Timeouts::default(), entries, websub };
    let query = kind.url.expose().query().unwrap_or_default();
    let objects = ObjectsDigest::of(&format!("feed {}{}?{query}", kind.url.origin(), kind.url.expose().path()));
    Ok(HarvestSettings { objects: Some(objects), schedule: schedule(table)?, kind: Arc::new(kind) })
}
