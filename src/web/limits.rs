//! Which limits clients have run into, counted.
//!
//! A limit that is never met is too wide, and one that is met all day is too narrow or meets an
//! attack; the count is how an operator knows. The limits themselves, their defaults and what
//! happens at each stand in `docs/limits.md`, and a test compares the two lists.

/// A limit on what clients may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The size of one body, as it came or inflated.
    BodyBytes,
    /// The size of all bodies that are held at once.
    HeldBytes,
    /// The depth of XML.
    XmlDepth,
    /// The attributes of an element of XML.
    XmlAttributes,
    /// The items of one change.
    Items,
    /// The types of one object.
    Types,
    /// The JSON of one change.
    ChangeBytes,
    /// The items of one object.
    ObjectItems,
    /// The time that the head of a request may take.
    HeadSeconds,
    /// The time that a request may take.
    RequestSeconds,
    /// The connections that are served at once.
    Connections,
    /// The streams and long polls that are served at once.
    Streams,
    /// The share of connections, or of streams and long polls, that one client may have.
    ClientPercent,
    /// The messages that a source may send in a second.
    Rate,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 14] = [
        Self::BodyBytes,
        Self::HeldBytes,
        Self::XmlDepth,
        Self::XmlAttributes,
        Self::Items,
        Self::Types,
        Self::ChangeBytes,
        Self::ObjectItems,
        Self::HeadSeconds,
        Self::RequestSeconds,
        Self::Connections,
        Self::Streams,
        Self::ClientPercent,
        Self::Rate,
    ];

    /// The name of its setting in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BodyBytes => "body_bytes",
            Self::HeldBytes => "held_bytes",
            Self::XmlDepth => "xml_depth",
            Self::XmlAttributes => "xml_attributes",
            Self::Items => "items",
            Self::Types => "types",
            Self::ChangeBytes => "change_bytes",
            Self::ObjectItems => "object_items",
            Self::HeadSeconds => "head_seconds",
            Self::RequestSeconds => "request_seconds",
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::ClientPercent => "client_percent",
            Self::Rate => "rate",
        }
    }
}

/// The metric of requests that met a limit.
pub const LIMITS_HIT: &str = "tidings_limits_hit_total";

/// Counts that a client ran into `limit`.
pub fn limit_hit(limit: Limit) {
    tracing::debug!(limit = limit.name(), "a limit was hit");
    metrics::counter!(LIMITS_HIT, "limit" => limit.name()).increment(1);
}
