//! Wiring of the published copy.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::SharedJournal;
use crate::{
    config::{Config, PublishConfig, PublishedDocuments},
    publish::{Face, Publication, PublicationRunner},
    segments::Segments,
    view::{
        feed::FeedView,
        iiif_discovery::IiifDiscovery,
        ldes::Ldes,
        resourcesync::{PublishedResourceSync, ResourceSync},
        segments::PublishedSegments,
    },
    web::Spool,
};

/// The parts of the gateway whose documents can be files.
pub(super) struct PublishedFaces<'a> {
    pub(super) feed: &'a FeedView,
    pub(super) segments: Option<&'a Segments>,
    pub(super) iiif_discovery: Option<&'a IiifDiscovery>,
    pub(super) ldes: Option<&'a Ldes>,
    pub(super) resourcesync: &'a ResourceSync,
}

impl PublishedFaces<'_> {
    /// Returns a face; `None` if the gateway does not have it.
    fn face(&self, documents: PublishedDocuments, spool: &Spool, stop: &CancellationToken) -> Option<Arc<dyn Face>> {
        let face: Arc<dyn Face> = match documents {
            PublishedDocuments::Feed => Arc::new(self.feed.clone()),
            PublishedDocuments::Segments => {
                Arc::new(PublishedSegments { segments: self.segments?.clone(), spool: spool.clone() })
            }
            PublishedDocuments::Iiif => Arc::new(self.iiif_discovery?.clone()),
            PublishedDocuments::Ldes => Arc::new(self.ldes?.clone()),
            PublishedDocuments::ResourceSync => {
                Arc::new(PublishedResourceSync::new(self.resourcesync.clone(), stop.clone()))
            }
        };
        debug_assert_eq!(face.name(), documents.name(), "the folder of a face has its name");
        Some(face)
    }
}

/// Sets up the published copy, if the configuration has one. Its runs end when `stop` is cancelled.
pub(super) fn open(
    config: &Config,
    shared: &SharedJournal,
    published: &PublishedFaces<'_>,
    spool: &Spool,
    stop: &CancellationToken,
) -> Option<(Publication, PublicationRunner)> {
    let PublishConfig { settings, documents } = config.publish.clone()?;
    let faces = PublishedDocuments::ALL.into_iter().filter(|face| documents.contains(face));
    let faces = faces.filter_map(|face| published.face(face, spool, stop)).collect();
    let SharedJournal { journal, cluster } = shared.clone();
    Some(PublicationRunner::new(settings, faces, (journal, cluster), spool.clone()))
}

#[cfg(test)]
mod tests {
    use super::PublishedDocuments;
    use crate::publish::FACES;

    /// Another list would leave documents of a former view.
    #[test]
    fn publisher_knows_the_names_of_all_faces() {
        assert_eq!(PublishedDocuments::ALL.map(PublishedDocuments::name), FACES);
    }
}
