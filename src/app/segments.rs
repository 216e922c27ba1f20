//! Wiring of the segments.

use crate::{config::Config, journal::Journal, segments::Segments};

/// Returns the segments of the journal, if there are any.
pub(super) fn of(config: &Config, journal: &Journal) -> Option<Segments> {
    let location = config.segments.location(&config.store, &config.journal.data)?;
    Some(Segments::new(journal.clone(), location, config.segments.keep))
}
