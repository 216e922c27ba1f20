//! The documents of ResourceSync as files of a published copy.
//!
//! A run of the publisher has the documents of one moment. The parts of the resource list are in folders of their own division,
//! so each is written once, and removed with its list.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{
    ResourceSync,
    copy::{CopyDocument, CopySite, ResourceSyncCopy},
};
use crate::{
    publish::{DocumentName, Edition, Face, LISTED},
    web::{Problem, Representation},
};

/// Version of the documents.
const RENDERING: &str = "1";

/// ResourceSync as a face of a published copy.
pub struct PublishedResourceSync {
    view: ResourceSync,
    /// Ends a pass over the registry.
    ended: CancellationToken,
    /// The documents of the present run.
    copy: Mutex<Option<Arc<ResourceSyncCopy>>>,
}

impl PublishedResourceSync {
    /// Creates the face. When `ended` is cancelled, a pass over the registry ends with an error.
    #[must_use]
    pub fn new(view: ResourceSync, ended: CancellationToken) -> Self {
        Self { view, ended, copy: Mutex::default() }
    }

    /// Returns the documents of the run that has this edition.
    fn copy(&self, edition: &Edition) -> Result<Arc<ResourceSyncCopy>, Problem> {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        copy.map_or_else(|| self.begin(edition), Ok)
    }

    fn begin(&self, edition: &Edition) -> Result<Arc<ResourceSyncCopy>, Problem> {
        let Edition { url, folder, view, .. } = edition;
        let site = CopySite { url: url.clone(), folder: folder.clone(), view: view.clone() };
        let copy = Arc::new(self.view.copy(site, &self.ended)?);
        *self.copy.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&copy));
        Ok(copy)
    }
}

impl Face for PublishedResourceSync {
    fn name(&self) -> &'static str {
        "resourcesync"
    }

    fn fingerprint(&self) -> String {
        RENDERING.to_owned()
    }

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        // A run begins with this call.
        Ok(self.begin(edition)?.first_list().0)
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let closed = self.copy(edition)?.documents().into_iter().filter_map(|document| {
            let number = document.closed_list()?.0;
            (number > after).then(|| DocumentName::closed(document.path, number))
        });
        Ok(closed.take(LISTED).collect())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        let open = self.copy(edition)?.documents().into_iter().filter(|document| document.closed_list().is_none());
        let name = |CopyDocument { path, is_closed, .. }| match is_closed {
            true => DocumentName::fixed(path),
            false => DocumentName::open(path),
        };
        Ok(open.map(name).collect())
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        let copy = self.copy(edition)?;
        let listed = copy.documents().into_iter().find(|listed| listed.path == document.path);
        let listed = listed.ok_or_else(|| Problem::internal(format!("a copy has no document {}", document.path)))?;
        copy.render(&listed, &self.ended)
    }
}
