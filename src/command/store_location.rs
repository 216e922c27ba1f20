//! Locations of journals on the command line.

use std::path::PathBuf;

use tidings::{
    app,
    config::ConfigParts,
    journal::store::{ConnectionOptions, PostgresUrl, StoreLocation},
};

use super::Failure;

/// Returns the journal that a text names: a database for `postgres://…`, or else a folder.
pub(super) fn parse(text: &str) -> Result<StoreLocation, Failure> {
    if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(StoreLocation::Folder(PathBuf::from(text)));
    }
    let url = PostgresUrl::parse(text);
    url.map(StoreLocation::Postgres)
        .map_err(|error| Failure::Usage(format!("the URL of the journal is wrong: {error}")))
}

/// Returns the settings for connections to a database, with the CA certificates of the configuration.
pub(super) fn connection_options(location: &StoreLocation, config: &ConfigParts) -> Result<ConnectionOptions, Failure> {
    let options = app::connection_options(location, config.journal().ca.as_deref());
    options.map_err(|error| Failure::Failed(format!("journal.ca: {error}")))
}
