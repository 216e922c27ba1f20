//! Settings of a source that is the harvest of a folder or an archive.

use std::{path::PathBuf, sync::Arc};

use serde::Deserialize;

use super::{
    amqp::required,
    error::ConfigError,
    folder,
    harvest::{Percent, Time, schedule},
    setting::{Setting, bounded},
    transport::{Connection, TransportKey, TransportKind},
};
use crate::{
    harvest::{HarvestSettings, Hours, folder::FolderSettings},
    model::{Uri, UrlPattern},
};

/// An absolute path.
#[derive(Deserialize)]
struct Place(#[serde(deserialize_with = "folder")] PathBuf);

/// Maximum size of all files of an archive, in bytes, 1 MiB to 1 PiB.
#[derive(Deserialize)]
struct UnpackedBytes(#[serde(deserialize_with = "bounded::<1_048_576, 1_125_899_906_842_624, _, _>")] u64);

impl Default for UnpackedBytes {
    fn default() -> Self {
        Self(100 << 30)
    }
}

/// The transport `folder`: a folder or an archive that is harvested.
pub(super) static FOLDER: TransportKind = TransportKind {
    name: "folder",
    keys: &[
        TransportKey::of::<Place>("path"),
        TransportKey::of::<String>("public_url"),
        TransportKey::of::<UrlPattern>("urls"),
        TransportKey::of::<bool>("watch"),
        TransportKey::of::<String>("mode"),
        TransportKey::of::<Time>("every"),
        TransportKey::of::<Time>("jitter"),
        TransportKey::of::<Hours>("hours"),
        TransportKey::of::<Percent>("max_deleted_percent"),
        TransportKey::of::<UnpackedBytes>("unpacked_bytes"),
    ],
    read: |table, _| Ok(Connection::Harvest(read(table)?)),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting) -> Result<HarvestSettings, ConfigError> {
    let Place(path) = required(table, "path")?.read()?;
    let Percent(max_deleted_percent) = table.get("max_deleted_percent")?.unwrap_or_default();
    let UnpackedBytes(unpacked_bytes) = table.get("unpacked_bytes")?.unwrap_or_default();
    let settings = FolderSettings {
        path,
        public_url: public_url(table)?,
        urls: table.get("urls")?,
        watch: table.get("watch")?.unwrap_or(true),
        max_deleted_percent,
        unpacked_bytes,
    };
    Ok(HarvestSettings { objects: None, schedule: schedule(table)?, kind: Arc::new(settings) })
}

/// Reads `public_url`, which gets a slash at its end.
fn public_url(table: &Setting) -> Result<Option<String>, ConfigError> {
    let Some(url) = table.get::<String>("public_url")? else { return Ok(None) };
    let is_plain = url::Url::parse(&url).is_ok_and(|url| url.query().is_none() && url.fragment().is_none());
    if !is_plain || Uri::parse(&url).is_err() {
        let reason = "it is not a URL; give that of the folder, such as \"https://files.example.org/share/\"";
        return Err(table.entry("public_url")?.invalid(reason));
    }
    Ok(Some(format!("{}/", url.trim_end_matches('/'))))
}
