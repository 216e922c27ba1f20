//! `[limits]`: bounds on messages, changes, connections and stored data.

use std::time::Duration;

use serde::Deserialize;

use super::{
    ConfigError, Origin, seconds,
    setting::{Setting, bounded},
};
use crate::{format, journal::ChangeBounds};

/// `[limits]`: bounds on messages, changes, connections and stored data.
#[derive(Clone, Debug, Deserialize)]
pub struct Limits {
    /// Maximum size of a message, 1 KiB to 1 GiB, in bytes.
    #[serde(deserialize_with = "bounded::<1_024, 1_073_741_824, _, _>")]
    pub body_bytes: usize,
    /// `request_seconds`: maximum time to handle a request, 1 to 3600 seconds.
    #[serde(rename = "request_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub request_timeout: Duration,
    /// Maximum size of all messages in memory, 1 MiB to 1 TiB, in bytes; at least `body_bytes`.
    #[serde(deserialize_with = "bounded::<1_048_576, 1_099_511_627_776, _, _>")]
    pub held_bytes: usize,
    /// Maximum size of all answers of harvested servers and platforms in memory, with what is made of them, 16 MiB to 1 TiB,
    /// in bytes.
    #[serde(deserialize_with = "bounded::<16_777_216, 1_099_511_627_776, _, _>")]
    pub harvest_bytes: usize,
    /// `head_seconds`: maximum time to receive the headers of a request, 1 to 3600 seconds.
    #[serde(rename = "head_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub header_timeout: Duration,
    /// Maximum number of open connections, 1 to 1 000 000.
    #[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")]
    pub connections: usize,
    /// Maximum number of open streams and long polls, 1 to 1 000 000.
    #[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")]
    pub streams: usize,
    /// Maximum share of `connections`, and of `streams`, for one client, 1 to 100 per cent.
    #[serde(deserialize_with = "bounded::<1, 100, _, _>")]
    pub client_percent: u8,
    /// `stream_seconds`: duration of a stream, 1 to 604 800 seconds.
    #[serde(rename = "stream_seconds", deserialize_with = "seconds::<1, 604_800, _>")]
    pub stream_lifetime: Duration,
    /// `wait_seconds`: maximum wait of a long poll, 1 to 3600 seconds.
    #[serde(rename = "wait_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub long_poll_wait: Duration,
    /// Maximum nesting depth of XML elements, 8 to 10 000.
    #[serde(deserialize_with = "bounded::<8, 10_000, _, _>")]
    pub xml_depth: usize,
    /// Maximum number of attributes of an XML element, 8 to 1000.
    #[serde(deserialize_with = "bounded::<8, 1_000, _, _>")]
    pub xml_attributes: usize,
    /// Maximum number of items of a change, 1 to 1 000 000.
    #[serde(deserialize_with = "bounded::<1, 1_000_000, _, _>")]
    pub items: usize,
    /// Maximum number of items of one object in the registry, 1 to 10 000 000.
    #[serde(deserialize_with = "bounded::<1, 10_000_000, _, _>")]
    pub object_items: usize,
    /// Maximum number of types of an object, 1 to 1000.
    #[serde(deserialize_with = "bounded::<1, 1_000, _, _>")]
    pub types: usize,
    /// Maximum size of a change as JSON, 4 MiB to 1 GiB, in bytes.
    #[serde(deserialize_with = "bounded::<4_194_304, 1_073_741_824, _, _>")]
    pub change_bytes: usize,
    /// Maximum number of changes on a page of `/changes`, 1 to 100 000.
    #[serde(deserialize_with = "bounded::<1, 100_000, _, _>")]
    pub page: usize,
    /// Maximum size of all responses that are buffered on disk, 64 MiB to 1 TiB, in bytes.
    #[serde(deserialize_with = "bounded::<67_108_864, 1_099_511_627_776, _, _>")]
    pub spool_bytes: usize,
    /// Maximum number of entries in the quarantine, 1 to 100 000 000.
    #[serde(deserialize_with = "bounded::<1, 100_000_000, _, _>")]
    pub quarantine_entries: u64,
    /// Maximum size of the quarantine, 1 MiB to 1 TiB, in bytes.
    #[serde(deserialize_with = "bounded::<1_048_576, 1_099_511_627_776, _, _>")]
    pub quarantine_bytes: u64,
}

impl Limits {
    /// Returns the maximum number of `all` connections or streams for one client: at least one.
    #[must_use]
    pub fn share_of(&self, all: usize) -> usize {
        all.saturating_mul(usize::from(self.client_percent)).div_ceil(100).max(1)
    }

    /// Refuses bounds that contradict each other. The default of `streams` is not checked, because a low
    /// `connections` limits the streams anyway.
    pub(super) fn refuse_contradictions(&self, table: &Setting) -> Result<(), ConfigError> {
        let Self { body_bytes, held_bytes, connections, streams, .. } = *self;
        if held_bytes < body_bytes {
            let reason = format!(
                "it is {held_bytes}, less than the maximum size of one message, {body_bytes} (limits.body_bytes); give at least that"
            );
            return Err(table.entry("held_bytes")?.invalid(reason));
        }
        let setting = table.entry("streams")?;
        if streams > connections && setting.origin() != Origin::Defaults {
            let reason = format!(
                "it is {streams}, but each stream needs one of the {connections} connections (limits.connections); give less"
            );
            return Err(setting.invalid(reason));
        }
        Ok(())
    }

    /// Returns the bounds on a message that its dialect enforces.
    #[must_use]
    pub fn message_limits(&self) -> format::Limits {
        let Self { xml_depth, xml_attributes, items, types, change_bytes, .. } = *self;
        format::Limits { xml_depth, xml_attributes, items, types, change_bytes }
    }

    /// Returns the bounds on a change and an object that the journal enforces.
    #[must_use]
    pub fn change_bounds(&self) -> ChangeBounds {
        let Self { items, object_items, types, change_bytes, .. } = *self;
        ChangeBounds { items, object_items, types, bytes: change_bytes }
    }
}
