//! `[limits]`: bounds on messages, changes, connections and stored data.

use crate::{
    format,
    journal::ChangeBounds,
    settings::{Origin, Seconds, Setting, SettingError, Whole, settings},
};

settings! {
    /// `[limits]`: bounds on messages, changes, connections and stored data.
    #[derive(Clone, Debug)]
    pub struct Limits {
        /// Maximum size of a message, 1 KiB to 1 GiB, in bytes.
        pub body_bytes: Whole<usize, 1_024, 1_073_741_824>,
        /// Maximum time to handle a request, 1 to 3600 seconds.
        pub request_timeout as "request_seconds": Seconds<1, 3600>,
        /// Maximum size of all messages in memory, 1 MiB to 1 TiB, in bytes; at least `body_bytes`.
        pub held_bytes: Whole<usize, 1_048_576, 1_099_511_627_776>,
        /// Maximum size of all answers of harvested servers and platforms in memory, with what is made of them, 16 MiB to 1 TiB,
        /// in bytes.
        pub harvest_bytes: Whole<usize, 16_777_216, 1_099_511_627_776>,
        /// Maximum time to receive the headers of a request, 1 to 3600 seconds.
        pub header_timeout as "head_seconds": Seconds<1, 3600>,
        /// Maximum number of open connections, 1 to 1 000 000.
        pub connections: Whole<usize, 1, 1_000_000>,
        /// Maximum number of open streams and long polls, 1 to 1 000 000.
        pub streams: Whole<usize, 1, 1_000_000>,
        /// Maximum share of `connections`, and of `streams`, for one client, 1 to 100 per cent.
        pub client_percent: Whole<u8, 1, 100>,
        /// Duration of a stream, 1 to 604 800 seconds.
        pub stream_lifetime as "stream_seconds": Seconds<1, 604_800>,
        /// Maximum wait of a long poll, 1 to 3600 seconds.
        pub long_poll_wait as "wait_seconds": Seconds<1, 3600>,
        /// Maximum nesting depth of XML elements, 8 to 10 000.
        pub xml_depth: Whole<usize, 8, 10_000>,
        /// Maximum number of attributes of an XML element, 8 to 1000.
        pub xml_attributes: Whole<usize, 8, 1_000>,
        /// Maximum number of items of a change, 1 to 1 000 000.
        pub items: Whole<usize, 1, 1_000_000>,
        /// Maximum number of items of one object in the registry, 1 to 10 000 000.
        pub object_items: Whole<usize, 1, 10_000_000>,
        /// Maximum number of types of an object, 1 to 1000.
        pub types: Whole<usize, 1, 1_000>,
        /// Maximum size of a change as JSON, 4 MiB to 1 GiB, in bytes.
        pub change_bytes: Whole<usize, 4_194_304, 1_073_741_824>,
        /// Maximum number of changes on a page of `/changes`, 1 to 100 000.
        pub page: Whole<usize, 1, 100_000>,
        /// Maximum size of all responses that are buffered on disk, 64 MiB to 1 TiB, in bytes.
        pub spool_bytes: Whole<usize, 67_108_864, 1_099_511_627_776>,
        /// Maximum number of entries in the quarantine, 1 to 100 000 000.
        pub quarantine_entries: Whole<u64, 1, 100_000_000>,
        /// Maximum size of the quarantine, 1 MiB to 1 TiB, in bytes.
        pub quarantine_bytes: Whole<u64, 1_048_576, 1_099_511_627_776>,
    }
}

impl Limits {
    /// Returns the maximum number of `all` connections or streams for one client: at least one.
    #[must_use]
    pub fn share_of(&self, all: usize) -> usize {
        all.saturating_mul(usize::from(self.client_percent)).div_ceil(100).max(1)
    }

    /// Refuses bounds that contradict each other. The default of `streams` is not checked, because a low
    /// `connections` limits the streams anyway.
    pub(super) fn refuse_contradictions(&self, table: &Setting) -> Result<(), SettingError> {
        let Self { body_bytes, held_bytes, connections, streams, .. } = *self;
        if held_bytes < body_bytes {
            let reason = format!(
                "it is {held_bytes}, less than the maximum size of one message, {body_bytes} (limits.body_bytes); give at least that"
            );
            return Err(table.at("held_bytes").invalid(reason));
        }
        let setting = table.at("streams");
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
