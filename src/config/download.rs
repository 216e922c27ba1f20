//! Settings of a source that downloads the files of other sources.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;

use super::{
    error::ConfigError,
    setting::{Setting, bounded},
    source::{SourceConfig, unknown_name},
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    harvest::{HarvestSettings, Hours, Mode, Schedule, download::DownloadSettings},
    model::{MediaRange, SourceName, UrlPattern},
};

/// Default maximum size of a file, and of all files of a source, in bytes.
const MAX_BYTES: u64 = 1 << 30;
const TOTAL_BYTES: u64 = 100 << 30;

/// Time between two runs without new files.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of bytes, 1 to 1 PiB.
#[derive(Deserialize)]
struct Bytes(#[serde(deserialize_with = "bounded::<1, 1_125_899_906_842_624, _, _>")] u64);

/// The transport `download`: the gateway downloads the files that other sources name.
pub(super) static DOWNLOAD: TransportKind = TransportKind {
    name: "download",
    keys: &[
        TransportKey::of::<Vec<SourceName>>("of"),
        TransportKey::of::<UrlPattern>("urls"),
        TransportKey::of::<Vec<MediaRange>>("media_types"),
        TransportKey::of::<Bytes>("max_bytes"),
        TransportKey::of::<Bytes>("total_bytes"),
        TransportKey::of::<bool>("robots"),
    ],
    read: |table, _| Ok(Connection::Harvest(read(table)?)),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting) -> Result<HarvestSettings, ConfigError> {
    let of = table.get::<Vec<SourceName>>("of")?.filter(|of| !of.is_empty()).ok_or_else(|| table.at("of").missing())?;
    let urls = table.get("urls")?.ok_or_else(|| table.at("urls").missing())?;
    let bytes = |name| Ok::<_, ConfigError>(table.get::<Bytes>(name)?.map(|Bytes(bytes)| bytes));
    let settings = DownloadSettings {
        of,
        urls,
        media_types: table.get("media_types")?.unwrap_or_default(),
        max_bytes: bytes("max_bytes")?.unwrap_or(MAX_BYTES),
        total_bytes: bytes("total_bytes")?.unwrap_or(TOTAL_BYTES),
        robots: table.get("robots")?.unwrap_or(true),
    };
    let schedule = Schedule { mode: Mode::Periodic, every: EVERY, jitter: EVERY / 10, hours: Hours::default() };
    Ok(HarvestSettings { objects: None, schedule, kind: Arc::new(settings) })
}

/// Checks that the sources whose files a source downloads exist.
pub(super) fn check_sources(
    name: &SourceName,
    source: &SourceConfig,
    names: &[String],
    sources: &Setting,
) -> Result<(), ConfigError> {
    let read = source.transport.harvest().map_or(&[][..], |harvest| harvest.kind.sources());
    match read.iter().find(|read| *read == name || !names.iter().any(|other| other == read.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<_> = names.iter().map(String::as_str).filter(|other| *other != name.as_str()).collect();
            Err(sources.entry(name.as_str())?.entry("of")?.invalid(unknown_name(
                "other source",
                unknown.as_str(),
                &known,
            )))
        }
    }
}
