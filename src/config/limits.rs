//! `[limits]`: the bounds on everything that waits or grows.

use std::time::Duration;

use serde::Deserialize;

use super::{
    ConfigError, Origin, seconds,
    setting::{Setting, whole},
};
use crate::{format, journal::ChangeBounds};

/// `[limits]`: what a client may ask of the gateway.
#[derive(Clone, Debug, Deserialize)]
pub struct Limits {
    /// The largest message, 1 KiB to 1 GiB, in bytes.
    #[serde(deserialize_with = "whole::<1_024, 1_073_741_824, _, _>")]
    pub body_bytes: usize,
    /// `request_seconds`: how long a request may take, 1 to 3600 seconds.
    #[serde(rename = "request_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub request: Duration,
    /// How many bytes of messages are held at once, 1 MiB to 1 TiB; at least one message.
    #[serde(deserialize_with = "whole::<1_048_576, 1_099_511_627_776, _, _>")]
    pub held_bytes: usize,
    /// `head_seconds`: how long the head of a request may take to come, 1 to 3600 seconds.
    #[serde(rename = "head_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub head: Duration,
    /// How many connections are served at once, 1 to 1 000 000.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub connections: usize,
    /// How many streams and long polls are served at once, 1 to 1 000 000.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub streams: usize,
    /// Largest share of `connections`, and of `streams`, that one client may have, 1 to 100 per cent.
    #[serde(deserialize_with = "whole::<1, 100, _, _>")]
    pub client_percent: u8,
    /// `stream_seconds`: how long a stream lasts, 1 to 604 800 seconds.
    #[serde(rename = "stream_seconds", deserialize_with = "seconds::<1, 604_800, _>")]
    pub stream: Duration,
    /// `wait_seconds`: how long a long poll waits, 1 to 3600 seconds.
    #[serde(rename = "wait_seconds", deserialize_with = "seconds::<1, 3600, _>")]
    pub wait: Duration,
    /// How deep elements of XML may be nested, 8 to 10 000.
    #[serde(deserialize_with = "whole::<8, 10_000, _, _>")]
    pub xml_depth: usize,
    /// How many attributes an element of XML may have, 8 to 1000.
    #[serde(deserialize_with = "whole::<8, 1_000, _, _>")]
    pub xml_attributes: usize,
    /// How many items a change may have, 1 to 1 000 000.
    #[serde(deserialize_with = "whole::<1, 1_000_000, _, _>")]
    pub items: usize,
    /// How many items the registry may know of one object, 1 to 10 000 000.
    #[serde(deserialize_with = "whole::<1, 10_000_000, _, _>")]
    pub object_items: usize,
    /// How many types an object may have, 1 to 1000.
    #[serde(deserialize_with = "whole::<1, 1_000, _, _>")]
    pub types: usize,
    /// The largest change as JSON, 4 MiB to 1 GiB, in bytes.
    #[serde(deserialize_with = "whole::<4_194_304, 1_073_741_824, _, _>")]
    pub change_bytes: usize,
    /// The largest page of `/changes`, 1 to 100 000 changes.
    #[serde(deserialize_with = "whole::<1, 100_000, _, _>")]
    pub page: usize,
    /// Maximum size of all answers on disk that are being sent, 64 MiB to 1 TiB, in bytes.
    #[serde(deserialize_with = "whole::<67_108_864, 1_099_511_627_776, _, _>")]
    pub spool_bytes: usize,
    /// The most entries of the quarantine, 1 to 100 000 000.
    #[serde(deserialize_with = "whole::<1, 100_000_000, _, _>")]
    pub quarantine_entries: u64,
    /// The most bytes of the quarantine, 1 MiB to 1 TiB.
    #[serde(deserialize_with = "whole::<1_048_576, 1_099_511_627_776, _, _>")]
    pub quarantine_bytes: u64,
}

impl Limits {
    /// Returns how many of `all` connections or streams one client may have: one at least.
    #[must_use]
    pub fn share_of(&self, all: usize) -> usize {
        all.saturating_mul(usize::from(self.client_percent)).div_ceil(100).max(1)
    }

    /// Refuses bounds that contradict each other. `streams` that nobody set stays below `connections` by itself.
    pub(super) fn refuse_contradictions(&self, table: &Setting) -> Result<(), ConfigError> {
        let Self { body_bytes, held_bytes, connections, streams, .. } = *self;
        if held_bytes < body_bytes {
            let reason = format!(
                "it is {held_bytes}, and a message may have {body_bytes} bytes (limits.body_bytes); give at least that"
            );
            return Err(table.entry("held_bytes")?.invalid(reason));
        }
        let setting = table.entry("streams")?;
        if streams > connections && setting.origin() != Origin::Defaults {
            let reason = format!(
                "it is {streams}, and each stream holds one of {connections} connections (limits.connections); give less"
            );
            return Err(setting.invalid(reason));
        }
        Ok(())
    }

    /// The bounds on one message that its dialect keeps.
    #[must_use]
    pub fn of_messages(&self) -> format::Limits {
        let Self { xml_depth, xml_attributes, items, types, change_bytes, .. } = *self;
        format::Limits { xml_depth, xml_attributes, items, types, change_bytes }
    }

    /// The bounds on one change and on one object that the journal keeps.
    #[must_use]
    pub fn of_changes(&self) -> ChangeBounds {
        let Self { items, object_items, types, change_bytes, .. } = *self;
        ChangeBounds { items, object_items, types, bytes: change_bytes }
    }
}
