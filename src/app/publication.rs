//! Wiring of the published copy.

use std::sync::Arc;

use super::SharedJournal;
use crate::{
    config::Config,
    publish::{Face, Publication, PublicationRunner},
    view::feed::FeedView,
    web::Spool,
};

/// Sets up the published copy of all faces, if the configuration has one.
pub(super) fn open(
    config: &Config,
    shared: &SharedJournal,
    feed: &FeedView,
    spool: &Spool,
) -> Option<(Publication, PublicationRunner)> {
    let faces: Vec<Arc<dyn Face>> = vec![Arc::new(feed.clone())];
    let SharedJournal { journal, cluster } = shared.clone();
    Some(PublicationRunner::new(config.publish.clone()?, faces, (journal, cluster), spool.clone()))
}
