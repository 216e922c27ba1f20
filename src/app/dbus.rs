//! Wiring of the target on D-Bus.

use crate::{
    config::Config,
    delivery::xesam::{self, Crawlers, TargetRunner},
    journal::Journal,
};

/// Sets up the target, if it is enabled. It connects when its runner runs.
pub(super) fn open(config: &Config, journal: &Journal) -> Option<(Crawlers, TargetRunner)> {
    config.dbus.target().map(|settings| xesam::open(journal.clone(), settings))
}
