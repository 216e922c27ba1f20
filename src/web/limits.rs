//! Which limits clients have run into, counted.
//!
//! A limit that is never met is too wide, and one that is met all day is too narrow or meets an
//! attack; the count is how an operator knows. The limits themselves, their defaults and what
//! happens at each stand in `docs/limits.md`, and a test compares the two lists.

named_values! {
    /// A limit on what clients may ask.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Limit {
        /// The size of one body, as it came or inflated.
        BodyBytes = "body_bytes",
        /// The size of all bodies that are held at once.
        HeldBytes = "held_bytes",
        /// The depth of XML.
        XmlDepth = "xml_depth",
        /// The attributes of an element of XML.
        XmlAttributes = "xml_attributes",
        /// The items of one change.
        Items = "items",
        /// The types of one object.
        Types = "types",
        /// The JSON of one change.
        ChangeBytes = "change_bytes",
        /// The items of one object.
        ObjectItems = "object_items",
        /// The time that the head of a request may take.
        HeadSeconds = "head_seconds",
        /// The time that a request may take.
        RequestSeconds = "request_seconds",
        /// The connections that are served at once.
        Connections = "connections",
        /// The streams and long polls that are served at once.
        Streams = "streams",
        /// The share of connections, or of streams and long polls, that one client may have.
        ClientPercent = "client_percent",
        /// The messages that a source may send in a second.
        Rate = "rate",
    }
}

/// The metric of requests that met a limit.
pub const LIMITS_HIT: &str = "tidings_limits_hit_total";

/// Counts that a client ran into `limit`.
pub fn limit_hit(limit: Limit) {
    tracing::debug!(limit = limit.name(), "a limit was hit");
    metrics::counter!(LIMITS_HIT, "limit" => limit.name()).increment(1);
}
