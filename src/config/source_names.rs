//! Names of sources in other settings: each must be that of a configured source.

use super::source::SourceConfig;
use crate::{
    harvest::announcements::AnnouncementSettings,
    model::SourceName,
    settings::{Setting, SettingError},
    suggestion::unknown_name,
};

/// Checks the names in a filter by source. `sources` contains the names of all configured sources, including disabled ones.
pub(super) fn refuse_unknown_sources<'n>(
    names: impl IntoIterator<Item = &'n SourceName>,
    sources: &[String],
    filter: &Setting,
) -> Result<(), SettingError> {
    let is_unknown = |name: &&SourceName| !sources.iter().any(|known| known == name.as_str());
    let Some(unknown) = names.into_iter().find(is_unknown) else { return Ok(()) };
    let known: Vec<&str> = sources.iter().map(String::as_str).collect();
    let advice = "a source whose changes are still in the journal can remain with enabled = false";
    Err(filter.invalid(format!("{}; {advice}", unknown_name("source", unknown.as_str(), &known))))
}

/// Checks that the sources which a source reads exist, and that the harvest that makes others has a name of its own.
/// `table` is that of all sources.
pub(super) fn check_source(
    (name, source): (&SourceName, &SourceConfig),
    names: &[String],
    table: &Setting,
) -> Result<(), SettingError> {
    let read = source.transport.sources();
    if let Some(unknown) = read.iter().find(|read| *read == name || !names.iter().any(|other| other == read.as_str())) {
        let known: Vec<_> = names.iter().map(String::as_str).filter(|other| *other != name.as_str()).collect();
        let reason = unknown_name("other source", unknown.as_str(), &known);
        return Err(table.at(name.as_str()).at("of").invalid(reason));
    }
    let announced = source.announcements.as_ref().and_then(|settings| AnnouncementSettings::name(&settings.of).ok());
    match announced.filter(|name| names.iter().any(|other| other == name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("the source {name} has the name of the harvest that makes others; rename it");
            Err(table.at(name.as_str()).invalid(reason))
        }
    }
}
