//! `[iiif_discovery]`: the journal by the IIIF Change Discovery API.

use std::sync::Arc;

use crate::{
    settings::{Choice, Choose, Flag, TextType, settings},
    view::iiif_discovery::{IiifDiscoverySettings, ManifestTemplate, Wording},
};

settings! {
    /// `[iiif_discovery]`: the journal by the IIIF Change Discovery API at `/iiif`.
    #[derive(Clone, Debug)]
    pub struct OwnIiifDiscoveryConfig {
        /// Whether the gateway serves it.
        pub enabled: Flag,
        /// Class of the resources, such as "Manifest".
        pub class: ResourceClass,
        /// Template of the URL of a manifest. Default: none.
        pub manifest: Option<Manifest>,
        /// Wording of the activities: "publisher" or "aggregator".
        pub wording: Choice<Wording>,
    }
}

impl OwnIiifDiscoveryConfig {
    /// Returns the settings of the view; `None` if it is not enabled. `has_retention` says whether changes are removed.
    #[must_use]
    pub fn settings(&self, has_retention: bool) -> Option<IiifDiscoverySettings> {
        let Self { enabled, class, manifest, wording } = self.clone();
        enabled.then_some(IiifDiscoverySettings { class, manifest, wording, has_retention })
    }
}

impl Choose for Wording {
    const WHAT: &'static str = "wording of activities";
}

/// Maximum length of a class, in bytes.
const MAX_CLASS: usize = 64;

/// Class of the resources.
pub struct ResourceClass;

impl TextType for ResourceClass {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let is_term =
            text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric());
        if is_term && text.len() <= MAX_CLASS {
            return Ok(text.to_owned());
        }
        Err("it is not a class; give a term of the context, such as \"Manifest\", \"Collection\" or \"Object\""
            .to_owned())
    }
}

/// Template of the URL of a manifest.
pub struct Manifest;

impl TextType for Manifest {
    type Value = Arc<ManifestTemplate>;

    fn parse(text: &str) -> Result<Arc<ManifestTemplate>, String> {
        ManifestTemplate::parse(text).map(Arc::new)
    }
}
