//! Provenance: the origins of a record that its repository has harvested itself (guidelines for aggregators).

use super::{datestamp_of, kept_record::datestamp_text};
use crate::{
    format::{Rejection, xml::Document},
    model::Uri,
};

/// Namespace of provenance containers (guidelines for aggregators).
pub(crate) const PROVENANCE: &str = "http://www.openarchives.org/OAI/2.0/provenance";

/// Maximum number of origins of a record that are read.
const MAX_ORIGINS: usize = 8;

/// Origin of a record that its repository has harvested itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginDescription {
    /// Base URL of the repository.
    pub base_url: String,
    /// Identifier in the repository.
    pub identifier: String,
    /// Datestamp in the repository.
    pub datestamp: String,
    /// Namespace of the metadata.
    pub metadata_namespace: String,
    /// Date of the response that contained the record.
    pub harvest_date: String,
    /// Whether the metadata were altered afterwards.
    pub is_altered: bool,
}

/// Reads the provenance of a container `about`: each origin, and then the origin of that origin.
pub(super) fn origins(document: &mut Document<'_>, origins: &mut Vec<OriginDescription>) -> Result<(), Rejection> {
    let mut depth = 1_usize;
    while depth > 0 {
        let Some(child) = document.child()? else {
            depth -= 1;
            continue;
        };
        if child.is(PROVENANCE, "provenance") {
            depth += 1;
        } else if child.is(PROVENANCE, "originDescription") {
            depth += 1;
            let attribute = |name: &str| child.attribute(name).unwrap_or_default().trim().to_owned();
            let is_altered = !matches!(attribute("altered").as_str(), "false" | "0");
            let harvest_date = attribute("harvestDate");
            origins.push(OriginDescription { harvest_date, is_altered, ..OriginDescription::default() });
        } else {
            let text = document.text()?;
            let Some(origin) = origins.last_mut() else { continue };
            for (name, value) in [
                ("baseURL", &mut origin.base_url),
                ("identifier", &mut origin.identifier),
                ("datestamp", &mut origin.datestamp),
                ("metadataNamespace", &mut origin.metadata_namespace),
            ] {
                if child.is(PROVENANCE, name) {
                    text.trim().clone_into(value);
                }
            }
        }
    }
    origins.truncate(MAX_ORIGINS);
    Ok(())
}

impl OriginDescription {
    /// Returns the origin in the form of the schema; `None` if a part is missing or is no URI.
    pub(super) fn valid(self) -> Option<Self> {
        let Self { base_url, identifier, datestamp, metadata_namespace, harvest_date, .. } = &self;
        let are_uris = [base_url, identifier, metadata_namespace].into_iter().all(|uri| Uri::parse(uri).is_ok());
        let [datestamp, harvest_date] = [datestamp, harvest_date].map(|date| in_form(date));
        let (datestamp, harvest_date) = (datestamp?, harvest_date?);
        are_uris.then_some(Self { datestamp, harvest_date, ..self })
    }
}

/// Returns a date in one of the two forms of the protocol (section 3.3); `None` if it cannot be read.
pub(super) fn in_form(date: &str) -> Option<String> {
    let time = datestamp_of(date)?;
    let form: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let has_form = matches!(form.as_str(), "0000-00-00" | "0000-00-00T00:00:00Z");
    Some(if has_form { date.to_owned() } else { datestamp_text(time) })
}
