//! Settings of a source that is the harvest of another gateway.

use std::{ffi::OsString, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    error::ConfigError,
    harvest::{PageBytes, Place, Time, place, schedule},
    secret,
    setting::Setting,
    transport::{Connection, TransportKey, TransportKind},
};
use crate::harvest::{HarvestSettings, Hours, Timeouts, gateway::GatewaySettings};

/// Default maximum size of a page, in bytes. A gateway ends its pages at 4 MiB, but a change may be larger.
const PAGE_BYTES: PageBytes = PageBytes(64 * 1024 * 1024);

/// The transport `gateway`: another gateway that is harvested.
pub(super) static GATEWAY: TransportKind = TransportKind {
    name: "gateway",
    keys: &[
        TransportKey::of::<IgnoredAny>("url"),
        TransportKey::of::<IgnoredAny>("token"),
        TransportKey::of::<String>("ca"),
        TransportKey::of::<String>("mode"),
        TransportKey::of::<Time>("every"),
        TransportKey::of::<Time>("jitter"),
        TransportKey::of::<Hours>("hours"),
        TransportKey::of::<PageBytes>("page_bytes"),
    ],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigError> {
    let Place { url, ca } = place(table, environment)?;
    if url.expose().query().is_some() {
        return Err(table
            .at("url")
            .invalid("it has a query; give the URL of the gateway, as in https://tidings.example.org"));
    }
    let token = table.entry("token")?;
    let token = token.is_given().then(|| secret::read(&token, environment)).transpose()?;
    let PageBytes(page_bytes) = table.get("page_bytes")?.unwrap_or(PAGE_BYTES);
    let kind = GatewaySettings { url, token, ca, page_bytes, timeouts: Timeouts::default() };
    Ok(HarvestSettings { objects: None, schedule: schedule(table)?, kind: Arc::new(kind) })
}
