//! Wire formats: dialects read them, formats write them. Each is one file or folder of pure functions without
//! I/O.
//!
//! The intake passes bytes as a [`Message`]; a dialect returns [`Draft`](crate::model::Draft)s or a
//! [`Rejection`]. Views and deliveries pass changes; a format returns bytes. To add a dialect or a format, add
//! a module and list it in [`DIALECTS`] or [`FORMATS`].

mod cloudevents;
pub(crate) mod content_change;
mod dialect;
pub mod download;
mod fedora_apim;
mod fedora_events;
pub mod fedora_objects;
pub mod fedora_relations;
pub mod fedora_rest;
pub mod feed;
pub mod fileset;
pub mod folder;
mod format_kind;
pub mod gateway;
mod hoarder;
mod islandora;
mod json;
mod json_ld;
pub mod ldp;
mod limits;
mod mapped;
mod model_xml;
pub mod oai_pmh;
mod position;
mod rejection;
mod routing;
mod sfm;
pub mod stated_dates;
mod uri_path;
mod utf8;
pub mod web_links;
mod xml;
pub(crate) mod xml_writer;

pub use dialect::{
    Dialect, DialectKind, DuplicateDetection, ExplainedElement, ExplainedMember, Headers, InvalidSettings, Message,
    ParsedMessage, Redaction, RepositoryApi, RepositoryKind, parse_settings,
};
pub use fedora_apim::{InvalidRestUri, RestUris};
pub use fedora_events::{fedora_event_headers, join as resource_uri};
pub use format_kind::{Batch, ExtraHeaders, FormatKind, Header, HeaderProtocol, RoutedMessage};
pub use limits::{Limits, MessageLimit};
pub use position::TextPosition;
pub use rejection::{Location, Rejection, RejectionKind};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// All dialects, by name.
pub static DIALECTS: &[&DialectKind] = &[
    &fedora_apim::DIALECT,
    &fedora_events::DIALECT,
    &islandora::DIALECT,
    &sfm::DIALECT,
    &hoarder::DIALECT,
    &oai_pmh::DIALECT,
    &feed::DIALECT,
    &folder::DIALECT,
    &fileset::REQUEST_DIALECT,
    &fileset::RESULT_DIALECT,
    &download::DIALECT,
    &gateway::DIALECT,
    &mapped::DIALECT,
    &content_change::DIALECT,
];

/// ASCII characters that are percent-encoded in a part of a URI: all but the unreserved ones (RFC 3986 section 2.3).
pub(crate) const NOT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the dialect with this name.
#[must_use]
pub fn dialect(name: &str) -> Option<&'static DialectKind> {
    DIALECTS.iter().copied().find(|kind| kind.name == name)
}

/// Lists the dialects whose repositories the gateway can query and whose kind `of_kind` accepts, as part of a
/// sentence.
#[must_use]
pub fn dialects_with_repository(of_kind: fn(&RepositoryKind) -> bool) -> String {
    let is_of_kind = |kind: &&&DialectKind| kind.repository.as_ref().is_some_and(of_kind);
    let names: Vec<_> = DIALECTS.iter().filter(is_of_kind).map(|kind| kind.name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// All formats, by name.
pub static FORMATS: &[&FormatKind] = &[
    &content_change::ATOM,
    &json::JSON,
    &model_xml::XML,
    &cloudevents::STRUCTURED,
    &cloudevents::BINARY,
    &fedora_events::ACTIVITY_STREAMS,
    &islandora::FORMAT,
    &hoarder::FORMAT,
    &fileset::RESULT_FORMAT,
    &fileset::FILE_RESULT_FORMAT,
];

/// Format in which the journal stores changes, byte for byte.
pub static JOURNAL_FORMAT: &FormatKind = &json::JSON;

/// Returns the format with this name.
#[must_use]
pub fn format(name: &str) -> Option<&'static FormatKind> {
    FORMATS.iter().copied().find(|kind| kind.name == name)
}
