//! Settings of a source that is the harvest of another gateway.

use std::{ffi::OsString, sync::Arc};

use super::{
    error::ConfigErrors,
    schedule::{PageBytes, Place, ScheduleTable, place, schedule},
    secret,
    transport::{Connection, TransportKind},
};
use crate::{
    harvest::{HarvestSettings, Timeouts, gateway::GatewaySettings},
    settings::{SecretText, Setting, Table, Text, settings},
};

/// The transport `gateway`: another gateway that is harvested.
pub(super) static GATEWAY: TransportKind = TransportKind {
    name: "gateway",
    keys: &[GatewayTable::KEYS, ScheduleTable::KEYS],
    read: |table, environment| Ok(Connection::Harvest(read(table, environment)?)),
};

settings! {
    struct GatewayTable {
        /// URL of the gateway, its server.public_url.
        url: SecretText,
        /// Token with the scope "read", if the gateway has access control: "...", { file = "PATH" } or { env
        /// = "NAME" }.
        token: Option<SecretText>,
        /// PEM file with the CA certificate for https. Default: the CA certificates of the operating system.
        ca: Option<Text>,
        /// Maximum size of a page, in bytes, 1048576 (1 MiB) to 1073741824 (1 GiB). Default: 67108864.
        page_bytes: PageBytes = 64 * 1024 * 1024,
    }
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<HarvestSettings, ConfigErrors> {
    let GatewayTable { url, token, ca, page_bytes } = GatewayTable::read_part(table)?;
    let Place { url, ca } = place(&url, ca, table, environment)?;
    if url.expose().query().is_some() {
        let reason = "it has a query; give the URL of the gateway, as in https://tidings.example.org";
        return Err(table.at("url").invalid(reason).into());
    }
    let token = token.map(|token| secret::read(&token, environment)).transpose()?;
    let kind = GatewaySettings { url, token, ca, page_bytes, timeouts: Timeouts::default() };
    Ok(HarvestSettings { objects: None, schedule: schedule(table)?, kind: Arc::new(kind) })
}
