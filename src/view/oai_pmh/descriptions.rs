//! Descriptions of the formats of kept records, which the records themselves have.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{
    catalogue::{Catalogue, FormatDescription, MetadataFormat},
    record::{Record, Unwritable},
};
use crate::{
    format::oai_pmh::{get_record_url, kept_record::KeptRecords},
    journal::{Journal, acceptance::AcceptanceTime},
    model::Timestamp,
    view::{block_on, journal_problem, registry_view::RegistryView},
    web::Problem,
};

/// Number of records of a harvest among which one with metadata is looked for.
const READ_RECORDS: usize = 50;

/// The descriptions that are known, by prefix.
#[derive(Default)]
pub(super) struct FormatDescriptions(Mutex<BTreeMap<String, FormatDescription>>);

impl FormatDescriptions {
    /// Returns the description of a format: the namespace of a kept record, and the schema that the record names. `None` if no
    /// record in the format is found. The call blocks.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub(super) fn of(
        &self,
        prefix: &str,
        journal: &Journal,
        catalogue: &Catalogue,
    ) -> Result<Option<FormatDescription>, Problem> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(description) = known().get(prefix) {
            return Ok(Some(description.clone()));
        }
        let description = find(prefix, journal, catalogue)?;
        if let Some(description) = &description {
            known().insert(prefix.to_owned(), description.clone());
        }
        Ok(description)
    }
}

/// Looks at the records that the harvests of a format have listed.
fn find(prefix: &str, journal: &Journal, catalogue: &Catalogue) -> Result<Option<FormatDescription>, Problem> {
    let format = MetadataFormat::Harvested(prefix.to_owned());
    for KeptRecords { source, base_url, prefix } in catalogue.kept_in(prefix) {
        let listed = journal.missing_records(source.clone(), Timestamp::now(), String::new(), READ_RECORDS);
        for identifier in block_on(listed).map_err(journal_problem)? {
            let Ok(uri) = get_record_url(base_url, prefix, &identifier) else { continue };
            let Some(state) = block_on(journal.object(uri.clone())).map_err(journal_problem)? else { continue };
            let (time, sight) = (AcceptanceTime::default(), RegistryView::default());
            let Ok(Some(record)) = Record::of(&uri, &state, time, &sight, catalogue) else { continue };
            match record.kept_document(&format) {
                Ok(Some(kept)) => return Ok(Some(FormatDescription::of_kept(&format, &kept))),
                Ok(None) | Err(Unwritable::Missing) => {}
                Err(Unwritable::Failed(problem)) => return Err(problem),
            }
        }
    }
    Ok(None)
}
