//! Definitions of harvests that arrive over HTTP.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    filesets::FilesetSettings, harvest::HarvestSettings, intake::Source, journal::subscriptions::DefinitionText,
    model::SourceName,
};

/// The parts of a harvest, from the configuration or from a definition.
pub struct HarvestParts {
    /// Name of the transport.
    pub transport: &'static str,
    /// The source of its records.
    pub source: Arc<Source>,
    /// Settings of the work.
    pub work: WorkSettings,
}

/// Settings of the work of a source.
#[derive(Clone, Debug)]
pub enum WorkSettings {
    /// It reads pages of records: schedule, and settings of the kind of harvest.
    Pages(HarvestSettings),
    /// It executes the requests of other sources as jobs.
    Jobs(FilesetSettings),
}

/// Reads a definition: the settings of a source as JSON.
pub type ReadDefinition = Arc<dyn Fn(&SourceName, &Value) -> Result<HarvestParts, InvalidHarvest> + Send + Sync>;

/// Error in a definition. It never contains a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct InvalidHarvest {
    /// Path of the key, as in `settings.files`; empty if the error concerns the whole definition.
    pub key: String,
    /// The error, and how to fix it.
    pub reason: String,
}

impl InvalidHarvest {
    /// Creates an error about one key.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

/// Member of a stored definition with the source that has announced the harvest. Definitions that arrive over HTTP cannot
/// have it, because it is no setting of a source.
const ANNOUNCED_BY: &str = "announcedBy";

/// Returns the source that has announced a harvest, by its stored definition.
pub(super) fn announced_by(stored: &DefinitionText) -> Option<SourceName> {
    let definition: Value = serde_json::from_str(stored.expose()).ok()?;
    SourceName::parse(definition.get(ANNOUNCED_BY)?.as_str()?).ok()
}

/// Returns the text to store of a definition that a source has announced.
pub(super) fn announced_definition(definition: &Value, by: &SourceName) -> DefinitionText {
    let mut stored = definition.clone();
    if let Some(members) = stored.as_object_mut() {
        members.insert(ANNOUNCED_BY.to_owned(), Value::from(by.as_str()));
    }
    stored.to_string().into()
}

/// Returns the settings of a stored definition.
///
/// # Errors
/// Fails if the text is no JSON.
pub(super) fn settings(stored: &DefinitionText) -> Result<Value, serde_json::Error> {
    let mut definition: Value = serde_json::from_str(stored.expose())?;
    if let Some(members) = definition.as_object_mut() {
        members.remove(ANNOUNCED_BY);
    }
    Ok(definition)
}
