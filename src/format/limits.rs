//! Limits of one message, within the limit of the body size.
//!
//! The operator sets them in `[limits]` of the configuration. There is no setting for the depth of JSON,
//! because serde_json rejects more than 128 levels. XML entities need no limit: document type declarations are
//! rejected, so only the five predefined entities exist.

/// Limits of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum depth of nested XML elements.
    pub xml_depth: usize,
    /// Maximum number of attributes of an XML element.
    pub xml_attributes: usize,
    /// Maximum number of items in a change.
    pub items: usize,
    /// Maximum number of types of an object.
    pub types: usize,
    /// Maximum number of bytes of a change as JSON.
    pub change_bytes: usize,
}

/// The defaults of the configuration; a test compares both.
impl Default for Limits {
    fn default() -> Self {
        Self { xml_depth: 64, xml_attributes: 64, items: 10_000, types: 256, change_bytes: 16 * 1024 * 1024 }
    }
}

/// A limit that a message exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageLimit {
    /// [`Limits::xml_depth`].
    XmlDepth,
    /// [`Limits::xml_attributes`].
    XmlAttributes,
    /// [`Limits::items`].
    Items,
    /// [`Limits::types`].
    Types,
    /// [`Limits::change_bytes`].
    ChangeBytes,
    /// Maximum number of items per object in the registry.
    ObjectItems,
}
