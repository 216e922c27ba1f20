//! Wiring of the segments.

use super::ServeError;
use crate::{config::Config, files::FileStore, journal::Journal, segments::Segments};

/// Opens the store of the segments, if there is one.
pub(super) fn open(config: &Config, journal: &Journal) -> Result<Option<Segments>, ServeError> {
    let Some(location) = config.segments.location(&config.store, &config.journal.data) else { return Ok(None) };
    let files = FileStore::open(&location)?;
    Ok(Some(Segments::new(journal.clone(), files, config.segments.keep)))
}
