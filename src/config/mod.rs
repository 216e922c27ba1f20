//! Configuration of a gateway: four layers are merged, validated as a whole, and converted to types that cannot
//! represent an invalid setting.
//!
//! The layers are `config/default.toml`, the file of the user, the environment (`TIDINGS_…`) and the command-line
//! flags. Later layers override earlier ones. `config/default.toml` is compiled in and documents every setting; a
//! test compares it with the tables in this module, each of which is declared with [`settings!`](crate::settings). An
//! unknown setting is an error that suggests the nearest known name. Several errors are reported at once.

mod access;
mod amqp;
mod archives;
mod certificate;
mod dbus;
mod download;
mod error;
mod feed;
mod files;
mod fileset;
mod filesets;
mod fingerprint;
mod folder;
mod gateway;
mod harvest_definition;
mod http;
mod hub;
mod journal;
#[cfg(feature = "kafka")]
mod kafka;
mod layer;
mod limits;
mod log;
mod node;
mod oai_pmh;
mod own_feed;
mod own_iiif_discovery;
mod own_ldes;
mod own_oai_pmh;
mod own_resourcesync;
mod page;
mod parts;
mod publish;
mod repository;
mod schedule;
mod secret;
mod segments;
mod server;
mod source;
mod source_names;
mod stomp;
mod subscription;
#[cfg(test)]
mod tests;
mod transport;
mod transports;
mod value;

pub use dbus::DbusConfig;
pub use error::{ConfigError, ConfigErrors};
pub use files::FilesConfig;
pub use fingerprint::Fingerprint;
pub use harvest_definition::{harvest_schema, read_harvest};
pub use http::MessageRate;
pub use hub::HubConfig;
pub use journal::JournalConfig;
pub use layer::{DEFAULTS, Flags};
pub use limits::Limits;
pub use log::{LogConfig, LogFormat};
pub use node::NodeConfig;
pub use own_feed::OwnFeedConfig;
pub use own_iiif_discovery::OwnIiifDiscoveryConfig;
pub use own_ldes::OwnLdesConfig;
pub use own_oai_pmh::OwnOaiPmhConfig;
pub use own_resourcesync::OwnResourceSyncConfig;
pub use page::PageConfig;
pub use parts::{Config, ConfigParts};
pub use publish::{PublishConfig, PublishedDocuments};
pub use segments::SegmentsConfig;
pub use server::{DeliveryTable, PublicUrl, ServerConfig, TlsFiles};
pub use source::{SourceConfig, unknown_dialect};
pub use transport::{Connection, Transport};
pub use value::listen_address;
