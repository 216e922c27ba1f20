//! The content-change message 0.1: the Atom feed of the Fedora Content Change Messaging page
//! (Lyrasis wiki, page 27003136), written and read, and the dialect `content-change`, which reads
//! [our JSON](super::json) too.
//!
//! What that page planned and never sent is sent here: the parent, as a link, and the types of the
//! object, as categories. What it did not plan is foreign markup in a namespace of our own
//! ([`TIDINGS`]) or a registered attribute (`length` on a link, RFC 4287 section 4.2.7.6), so that
//! a reader of 0.1 is not disturbed.

mod write;

use super::FormatKind;

/// The namespace that the page declares on every message.
const CHANGES: &str = "http://www.acuityunlimited.net/fedora/messaging#";
/// Declared by the page on every message, and not used in any.
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of what we add.
pub(crate) const TIDINGS: &str = "urn:tidings:change:1";

/// Scheme of the feed's category for the version of the source's software.
pub(crate) const VERSION_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
/// Scheme of the feed's category for the format of the message.
pub(crate) const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Term of that category.
pub(crate) const FORMAT_TERM: &str = "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1";
/// Scheme of the feed's categories for the types of the object: the page plans them and gives no
/// scheme, so this one is made after those that it gives.
pub(crate) const OBJECT_TYPE_SCHEME: &str = "changes:CONTENT:OBJECT:TYPE";
/// The human words of that category.
pub(crate) const OBJECT_TYPE_LABEL: &str = "Fedora object type";
/// Scheme of an entry's category for the change type.
pub(crate) const CHANGE_TYPE_SCHEME: &str = "changes:ITEM:CHANGE:TYPE";
/// The human words of that category.
pub(crate) const CHANGE_TYPE_LABEL: &str = "Fedora datastream modification type";
/// Scheme of an entry's category for the state before.
pub(crate) const BEFORE_SCHEME: &str = "changes:CONTENT:ITEM:STATEBEFORE";
/// The human words of that category.
pub(crate) const BEFORE_LABEL: &str = "Fedora datastream state before modification";
/// Scheme of an entry's category for the state after.
pub(crate) const AFTER_SCHEME: &str = "changes:CONTENT:ITEM:STATEAFTER";
/// The human words of that category.
pub(crate) const AFTER_LABEL: &str = "Fedora datastream state after modification";

/// The 0.1 message as a format.
pub(super) static ATOM: FormatKind = FormatKind {
    name: "atom",
    media_type: "application/atom+xml;type=feed",
    about: "the content-change message 0.1, an Atom feed",
    write: write::change,
    write_modification: write::modification,
};
