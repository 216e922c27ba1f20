//! How much of one message a dialect takes: what a stranger could otherwise make as large as the
//! body allows.
//!
//! They are the operator's, from `[limits]` of the configuration, and handed to a dialect when it is
//! set up. The depth of JSON is not among them: serde_json refuses more than 128 levels. Nor are
//! entities: XML has its five own, and a document type declaration is refused.

/// Bounds on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How deep elements of XML may be nested.
    pub xml_depth: usize,
    /// How many attributes an element of XML may have.
    pub xml_attributes: usize,
    /// How many items a change may have.
    pub items: usize,
    /// How many types an object may have.
    pub types: usize,
    /// How many bytes of JSON a change may become.
    pub change_bytes: usize,
}

/// The defaults of the configuration; a test compares them.
impl Default for Limits {
    fn default() -> Self {
        Self { xml_depth: 64, xml_attributes: 64, items: 10_000, types: 256, change_bytes: 16 * 1024 * 1024 }
    }
}

/// Which bound a message passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
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
    /// The items that the registry may know of one object.
    ObjectItems,
}
