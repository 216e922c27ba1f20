//! The wire formats: how each one is read (a dialect) and how it is written, one file or folder a
//! format, each a pure function without I/O.
//!
//! Bytes come from the intake as a [`Message`]; a dialect gives back [`Draft`](crate::model::Draft)s or a
//! [`Rejection`]. Changes come from the views and deliveries; a format gives back bytes.
//! To add a dialect or a format: one new file, and one line in [`DIALECTS`] or [`FORMATS`].

mod cloudevents;
pub(crate) mod content_change;
mod dialect;
mod fedora_apim;
mod fedora_events;
pub mod fedora_objects;
pub mod fedora_rest;
mod hoarder;
mod islandora;
mod json;
mod json_ld;
mod kind;
pub mod ldp;
mod limits;
mod model_xml;
mod rejection;
mod routing;
mod sfm;
mod utf8;
mod xml;
mod xml_writer;

pub use dialect::{
    Dialect, DialectKind, Headers, InvalidSettings, Message, Reading, Redacted, Repeats, RepositoryApi, RepositoryKind,
    settings,
};
pub use fedora_apim::{InvalidName, RestNames};
pub use fedora_events::join as resource_at;
pub use kind::{Batch, Beside, Carrier, FormatKind, Header};
pub use limits::{Bound, Limits};
pub use rejection::{Place, Rejection, RejectionKind};

/// Every dialect, by name.
pub static DIALECTS: &[&DialectKind] = &[
    &fedora_apim::DIALECT,
    &fedora_events::DIALECT,
    &islandora::DIALECT,
    &sfm::DIALECT,
    &hoarder::DIALECT,
    &content_change::DIALECT,
];

/// The dialect of that name.
#[must_use]
pub fn dialect(name: &str) -> Option<&'static DialectKind> {
    DIALECTS.iter().copied().find(|kind| kind.name == name)
}

/// The names of the dialects whose repositories can be asked, and are of such a kind, as a list in a sentence.
#[must_use]
pub fn dialects_with_repository(of_kind: fn(&RepositoryKind) -> bool) -> String {
    let is_of_kind = |kind: &&&DialectKind| kind.repository.as_ref().is_some_and(of_kind);
    let names: Vec<_> = DIALECTS.iter().filter(is_of_kind).map(|kind| kind.name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Every format, by name.
pub static FORMATS: &[&FormatKind] = &[
    &content_change::ATOM,
    &json::JSON,
    &model_xml::XML,
    &cloudevents::STRUCTURED,
    &cloudevents::BINARY,
    &fedora_events::ACTIVITY_STREAMS,
];

/// The format whose bodies are, byte for byte, what the journal keeps of its changes.
pub static KEPT: &FormatKind = &json::JSON;

/// The format of that name.
#[must_use]
pub fn format(name: &str) -> Option<&'static FormatKind> {
    FORMATS.iter().copied().find(|kind| kind.name == name)
}
