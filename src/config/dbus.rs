//! `[dbus]`: the target on D-Bus.

use super::source_names::refuse_unknown_sources;
use crate::{
    dbus::{Bus, Name, Path},
    delivery::xesam::{Selection, TargetSettings},
    features::missing,
    model::{SourceName, UriPrefix},
    settings::{Flag, List, Setting, SettingError, Text, TextType, Whole, settings},
};

settings! {
    /// `[dbus]`: the Xesam target on D-Bus.
    #[derive(Clone, Debug)]
    pub struct DbusConfig {
        /// Whether the target is enabled.
        pub enabled: Flag,
        /// The bus: `session`, `system`, or an address.
        bus: Bus,
        /// Name on the bus.
        name: Name,
        /// Path of the target.
        path: Path,
        /// Maximum number of crawlers, 1 to 10 000.
        crawlers: Whole<usize, 1, 10_000>,
        /// Maximum number of records in a batch, 1 to 10 000.
        batch_records: Whole<usize, 1, 10_000>,
        /// Approximate maximum size of a batch in bytes, 1 KiB to 16 MiB.
        batch_bytes: Whole<usize, 1024, 16_777_216>,
        /// Whether crawlers only get items that the public can see.
        visibility: Flag,
        /// Beginnings of the URIs of the objects that crawlers get.
        objects: List<Text<UriPrefix>>,
        /// Sources of the objects that crawlers get.
        sources: List<Text<SourceName>>,
    }
}

impl DbusConfig {
    /// Checks that the build has D-Bus if it is enabled, and the names of sources. `names` contains those of all configured
    /// sources, including disabled ones.
    pub(super) fn check(&self, table: &Setting, names: &[String]) -> Result<(), SettingError> {
        if let (true, Some(reason)) = (self.enabled, missing("dbus")) {
            return Err(table.at("enabled").invalid(reason));
        }
        refuse_unknown_sources(&self.sources, names, &table.at("sources"))
    }

    /// Returns the settings of the target, if it is enabled.
    #[must_use]
    pub fn target(&self) -> Option<TargetSettings> {
        self.enabled.then(|| TargetSettings {
            bus: self.bus.clone(),
            name: self.name.clone(),
            path: self.path.clone(),
            crawlers: self.crawlers,
            batch_records: self.batch_records,
            batch_bytes: self.batch_bytes,
            selection: Selection {
                visibility: self.visibility,
                objects: self.objects.clone(),
                sources: self.sources.clone(),
            },
        })
    }
}

/// Implements [`TextType`] for types that have a function `parse`.
macro_rules! text_types {
    ($($type:ty),*) => {$(
        impl TextType for $type {
            type Value = Self;

            fn parse(text: &str) -> Result<Self, String> {
                Self::parse(text).map_err(|error| error.to_string())
            }
        }
    )*};
}
text_types!(Bus, Name, Path);
