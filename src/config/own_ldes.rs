//! `[ldes]`: the journal as a Linked Data Event Stream.

use crate::{
    config::own_feed::Label,
    journal::retention::Retention,
    settings::{Flag, Whole, settings},
    view::ldes::LdesSettings,
};

settings! {
    /// `[ldes]`: the journal as a Linked Data Event Stream at `/ldes`.
    #[derive(Clone, Debug)]
    pub struct OwnLdesConfig {
        /// Whether the gateway serves it.
        pub enabled: Flag,
        /// Title of the stream, up to 200 characters.
        pub title: Label,
        /// Time after which clients should ask again, in seconds, 1 to 86400.
        pub polling_seconds: Whole<u32, 1, 86400>,
    }
}

impl OwnLdesConfig {
    /// Returns the settings of the view; `None` if it is not enabled. `retention` limits the changes of the journal.
    #[must_use]
    pub fn settings(&self, retention: Retention) -> Option<LdesSettings> {
        let Self { enabled, title, polling_seconds } = self.clone();
        enabled.then_some(LdesSettings { title, polling_seconds, retention })
    }
}
