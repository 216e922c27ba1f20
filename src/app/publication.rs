//! Wiring of the published copy.

use std::sync::Arc;

use super::SharedJournal;
use crate::{
    config::Config,
    publish::{Face, Publication, PublicationRunner},
    segments::Segments,
    view::{feed::FeedView, segments::PublishedSegments},
    web::Spool,
};

/// Sets up the published copy of the feed and, if wanted, of the segments, if the configuration has one.
pub(super) fn open(
    config: &Config,
    shared: &SharedJournal,
    feed: &FeedView,
    segments: Option<&Segments>,
    spool: &Spool,
) -> Option<(Publication, PublicationRunner)> {
    let settings = config.publish.clone()?;
    let mut faces: Vec<Arc<dyn Face>> = vec![Arc::new(feed.clone())];
    if let Some(segments) = segments.filter(|_| settings.segments) {
        faces.push(Arc::new(PublishedSegments { segments: segments.clone(), spool: spool.clone() }));
    }
    let SharedJournal { journal, cluster } = shared.clone();
    Some(PublicationRunner::new(settings, faces, (journal, cluster), spool.clone()))
}
