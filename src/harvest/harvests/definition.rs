//! Definitions of harvests that arrive over HTTP.

use std::sync::Arc;

use serde_json::Value;

use crate::{harvest::HarvestSettings, intake::Source, model::SourceName};

/// The parts of a harvest, from the configuration or from a definition.
pub struct HarvestParts {
    /// Name of the transport.
    pub transport: &'static str,
    /// The source of its records.
    pub source: Arc<Source>,
    /// Schedule, and settings of the kind of harvest.
    pub settings: HarvestSettings,
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
