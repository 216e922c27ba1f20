//! Worlds: models of real systems that live random histories, while the gateway is killed and started again.
//!
//! A world keeps its own truth, and speaks to the gateway as the real system does, with its documented oddities as
//! switches. When the world is quiet, the judge compares the truth with the registry, with the copies of subscribers and of
//! Sickle, which harvests the gateway over OAI-PMH, and with what the gateway has refused. A failure prints the seed and the
//! shortest history that still fails.
//!
//! `TIDINGS_TEST_WORLDS` is a number of hours for which each world goes on with new seeds. `TIDINGS_TEST_WORLDS_AT_ONCE` is
//! the number of histories of a world that live side by side, because some wait most of their time. `SEED` repeats the
//! histories of one seed.

mod audits;
mod copies;
mod driver;
mod fedora3;
mod fedora6;
mod feed;
mod folder;
mod islandora;
mod judge;
mod oai_pmh;
mod platform;
mod plug_in;
mod rig;
mod sfm;
mod zip_file;

use std::collections::{BTreeMap, BTreeSet};

use proptest::strategy::BoxedStrategy;

use crate::worlds::rig::Rig;

/// Model of a source: its truth, and its messages to the gateway.
pub(crate) trait World: Sized {
    /// Behaviours of this source that stay the same during a history.
    type Switches: Clone + std::fmt::Debug;
    /// One thing that happens in the source. A step names things by small numbers, and does nothing where it makes no
    /// sense, so that a history stays a history when steps are left out.
    type Step: Clone + std::fmt::Debug;

    /// Name for messages.
    const NAME: &'static str;

    /// Returns the random switches.
    fn switches() -> BoxedStrategy<Self::Switches>;

    /// Returns a random step.
    fn step() -> BoxedStrategy<Self::Step>;

    /// Starts the source.
    async fn begin(switches: Self::Switches) -> Self;

    /// Returns the settings of the gateway for this source, as TOML.
    fn settings(&self) -> String;

    /// Returns the names of the sources that can be audited, which are all of the world or none.
    fn audited(&self) -> &'static [&'static str] {
        &[]
    }

    /// Shows the truth to audits.
    fn show(&mut self) {}

    /// Lives one step of which the gateway hears nothing, for a world that can be audited.
    async fn live_unseen(&mut self, step: Self::Step, rig: &mut Rig) -> Result<(), String> {
        let _ = (step, rig);
        Ok(())
    }

    /// Lets the gateway hear of the source again, before its audits correct the registry.
    async fn resume(&mut self, rig: &mut Rig) {
        let _ = rig;
    }

    /// Returns whether corrections are work that goes on after the audit.
    const CORRECTS_LATER: bool = false;

    /// Returns the items whose content has changed without a message, besides those whose other facts differ, as far as an
    /// audit can see it.
    fn unseen_contents(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Does one step: changes the truth, and reports it to the gateway. Fails with the wrong answer of the gateway.
    async fn live(&mut self, step: Self::Step, rig: &mut Rig) -> Result<(), String>;

    /// Ends all passing troubles, and waits until the gateway has everything that the source will ever send.
    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String>;

    /// Returns what exists.
    fn truth(&self) -> Truth;
}

/// What exists in a source.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// The items that exist, by URI.
    pub(crate) items: BTreeMap<String, ItemTruth>,
    /// Items of which the source has not said whether they still exist.
    pub(crate) unsettled: BTreeSet<String>,
    /// Messages that the gateway must have refused, which are in its quarantine.
    pub(crate) refused: Refusals,
    /// True if each event is about one resource, so that ActivityStreams tell everything about the items.
    pub(crate) one_resource_for_each_event: bool,
}

/// Number of messages that a source has sent, and that the gateway must have refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusals {
    Exactly(usize),
    /// The source has things that nobody can read.
    Any,
}

impl Default for Refusals {
    fn default() -> Self {
        Self::Exactly(0)
    }
}

/// True facts about an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ItemTruth {
    /// URI of the item's object.
    pub(crate) object: String,
    /// True if the public may see the item.
    pub(crate) public: bool,
    /// State of the item, if it is not a matter of the public view.
    pub(crate) state: Option<String>,
    /// Size of the content in bytes, if the source has told one.
    pub(crate) size: Option<u64>,
    /// Digest of the content in hexadecimal, if the world knows it.
    pub(crate) digest: Option<String>,
}
