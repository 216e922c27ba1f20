//! The settings of a source that is a queue or a topic of a broker that speaks STOMP.

use std::{ffi::OsString, sync::Arc};

use serde::de::IgnoredAny;

use super::{
    error::ConfigError,
    queue::{PREFETCH, Prefetch, authority, given},
    secret,
    setting::Setting,
    source::named,
    transport::{Key, TransportKind},
};
use crate::stomp::{Acknowledge, StompSettings, address, is_destination, is_header};

/// The longest of these, in bytes: each is a header, and a broker bounds them.
const LONGEST: usize = 1024;

/// A queue or a topic of a broker that speaks STOMP.
pub(super) static STOMP: TransportKind = TransportKind {
    name: "stomp",
    keys: &[
        Key::of::<IgnoredAny>("url"),
        Key::of::<String>("ca"),
        Key::of::<String>("destination"),
        Key::of::<String>("durable"),
        Key::of::<String>("client_id"),
        Key::of::<Prefetch>("prefetch"),
        Key::of::<String>("acknowledge"),
    ],
    read: |table, environment| Ok(Some(Arc::new(read(table, environment)?))),
};

/// Checks the settings.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<StompSettings, ConfigError> {
    let url = given(table, "url")?;
    let address = address(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = authority(table.get("ca")?, address.is_encrypted(), "stomp+ssl", table)?;
    given(table, "destination")?;
    let destination = header(table, "destination")?.unwrap_or_default();
    if !is_destination(&destination) {
        let name = destination.trim_start_matches('/');
        let name = ["queue://", "topic://", "queue/", "topic/"]
            .iter()
            .find_map(|kind| name.strip_prefix(kind))
            .unwrap_or(name);
        let name = if name.is_empty() { "NAME" } else { name };
        let reason = format!(
            "it does not say whether {destination:?} is a topic or a queue, and ActiveMQ would make a queue of it; give \
             /topic/{name} or /queue/{name}"
        );
        return Err(table.entry("destination")?.invalid(reason));
    }
    let durable = header(table, "durable")?;
    let client_id = header(table, "client_id")?;
    if durable.is_some() && destination.starts_with("/queue/") {
        let reason =
            "a queue keeps its messages by itself, and only a subscription to a topic can be durable; leave it out";
        return Err(table.entry("durable")?.invalid(reason));
    }
    let acknowledge = named(table, "acknowledge", "way to acknowledge", &Acknowledge::ALL, Acknowledge::name)?;
    let acknowledge = acknowledge.unwrap_or(Acknowledge::Cumulative);
    // A broker knows a durable subscription by both names.
    let client_id = client_id.or_else(|| durable.clone());
    let Prefetch(prefetch) = table.get("prefetch")?.unwrap_or(PREFETCH);
    Ok(StompSettings { address, ca, destination, durable, client_id, prefetch, acknowledge })
}

/// The value of a header.
fn header(table: &Setting, key: &str) -> Result<Option<String>, ConfigError> {
    let Some(text) = table.get::<String>(key)? else { return Ok(None) };
    let reason = match &text {
        text if text.trim().is_empty() => "it is empty; give a name",
        text if text.len() > LONGEST => "it has more than 1024 bytes",
        text if !is_header(text) => "it has a line break or another control character",
        _ => return Ok(Some(text)),
    };
    Err(table.entry(key)?.invalid(reason))
}
