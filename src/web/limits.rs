//! Counters of the limits that clients reach.
//!
//! A limit that is never reached is too wide; one that is reached all day is too narrow or meets an attack. Operators
//! learn this from the counter. The limits, their defaults and their effects are in `docs/limits.md`; a test compares
//! the two lists.

named_values! {
    /// Limit on requests of clients.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Limit {
        /// Size of one body, encoded and decoded.
        BodyBytes = "body_bytes",
        /// Size of all bodies in memory.
        HeldBytes = "held_bytes",
        /// Depth of XML.
        XmlDepth = "xml_depth",
        /// Number of attributes of an XML element.
        XmlAttributes = "xml_attributes",
        /// Number of items of one change.
        Items = "items",
        /// Number of types of one object.
        Types = "types",
        /// Size of the JSON of one change.
        ChangeBytes = "change_bytes",
        /// Number of items of one object.
        ObjectItems = "object_items",
        /// Time in which the headers of a request must arrive.
        HeadSeconds = "head_seconds",
        /// Duration of a request.
        RequestSeconds = "request_seconds",
        /// Number of connections.
        Connections = "connections",
        /// Number of streams and long polls.
        Streams = "streams",
        /// Share of one client in the connections, and in the streams and long polls.
        ClientPercent = "client_percent",
        /// Number of messages per second from one source.
        Rate = "rate",
    }
}

/// Name of the counter of requests that reached a limit.
pub const LIMITS_HIT: &str = "tidings_limits_hit_total";

/// Shows the series of all limits, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    for limit in Limit::ALL {
        metrics::counter!(LIMITS_HIT, "limit" => limit.name()).increment(0);
    }
}

/// Counts that a client reached `limit`.
pub fn limit_hit(limit: Limit) {
    tracing::debug!(limit = limit.name(), "limit reached");
    metrics::counter!(LIMITS_HIT, "limit" => limit.name()).increment(1);
}
