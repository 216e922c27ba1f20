//! The feed under the present identity of the journal.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use super::{super::atom::FeedLabels, FeedState};
use crate::{journal::Journal, web::Spool};

/// The feed. Clones share the same state.
#[derive(Clone)]
pub struct FeedView(Arc<CurrentFeed>);

/// The feed under the present identity of the journal. A failover of the journal's database gives a new identity, and
/// rendered documents may then contain lost changes.
struct CurrentFeed {
    settings: FeedSettings,
    current: RwLock<Arc<FeedState>>,
}

pub(super) struct FeedSettings {
    pub(super) journal: Journal,
    /// URL of the gateway, without a trailing slash.
    pub(super) base: String,
    /// Folder of the rendered archive pages.
    pub(super) data: PathBuf,
    /// URL of the WebSub hub.
    pub(super) hub: Option<String>,
    pub(super) spool: Spool,
    pub(super) labels: FeedLabels,
}

impl FeedView {
    /// Creates the feed of a journal, as readers see it under `public_url`. Rendered archive pages are stored in the
    /// folder `data`; those of another journal, URL or title are removed. `hub` is the URL of the WebSub hub, if there
    /// is one.
    #[must_use]
    pub fn new(
        journal: Journal,
        public_url: &str,
        data: &Path,
        hub: Option<String>,
        spool: Spool,
        labels: FeedLabels,
    ) -> Self {
        let base = public_url.trim_end_matches('/').to_owned();
        let settings = FeedSettings { journal, base, data: data.to_owned(), hub, spool, labels };
        let current = RwLock::new(Arc::new(FeedState::new(&settings)));
        Self(Arc::new(CurrentFeed { settings, current }))
    }

    pub(super) fn settings(&self) -> &FeedSettings {
        &self.0.settings
    }

    /// Returns the feed under the present identity of the journal.
    pub(in crate::view) fn current(&self) -> Arc<FeedState> {
        let CurrentFeed { settings, current } = &*self.0;
        let is_current = |feed: &FeedState| feed.site().journal == settings.journal.identity();
        let feed = Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
        if is_current(&feed) {
            return feed;
        }
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        if !is_current(&current) {
            *current = Arc::new(FeedState::new(settings));
        }
        Arc::clone(&current)
    }
}
