//! `[dbus]`: the target on D-Bus.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    error::ConfigError,
    setting::{Setting, bounded},
    source::refuse_unknown_sources,
};
use crate::{
    dbus::{Bus, Name, Path},
    delivery::xesam::{Selection, TargetSettings},
    model::{SourceName, UriPrefix},
};

/// `[dbus]`: the Xesam target on D-Bus.
#[derive(Clone, Debug, Deserialize)]
pub struct DbusConfig {
    /// Whether the target is enabled.
    pub enabled: bool,
    /// The bus: `session`, `system`, or an address.
    #[serde(deserialize_with = "bus")]
    bus: Bus,
    /// Name on the bus.
    #[serde(deserialize_with = "name")]
    name: Name,
    /// Path of the target.
    #[serde(deserialize_with = "path")]
    path: Path,
    /// Maximum number of crawlers, 1 to 10 000.
    #[serde(deserialize_with = "bounded::<1, 10_000, _, _>")]
    crawlers: usize,
    /// Maximum number of records in a batch, 1 to 10 000.
    #[serde(deserialize_with = "bounded::<1, 10_000, _, _>")]
    batch_records: usize,
    /// Approximate maximum size of a batch in bytes, 1 KiB to 16 MiB.
    #[serde(deserialize_with = "bounded::<1024, 16_777_216, _, _>")]
    batch_bytes: usize,
    /// Whether crawlers only get items that the public can see.
    visibility: bool,
    /// Beginnings of the URIs of the objects that crawlers get.
    objects: Vec<UriPrefix>,
    /// Sources of the objects that crawlers get.
    sources: Vec<SourceName>,
}

impl DbusConfig {
    /// Checks the names of sources. `names` contains those of all configured sources, including disabled ones.
    pub(super) fn check_sources(&self, table: &Setting, names: &[String]) -> Result<(), ConfigError> {
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

fn bus<'de, D: Deserializer<'de>>(setting: D) -> Result<Bus, D::Error> {
    Bus::parse(&String::deserialize(setting)?).map_err(D::Error::custom)
}

fn name<'de, D: Deserializer<'de>>(setting: D) -> Result<Name, D::Error> {
    Name::parse(&String::deserialize(setting)?).map_err(D::Error::custom)
}

fn path<'de, D: Deserializer<'de>>(setting: D) -> Result<Path, D::Error> {
    Path::parse(&String::deserialize(setting)?).map_err(D::Error::custom)
}
